"""Megatron-Bridge's own functions, out of an unpacked wheel: what of it can run without a GPU and its dependencies.

The contracts (data/base.py), callbacks.py, samplers.py and safe_pickle.py are imported as they are; of modules that
import more than is here, the named functions are taken from their source. The only change: "cuda" becomes "cpu".
"""

from __future__ import annotations

import ast
import importlib
import os
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from bridge_parts import Parts
from megatron.core.pipeline_parallel import utils as pipeline
from megatron.core.rerun_state_machine import RerunDataIterator

PACKAGES = ("", ".data", ".data.builders", ".data.megatron_mimo", ".training", ".training.tokenizers", ".utils")
CLASSES = {
    ".training.tokenizers.tokenizer": ["MegatronTokenizer"],
    ".data.megatron_mimo.base_provider": ["MegatronMIMODatasetProvider"],
    ".models.megatron_mimo.megatron_mimo_provider": ["MegatronMIMOProvider"],
}


def make_importable(wheel: Path) -> None:
    """Make megatron.bridge's modules importable one by one, without what its packages import at once."""
    root = wheel / "megatron" / "bridge"
    for name in PACKAGES:
        module = ModuleType(f"megatron.bridge{name}")
        module.__path__ = [str(root.joinpath(*name.split(".")[1:]))]
        sys.modules.setdefault(module.__name__, module)
    for name, classes in CLASSES.items():
        module = ModuleType(f"megatron.bridge{name}")
        for one in classes:
            setattr(module, one, type(one, (), {}))
        sys.modules.setdefault(module.__name__, module)


def functions(path: Path, names: list[str], namespace: dict[str, Any]) -> SimpleNamespace:
    """Return functions and constants of a source file, run in this namespace."""
    tree = ast.parse(path.read_text().replace('device="cuda"', 'device="cpu"').replace(".cuda(non_blocking=True)", ""))
    found = [
        node
        for node in tree.body
        if (isinstance(node, ast.FunctionDef) and node.name in names)
        or (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in names)
    ]
    future = ast.parse("from __future__ import annotations").body
    exec(compile(ast.Module(body=future + found, type_ignores=[]), str(path), "exec"), namespace)
    return SimpleNamespace(**{name: namespace[name] for name in names})


def parts_of(wheel: Path) -> Parts:
    make_importable(wheel)
    root = wheel / "megatron" / "bridge"
    base = importlib.import_module("megatron.bridge.data.base")
    callbacks = importlib.import_module("megatron.bridge.training.callbacks")
    samplers = importlib.import_module("megatron.bridge.data.samplers")
    safe_pickle = importlib.import_module("megatron.bridge.utils.safe_pickle")
    absent = type("Absent", (), {})

    def rank_of(group: Any) -> int:
        return int(group.rank())

    checkpointing = functions(
        root / "training" / "checkpointing.py",
        ["maybe_save_dataloader_state", "maybe_load_dataloader_state"],
        {
            "os": os,
            "torch": torch,
            "get_pg_rank": rank_of,
            "get_checkpoint_name": lambda folder, step: str(Path(folder) / f"iter_{step:07d}"),
            "ensure_directory_exists": lambda path: Path(path).parent.mkdir(parents=True, exist_ok=True),
            "print_rank_0": print,
            "energon_torch_load": safe_pickle.energon_torch_load,
        },
    )
    provider = functions(
        root / "data" / "utils.py",
        ["get_dataset_provider"],
        {"_REGISTRY": {}, **{name: getattr(base, name) for name in ("DatasetProvider", "DatasetBuildContext")}},
    ).get_dataset_provider
    bind = functions(
        root / "training" / "setup.py",
        ["_bind_dataset_provider_context"],
        {"inspect": importlib.import_module("inspect"), "partial": importlib.import_module("functools").partial},
    )._bind_dataset_provider_context
    loaders = functions(
        root / "data" / "loaders.py",
        [
            "get_train_valid_test_num_samples",
            "build_train_valid_test_datasets",
            "build_train_valid_test_data_loaders",
            "build_train_valid_test_data_iterators",
            "setup_data_iterators",
        ],
        {
            "torch": torch,
            "print_rank_0": print,
            "RerunDataIterator": RerunDataIterator,
            "build_pretraining_data_loader": samplers.build_pretraining_data_loader,
            "GPTSFTDatasetConfig": absent,
            "GPTDatasetConfig": absent,
        },
    )
    step = functions(
        root / "training" / "gpt_step.py",
        [
            "_CURRENT_PACKED_SEQ_DEVICE_KEYS",
            "_CURRENT_PACKED_SEQ_HOST_KEYS",
            "_CURRENT_PACKED_SEQ_PARAM_KEYS",
            "_has_packed_sequence_metadata",
            "_packed_metadata_for_forward",
            "_uses_packed_sequence_metadata",
            "_middle_pp_stage_needs_batch",
            "get_batch_from_iterator",
            "get_batch",
        ],
        {
            "torch": torch,
            "is_pp_first_stage": pipeline.is_pp_first_stage,
            "is_pp_last_stage": pipeline.is_pp_last_stage,
            # Slicing for context parallelism needs a later megatron-core than this Python has.
            "get_batch_on_this_cp_rank": lambda batch, *, is_hybrid_cp, cp_group: batch,
        },
    )

    def fire(given: Any, context: Any) -> None:
        manager = callbacks.normalize_callbacks(given)
        if callbacks.should_fire(manager, "on_data_init_start"):
            context = callbacks.CallbackContext(state=context.state, model=context.model, user_state=manager.user_state)
            manager.fire("on_data_init_start", context)

    def iterators(config: Any, train_state: Any, groups: Any) -> Any:
        bound = bind(provider(config.dataset), tokenizer=None, pg_collection=groups)
        return loaders.setup_data_iterators(config, train_state, 1, bound, groups.dp)

    def save(model: Any, iterator: Any, step_: int, folder: str, *, pg_collection: Any) -> None:
        checkpointing.maybe_save_dataloader_state(model, iterator, step_, folder, pg_collection=pg_collection)

    return Parts(fire, iterators, save, checkpointing.maybe_load_dataloader_state, step.get_batch)
