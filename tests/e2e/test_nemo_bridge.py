"""Megatron-Bridge's loop on Zephon's data: a chain of layouts is one sequence of global batches.

The loop is this project's writing of the part that has to do with data; test_nemo_wheels.py runs the same with
Megatron-Bridge's own functions.
"""

from __future__ import annotations

from pathlib import Path

import bridge_scenarios as scenarios


def test_a_chain_of_layouts_is_one_sequence_and_faults_stop_it(tmp_path: Path) -> None:
    told, config = scenarios.run_chain(tmp_path)
    scenarios.check_chain(told, config, tmp_path)
    assert all(one["code"].endswith("bridge_parts.py") for one in told[0])
