"""Profiles of hypothesis: `ci` by default, `deep` with ZEPHON_PROFILE=deep; failing seeds are printed."""

from __future__ import annotations

from hypothesis import HealthCheck, Phase, settings
from profiles import DEEP

# The machine decides how long an example takes, never whether a law holds.
settings.register_profile(
    "ci",
    deadline=None,
    print_blob=True,
    derandomize=True,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
# The default run is the same every time; a deep one looks where none has looked.
settings.register_profile("deep", settings.get_profile("ci"), derandomize=False)
settings.load_profile("deep" if DEEP else "ci")
