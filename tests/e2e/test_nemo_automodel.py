"""AutoModel's way to take data: rows by rank, states in a file each, other numbers of ranks.

Loader and checkpoint files are this project's writing of AutoModel's; test_nemo_wheels.py runs the same with its own.
"""

from __future__ import annotations

from pathlib import Path

import automodel_scenarios as scenarios


def test_a_chain_of_sizes_is_one_sequence(tmp_path: Path) -> None:
    told, config = scenarios.run_chain(tmp_path)
    scenarios.check_chain(told, config)
    assert {one["loader"] for one in told[0]} == {"__main__"}
