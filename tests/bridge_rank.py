"""One rank of a job that goes through Megatron-Bridge's loop, run after run, and writes down what get_batch gave."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch.distributed as dist
from rank_options import rank_options

HERE = Path(__file__).resolve().parent / "megatron_bridge"
sys.path.insert(0, str(HERE))
if os.environ.get("BRIDGE_WHEEL"):
    from bridge_wheel import make_importable

    make_importable(Path(os.environ["BRIDGE_WHEEL"]))
    # `pretrain` itself needs a GPU: this project's stands in, with the wheel's parts.
    sys.modules["megatron.bridge.training"].__path__.insert(0, str(HERE / "megatron" / "bridge" / "training"))

from megatron.bridge.training.pretrain import one_batch  # noqa: E402
from megatron.core import parallel_state  # noqa: E402
from megatron.core.process_groups_config import ProcessGroupCollection  # noqa: E402
from megatron.core.rerun_state_machine import initialize_rerun_state_machine  # noqa: E402
from zephon_nemo import pretrain, use_zephon  # noqa: E402

from zephon import ZephonError  # noqa: E402


def main() -> None:
    options = rank_options()
    initialize_rerun_state_machine()
    told = []
    for number, run in enumerate(json.loads(options.runs.read_text())):
        rendezvous = f"file://{options.rendezvous}.{number}"
        dist.init_process_group("gloo", init_method=rendezvous, rank=options.rank, world_size=options.world)
        parallel_state.initialize_model_parallel(run.get("tp", 1), run.get("pp", 1))
        told.append(one_run(run))
        parallel_state.destroy_model_parallel()
        dist.destroy_process_group()
    (options.out / f"rank{options.rank}.json").write_text(json.dumps(told))


def one_run(run: dict[str, Any]) -> dict[str, Any]:
    groups = ProcessGroupCollection.use_mpu_process_groups()
    told: dict[str, Any] = {"place": {axis: getattr(groups, axis).rank() for axis in ("dp", "tp", "pp")}, "steps": []}
    tracker = Path(run["folder"]) / "trained.json"
    trained = json.loads(tracker.read_text()) if run.get("load") else {"step": 0, "consumed_train_samples": 0}
    recipe = SimpleNamespace(
        model=SimpleNamespace(seq_length=32, mtp_num_layers=None),
        train=SimpleNamespace(
            micro_batch_size=run.get("micro", 1),
            global_batch_size=8,
            train_iters=run["steps"],
            train_samples=None,
            num_epochs=None,
            exit_signal=None,
            exit_signal_handler_for_dataloader=False,
        ),
        validation=SimpleNamespace(
            eval_iters=run.get("eval_iters", 0),
            eval_interval=1,
            eval_micro_batch_size=None,
            eval_global_batch_size=None,
            skip_train=False,
        ),
        checkpoint=SimpleNamespace(load=run.get("load"), save=run["folder"] if run.get("save") else None),
        dataset="the recipe's own",
        resumed=SimpleNamespace(**trained, consumed_valid_samples=0),
        groups=groups,
        told=told,
    )
    try:
        recipe, rest = use_zephon(recipe, [*run["words"], "train.lr=1"])
        assert rest == ["train.lr=1"]
        pretrain(recipe, lambda state, parts, iterator, groups: one_batch(parts, iterator, state.cfg, groups))
    except ZephonError as error:
        return {**told, "error": type(error).__name__, "message": str(error)}
    dist.barrier()
    if run.get("save") and dist.get_rank() == 0:
        kept = {name: getattr(recipe.resumed, name) for name in ("step", "consumed_train_samples")}
        tracker.write_text(json.dumps(kept))
    dist.barrier()
    return told


if __name__ == "__main__":
    main()
