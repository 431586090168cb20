"""Datasets providers for Megatron-LM's `pretrain`, and for loops that are built like it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import msgspec
import torch.distributed as dist
from torch.distributed import ProcessGroup
from zephon_torch.gather import host_group, raise_together

from zephon import Config, ConfigError, ZephonError, load_config
from zephon.read_config import ConfigLike
from zephon_megatron.arguments import (
    check_arguments,
    evaluation_config,
    form_of,
    is_packed,
    load_folders,
    save_folder,
    training_config,
)
from zephon_megatron.iterator import STREAM, IdleIterator, ZephonIterator
from zephon_megatron.lists import save_from_lists
from zephon_megatron.rerun import saves_a_step_under_way, will_replay
from zephon_megatron.restore import check_counter, find_state
from zephon_megatron.topology import Place, find_place, needs_data

Data = ZephonIterator | IdleIterator | None


class Provider(Protocol):
    """What Megatron-LM calls to have its data, on every rank; `is_distributed` says so."""

    is_distributed: bool

    def __call__(
        self, train_val_test_num_samples: Sequence[int], vp_stage: int | None = None
    ) -> tuple[Data, Data, Data]: ...


class Streams(msgspec.Struct, frozen=True, kw_only=True):
    """The configurations of the streams; validation and test may be left out."""

    train: Config
    valid: Config | None = None
    test: Config | None = None


def train_valid_test_datasets_provider(
    train_val_test_num_samples: Sequence[int],  # noqa: ARG001 - endless: it doesn't matter how many
    vp_stage: int | None = None,
) -> tuple[Data, Data, Data]:
    """Give Megatron-LM's `pretrain` its data, by the options that `add_zephon_arguments` adds.

    Restores by itself where the trainer has consumed samples: raises StateError on all ranks where the state is
    missing, of another plan, or not at the trainer's position; ConfigError for settings that can't work together.
    """
    args = megatron_args()
    return build_iterators(args, lambda: _streams(args), vp_stage=vp_stage)


train_valid_test_datasets_provider.is_distributed = True  # type: ignore[attr-defined]


def make_provider(
    config: ConfigLike,
    *,
    valid_config: ConfigLike | None = None,
    test_config: ConfigLike | None = None,
    get_args: Callable[[], Any] | None = None,
    groups: Any = None,
    replicate: bool = False,
) -> Provider:
    """Return a datasets provider of these streams, as `train_valid_test_datasets_provider` but without its options.

    `get_args` returns Megatron-LM's arguments (default: megatron.training.get_args). `groups`, a
    ProcessGroupCollection, says where the rank stands (default: megatron's parallel_state). `replicate` gives data
    to every tensor-parallel rank, for a get_batch that doesn't broadcast.
    """

    def provider(
        train_val_test_num_samples: Sequence[int],  # noqa: ARG001 - endless: it doesn't matter how many
        vp_stage: int | None = None,
    ) -> tuple[Data, Data, Data]:
        args = megatron_args() if get_args is None else get_args()
        return build_iterators(
            args,
            lambda: Streams(
                train=load_config(config),
                valid=None if valid_config is None else load_config(valid_config),
                test=None if test_config is None else load_config(test_config),
            ),
            vp_stage=vp_stage,
            groups=groups,
            replicate=replicate,
        )

    provider.is_distributed = True  # type: ignore[attr-defined]
    return provider  # type: ignore[return-value]


def build_iterators(
    args: Any,
    streams: Callable[[], Streams],
    *,
    vp_stage: int | None = None,
    groups: Any = None,
    replicate: bool = False,
) -> tuple[Data, Data, Data]:
    """Return this rank's iterators for training, validation and test, the first at the trainer's position.

    A collective over all ranks: an error on one of them is raised on all. `args.dataloader_save` is set where
    states go without it being said, and Megatron-LM's saving is taught lists if there are model chunks.
    """
    place = find_place(groups, vp_stage=vp_stage, vp_size=_chunks(args, vp_stage))
    everyone, dp_group = _host_groups(groups)
    made: tuple[Data, Data, Data] = (None, None, None)
    failure: Exception | None = None
    try:
        made = _build(args, streams(), place, dp_group, replicate=replicate)
    except Exception as error:  # noqa: BLE001 - raised below, once the other ranks know
        failure = error
    known = failure if failure is None or isinstance(failure, ZephonError) else _named(failure, place)
    try:
        raise_together(known, group=everyone)
    except ZephonError:
        for iterator in made:
            if iterator is not None:
                iterator.close()
        raise
    args.dataloader_save = save_folder(args)
    if vp_stage is not None:
        _teach_lists()
    return made


def _build(
    args: Any, streams: Streams, place: Place, dp_group: ProcessGroup | None, *, replicate: bool
) -> tuple[Data, Data, Data]:
    check_arguments(args)
    if getattr(args, "eval_iters", 0) and streams.valid is None:
        raise ConfigError(
            f"eval_iters is {args.eval_iters}, but there is no validation stream; give one (valid_config, on the "
            "command line --zephon-valid-config), or set eval_iters to 0"
        )
    train = training_config(args, streams.train)
    form = form_of(args, train)
    begins_at = getattr(args, "zephon_begins_at", 0)
    # Layers that predict several tokens ahead may lie on any stage.
    all_stages = bool(getattr(args, "mtp_num_layers", None))
    reads = needs_data(place, packed=is_packed(args), replicate=replicate, all_stages=all_stages)
    if args.consumed_train_samples < begins_at:
        raise ConfigError(
            f"the stream begins at consumed_train_samples={begins_at}, but only {args.consumed_train_samples} were "
            "consumed; set zephon_begins_at (begins_at in a YAML's data section, --zephon-begins-at on the command "
            "line) to where the run turned to this stream"
        )
    if not reads:
        nothing = None if place.tp_rank else IdleIterator()
        return nothing, nothing if streams.valid else None, nothing if streams.test else None
    micro_batch_size = args.micro_batch_size
    eval_size = getattr(args, "eval_micro_batch_size", None) or micro_batch_size
    training: ZephonIterator | IdleIterator = IdleIterator()
    if not getattr(args, "skip_train", False):
        training = ZephonIterator(
            train,
            place,
            form=form,
            micro_batch_size=micro_batch_size,
            group=dp_group,
            counter=lambda: int(args.consumed_train_samples) - begins_at,
            replaying=saves_a_step_under_way,
        )
        if args.consumed_train_samples > begins_at:
            saved = find_state(load_folders(args), iteration=args.iteration)
            check_counter(saved, consumed=args.consumed_train_samples, begins_at=begins_at, replays=will_replay)
            training.load_state_dict(saved[STREAM])
    others = [
        None
        if config is None
        else ZephonIterator(evaluation_config(args, config), place, form=form, micro_batch_size=eval_size)
        for config in (streams.valid, streams.test)
    ]
    for iterator in (training, *others):
        if isinstance(iterator, ZephonIterator):
            iterator.check()
    return training, others[0], others[1]


def _host_groups(groups: Any) -> tuple[ProcessGroup | None, ProcessGroup | None]:
    """Return groups that move CPU objects: of all ranks, and of the data-parallel ones."""
    if not dist.is_available() or not dist.is_initialized():
        return None, None
    dp_group = None if groups is None else groups.dp
    if dp_group is None:
        from megatron.core import parallel_state

        dp_group = parallel_state.get_data_parallel_group()
    return host_group(None), host_group(dp_group)


def _named(error: Exception, place: Place) -> ZephonError:
    named = ZephonError(f"rank at {place}: {type(error).__name__}: {' '.join(str(error).split())}")
    named.__cause__ = error
    return named


def _chunks(args: Any, vp_stage: int | None) -> int | None:
    return None if vp_stage is None else int(args.virtual_pipeline_model_parallel_size)


def megatron_args() -> Any:
    """Return Megatron-LM's arguments. Raises ConfigError where it can't be imported."""
    try:
        from megatron.training import get_args
    except ImportError as error:
        raise no_training(error) from error
    return get_args()


def no_training(error: ImportError) -> ConfigError:
    """Return what to say where megatron.training can't be imported."""
    return ConfigError(
        f"megatron.training can't be imported ({' '.join(str(error).split())}); put Megatron-LM's folder on "
        "PYTHONPATH, run a script that lies in it, or pip install a megatron-core that has it (0.19.2 does)"
    )


def _teach_lists() -> None:
    try:
        from megatron.training import checkpointing
    except ImportError:
        # A loop of the user's own, which saves what it likes.
        return
    save_from_lists(checkpointing)


def _streams(args: Any) -> Streams:
    if not getattr(args, "zephon_config", None):
        raise ConfigError(
            "no configuration of the training stream is given; pass --zephon-config (with add_zephon_arguments as "
            "extra_args_provider), or give pretrain make_provider(config)"
        )
    return Streams(
        train=load_config(args.zephon_config, args.zephon_set),
        valid=load_config(args.zephon_valid_config) if args.zephon_valid_config else None,
        test=load_config(args.zephon_test_config) if args.zephon_test_config else None,
    )
