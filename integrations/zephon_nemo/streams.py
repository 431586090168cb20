"""Streams for Megatron-Bridge's loop: settings of its configuration, iterators, and restoring. No Bridge import."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
from torch import Tensor
from torch.distributed import ProcessGroup
from zephon_megatron.arguments import evaluation_config
from zephon_megatron.batch import Form
from zephon_megatron.iterator import STREAM, IdleIterator, ZephonIterator
from zephon_megatron.launch_yaml import StreamSettings
from zephon_megatron.rerun import saves_a_step_under_way, will_replay
from zephon_megatron.restore import check_counter, read_state
from zephon_megatron.topology import Place, find_place, needs_data
from zephon_torch.gather import host_group, raise_together

from zephon import Config, ConfigError, StateError, ZephonError, load_config
from zephon.tokenizer import tokenizer_plan
from zephon_nemo.batch import bridge_batch

FOLDER = "zephon"
# Where Bridge's maybe_save_dataloader_state puts the state of data-parallel rank 0, which is the whole one here.
FILE = "iter_{step:07d}/train_dataloader_dprank000.pt"

Given = tuple[str | None, tuple[str, ...]]


class BridgeIterator:
    """Gives a rank's micro-batches for ever, as Bridge's get_batch wants them.

    It has no `restore_state`: Bridge would call it with one file a rank, and refuse another number of ranks. The
    stream is at its place before Bridge sees the iterator.
    """

    def __init__(self, inner: ZephonIterator) -> None:
        self._inner = inner

    def __iter__(self) -> BridgeIterator:
        return self

    def __next__(self) -> dict[str, Tensor]:
        return bridge_batch(next(self._inner))

    @property
    def inner(self) -> ZephonIterator:
        """The iterator of zephon_megatron behind, which has the loader."""
        return self._inner

    def save_state(self) -> dict[str, Any]:
        """Return the whole state; a collective over the data-parallel group (see `ZephonIterator.save_state`)."""
        return self._inner.save_state()

    def close(self) -> None:
        """Stop the loader's threads and processes."""
        self._inner.close()


Data = BridgeIterator | IdleIterator | None


class Streams(msgspec.Struct, frozen=True, kw_only=True):
    """What ZephonDatasetConfig says; streams are (configuration file, overrides)."""

    train: Given
    valid: Given | None = None
    test: Given | None = None
    packed: bool = False
    reset_position_ids: bool = False
    eod_mask_loss: bool = False
    begins_at: int = 0
    load: str | None = None


class Built(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's iterators, and the folder that the stream's states go to by default."""

    train: Data
    valid: Data
    test: Data
    save: str | None


def stream_of(config: str | None, overrides: Sequence[str], cfg: Any = None) -> Config:
    """Return a stream's checked configuration; one without a file takes two sizes from Bridge's `cfg`."""
    if config is not None or cfg is None:
        return load_config({} if config is None else config, overrides)
    sizes = {"sequence_length": cfg.model.seq_length, "global_batch_size": cfg.train.global_batch_size}
    return StreamSettings(overrides=tuple(overrides)).load(**sizes)


def build_streams(streams: Streams, state: Any, groups: Any) -> Built:
    """Return a rank's iterators; `state` is Bridge's GlobalState, `groups` its ProcessGroupCollection.

    A collective over all ranks: an error on one of them is raised on all.
    """
    place = find_place(groups)
    everyone, dp_group = host_group(None), host_group(groups.dp if groups is not None else None)
    made: list[Data] = []
    failure: Exception | None = None
    try:
        _build(made, streams, state, place, dp_group)
    except Exception as error:  # noqa: BLE001 - raised below, once the other ranks know
        failure = error
    known = failure
    if failure is not None and not isinstance(failure, ZephonError):
        known = ZephonError(f"rank at {place}: {type(failure).__name__}: {' '.join(str(failure).split())}")
        known.__cause__ = failure
    try:
        raise_together(known if isinstance(known, ZephonError) else None, group=everyone)
    except ZephonError:
        for one in made:
            if one is not None:
                one.close()
        raise
    folder = state.cfg.checkpoint.save
    return Built(train=made[0], valid=made[1], test=made[2], save=str(Path(folder) / FOLDER) if folder else None)


def _build(made: list[Data], streams: Streams, state: Any, place: Place, dp_group: ProcessGroup | None) -> None:
    cfg = state.cfg
    train = _checked(streams.train, cfg)
    if train.length is not None:
        raise ConfigError(f"length={train.length}, but Megatron-Bridge trains on an endless stream; set length: null")
    micro_batch_size = cfg.train.micro_batch_size
    evaluation_size = cfg.validation.eval_micro_batch_size or micro_batch_size
    if streams.packed and (micro_batch_size, evaluation_size) != (1, 1):
        raise ConfigError(
            f"packed batches have one row, but micro_batch_size is {micro_batch_size} (evaluation: {evaluation_size}); "
            "set them to 1, or dataset.packed to false"
        )
    if cfg.validation.eval_iters and streams.valid is None:
        raise ConfigError(
            f"validation.eval_iters is {cfg.validation.eval_iters}, but there is no validation stream; set "
            "dataset.valid_config, or validation.eval_iters to 0"
        )
    done = state.train_state.consumed_train_samples
    if done < streams.begins_at:
        raise ConfigError(
            f"dataset.begins_at={streams.begins_at}, but only {done} samples were consumed; set it to the run's "
            "consumed_train_samples when it turned to this stream"
        )
    form = Form(
        packed=streams.packed,
        reset_position_ids=streams.reset_position_ids,
        eod_token=_eod(train) if streams.eod_mask_loss else None,
        cp_size=place.cp_size,
    )
    if cfg.validation.skip_train or not _reads(place, streams, cfg):
        made.append(IdleIterator())
    else:
        made.append(_training(train, form, streams, state, place, dp_group))
    # Evaluation may have a context-parallel size, and so data-parallel ranks, of its own.
    eval_groups = getattr(state, "_eval_pgs", None)
    eval_place = place if eval_groups is None else find_place(eval_groups)
    for given in (streams.valid, streams.test):
        if given is None:
            made.append(None)
        elif not _reads(eval_place, streams, cfg):
            made.append(IdleIterator())
        else:
            config = _evaluation(_checked(given, cfg), cfg)
            eval_form = msgspec.structs.replace(form, cp_size=eval_place.cp_size)
            inner = ZephonIterator(config, eval_place, form=eval_form, micro_batch_size=evaluation_size)
            made.append(BridgeIterator(inner))
    for one in made:
        if isinstance(one, BridgeIterator):
            one.inner.check()


def _training(
    config: Config, form: Form, streams: Streams, state: Any, place: Place, dp_group: ProcessGroup | None
) -> BridgeIterator:
    trained = state.train_state
    inner = ZephonIterator(
        config,
        place,
        form=form,
        micro_batch_size=state.cfg.train.micro_batch_size,
        group=dp_group,
        counter=lambda: int(trained.consumed_train_samples) - streams.begins_at,
        replaying=saves_a_step_under_way,
    )
    if trained.consumed_train_samples > streams.begins_at:
        saved = find_state(_folders(streams, state.cfg.checkpoint), step=trained.step)
        consumed = trained.consumed_train_samples
        check_counter(saved, consumed=consumed, begins_at=streams.begins_at, replays=will_replay)
        inner.load_state_dict(saved[STREAM])
    return BridgeIterator(inner)


def find_state(folders: Sequence[str], *, step: int) -> dict[str, Any]:
    """Return what `save_state` gave for a step's checkpoint, from the first of the folders that has it.

    Raises StateError, naming the places, where none has it, and where a file isn't Zephon's.
    """
    paths = [Path(folder) / FILE.format(step=step) for folder in folders]
    for path in paths:
        if path.is_file():
            return read_state(path)
    raise StateError(
        f"the checkpoint of step {step} has no state of the stream (looked for "
        f"{', '.join(map(str, paths)) or 'nowhere'}); set dataset.dataloader_load to the folder that has it, or load "
        "an earlier checkpoint"
    )


def _folders(streams: Streams, checkpoint: Any) -> list[str]:
    if streams.load:
        return [streams.load]
    found = []
    for folder in (checkpoint.load, checkpoint.save):
        if folder:
            root = Path(folder)
            # Bridge also loads a single iteration's folder; the stream's state lies beside it.
            root = root.parent if root.name.startswith("iter_") else root
            found.append(str(root / FOLDER))
    return list(dict.fromkeys(found))


def _reads(place: Place, streams: Streams, cfg: Any) -> bool:
    # Layers that predict several tokens ahead may lie on any stage.
    several = bool(getattr(cfg.model, "mtp_num_layers", None))
    # Bridge doesn't broadcast: each tensor-parallel rank takes its own.
    return needs_data(place, packed=streams.packed, replicate=True, all_stages=several)


def _checked(given: Given, cfg: Any) -> Config:
    config = stream_of(*given, cfg)
    if config.sequence_length != cfg.model.seq_length:
        raise ConfigError(
            f"sequence_length={config.sequence_length}, but model.seq_length is {cfg.model.seq_length}; set both to "
            "the same"
        )
    return config


def _evaluation(config: Config, cfg: Any) -> Config:
    names = SimpleNamespace(
        seq_length=cfg.model.seq_length,
        eval_iters=cfg.validation.eval_iters,
        eval_global_batch_size=cfg.validation.eval_global_batch_size,
        global_batch_size=cfg.train.global_batch_size,
    )
    return evaluation_config(names, config)


def _eod(config: Config) -> int:
    eod = None if config.tokenizer is None else tokenizer_plan(config.tokenizer)["eos"]
    if eod is None:
        raise ConfigError("dataset.eod_mask_loss needs to know the token that ends a document; set tokenizer.eos")
    return int(eod)
