"""Profiles of hypothesis: `ci` by default, `deep` with ZEPHON_PROFILE=deep; failing seeds are printed."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# The machine decides how long an example takes, never whether a law holds.
settings.register_profile(
    "ci",
    deadline=None,
    print_blob=True,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("deep", settings.get_profile("ci"), derandomize=False, max_examples=2000)
settings.load_profile(os.environ.get("ZEPHON_PROFILE", "ci"))
