"""Profiles of hypothesis, by ZEPHON_PROFILE: `ci`, `deep` (many more examples, new ones each time), `shrink`.

A failing example is printed with the code that repeats it; `shrink` makes it small, which takes minutes
where an example writes shards and runs ranks, so that the others leave it as it was found.
"""

from __future__ import annotations

import os
import signal
import threading

from hypothesis import HealthCheck, Phase, settings

FOUND = [Phase.explicit, Phase.reuse, Phase.generate]
# The machine decides how long an example takes, never whether a law holds.
settings.register_profile(
    "ci",
    deadline=None,
    print_blob=True,
    derandomize=True,
    phases=FOUND,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("deep", settings.get_profile("ci"), derandomize=False)
settings.register_profile("shrink", settings.get_profile("ci"), phases=[*FOUND, Phase.shrink])
settings.load_profile(os.environ.get("ZEPHON_PROFILE", "ci"))

# A shell that runs the tests in the background leaves Ctrl-C ignored, and programs that tests start inherit that;
# with a handler here they begin with the default, as a user's do.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)
