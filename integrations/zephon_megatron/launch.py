"""Runs a Megatron-LM script as a YAML file says, with its data from Zephon where `data.backend` is zephon.

    torchrun … -m zephon_megatron.launch --config RUN.yaml [data.a=value …] pretrain_gpt.py [Megatron's arguments]

The script stays as it is: of its call of Megatron-LM's `pretrain` the datasets provider is replaced, nothing else.
With another backend the script runs with its own provider.
"""

from __future__ import annotations

import argparse
import inspect
import runpy
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any

from zephon import ConfigError
from zephon_megatron.launch_yaml import BACKEND, Launch, read_launch
from zephon_megatron.provider import Data, Provider, Streams, build_iterators, megatron_args, no_training

# The parameter of megatron.training.pretrain, in all releases.
PARAMETER = "train_valid_test_dataset_provider"
EXTERNAL = "--dataloader-type"


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line above; return 2, with one line on stderr, where settings make no sense or can't work."""
    parser = argparse.ArgumentParser(
        prog="zephon_megatron.launch",
        usage="%(prog)s --config RUN.yaml [data.a=value ...] SCRIPT [argument ...]",
        description=(__doc__ or "").partition("\n")[0],
        allow_abbrev=False,
    )
    parser.add_argument("--config", required=True, metavar="RUN.yaml", help="data section and Megatron's arguments")
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    try:
        overrides, script, arguments = split_command(options.rest)
        launch = read_launch(options.config, overrides)
        if not Path(script).is_file():
            raise ConfigError(f"there is no script {script}; name it after the overrides")
        run_script(launch, script, arguments)
    except ConfigError as error:
        sys.stderr.write(f"zephon_megatron.launch: {error}\n")
        return 2
    return 0


def split_command(rest: Sequence[str]) -> tuple[list[str], str, list[str]]:
    """Return (overrides, script, the script's own arguments). Raises ConfigError where there is no script."""
    for place, word in enumerate(rest):
        if "=" not in word:
            return list(rest[:place]), word, list(rest[place + 1 :])
    raise ConfigError("no script is named; name it after the overrides: … pretrain_gpt.py")


def run_script(launch: Launch, script: str, arguments: Sequence[str] = ()) -> None:
    """Run a script as `python SCRIPT` would, with the launch's arguments before its own, so that its own win.

    Raises ConfigError where the data is Zephon's and the script never called megatron.training.pretrain.
    """
    before = sys.argv, list(sys.path)
    words = [*launch.arguments]
    if launch.backend == BACKEND and EXTERNAL not in (*words, *arguments):
        words += [EXTERNAL, "external"]
    sys.argv = [script, *words, *arguments]
    # As Python does for a script: what lies beside it, Megatron-LM itself most of all, can be imported.
    sys.path.insert(0, str(Path(script).resolve().parent))
    try:
        if launch.backend != BACKEND:
            runpy.run_path(script, run_name="__main__")
            return
        with replaced_provider(_training(), launch_provider(launch)) as calls:
            runpy.run_path(script, run_name="__main__")
        if not calls:
            raise ConfigError(
                f"{script} ended without calling megatron.training.pretrain, so that its data wasn't Zephon's; "
                "give that script zephon_megatron.make_provider(...)"
            )
    finally:
        sys.argv, sys.path[:] = before


def launch_provider(launch: Launch, *, get_args: Callable[[], Any] | None = None) -> Provider:
    """Return the datasets provider of a launch's streams, for scripts that call `pretrain` with one of their own.

    `get_args` returns Megatron-LM's arguments (default: megatron.training.get_args).
    """
    train = launch.train
    if train is None:
        raise ConfigError(f"data.backend={launch.backend!r} isn't Zephon's; set data.backend to zephon")

    def provider(
        train_val_test_num_samples: Sequence[int],  # noqa: ARG001 - endless: it doesn't matter how many
        vp_stage: int | None = None,
    ) -> tuple[Data, Data, Data]:
        args = megatron_args() if get_args is None else get_args()
        args.zephon_begins_at = launch.begins_at or getattr(args, "zephon_begins_at", 0)
        args.dataloader_save = launch.save or getattr(args, "dataloader_save", None)
        args.dataloader_load = launch.load or getattr(args, "dataloader_load", None)
        sizes = {"sequence_length": args.seq_length, "global_batch_size": args.global_batch_size}

        def streams() -> Streams:
            if getattr(args, "eval_iters", 0) and launch.valid is None:
                raise ConfigError(
                    f"eval_iters is {args.eval_iters}, but data.valid isn't set; set it, or eval_iters: 0"
                )
            return Streams(
                train=train.load(**sizes),
                valid=None if launch.valid is None else launch.valid.load(**sizes),
                test=None if launch.test is None else launch.test.load(**sizes),
            )

        return build_iterators(args, streams, vp_stage=vp_stage)

    provider.is_distributed = True  # type: ignore[attr-defined]
    return provider  # type: ignore[return-value]


@contextmanager
def replaced_provider(training: Sequence[ModuleType], provider: Provider) -> Iterator[list[str]]:
    """While entered, `pretrain` of these modules takes this datasets provider, whatever it is given.

    Gives a list that names the modules whose `pretrain` was called. Raises ConfigError for a release whose `pretrain`
    has no such parameter.
    """
    calls: list[str] = []
    originals = [module.pretrain for module in training]
    for module, original in zip(training, originals, strict=True):
        module.pretrain = _with_provider(original, provider, calls)  # type: ignore[attr-defined]
    try:
        yield calls
    finally:
        for module, original in zip(training, originals, strict=True):
            module.pretrain = original  # type: ignore[attr-defined]


def _with_provider(pretrain: Callable[..., Any], provider: Provider, calls: list[str]) -> Callable[..., Any]:
    signature = inspect.signature(pretrain)
    if PARAMETER not in signature.parameters:
        raise ConfigError(
            f"{pretrain.__module__}.pretrain has no parameter {PARAMETER}; give your script "
            "zephon_megatron.make_provider(...)"
        )

    @wraps(pretrain)
    def with_stream(*args: Any, **kwargs: Any) -> Any:
        # Passed through as they are: releases differ in all but the provider.
        bound = signature.bind(*args, **kwargs)
        bound.arguments[PARAMETER] = provider
        calls.append(pretrain.__module__)
        return pretrain(*bound.args, **bound.kwargs)

    return with_stream


def _training() -> list[ModuleType]:
    """Return the modules that scripts import `pretrain` from."""
    try:
        import megatron.training
        import megatron.training.training
    except ImportError as error:
        raise no_training(error) from error
    return [megatron.training, megatron.training.training]


if __name__ == "__main__":
    raise SystemExit(main())
