"""The data module: streams for the Trainer's loops, and their whole state in its checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from lightning.pytorch import LightningDataModule, Trainer
from msgspec.structs import replace
from torch.distributed import ProcessGroup
from zephon_torch.gather import gather_state, host_group

from zephon import Config, ConfigError, Loader, StateError, Topology, load_config
from zephon_lightning.lanes import LanesState
from zephon_lightning.loaders import StatefulFiniteStream, StatefulStream
from zephon_lightning.replay import advance
from zephon_lightning.stream import FiniteStream, FixedStream, Stream
from zephon_lightning.topology import FindTopology, device_of, topology_of
from zephon_lightning.trainer import check_trainer, insert_callback

VERSION = 1
FIELDS = ("version", "train", "val", "unit", "ahead", "epoch_began", "stepped")


class ZephonDataModule(LightningDataModule):
    """Gives a Trainer the stream, and every checkpoint of its the exact position, for any number of ranks.

    config       the training stream: a YAML file, a mapping, or a zephon.Config
    val_config   the validation stream, which needs a `length`; test_config the same for `trainer.test`
    validation   fixed: the same rows each time; continue: each run goes on where the last one ended
    overrides    changes to `config`, as "backend.kind=threads"
    topology     a rank's place, where the strategy doesn't know it: a Topology, or a function of the Trainer
    log          log tokens/s, packing, mixture, epochs and waiting under "zephon/…" every log_every_n_steps

    The state in a checkpoint is that after the micro-batch that the trainer processed last; it is whole, without
    any rank in it, and loads with weights_only=True. Raises ConfigError for settings that can't work and, from
    `load_state_dict`, StateError for a state of another plan.
    """

    def __init__(
        self,
        config: str | Path | dict[str, Any] | Config,
        *,
        val_config: str | Path | dict[str, Any] | Config | None = None,
        test_config: str | Path | dict[str, Any] | Config | None = None,
        validation: Literal["fixed", "continue"] = "fixed",
        overrides: Sequence[str] = (),
        topology: Topology | FindTopology | None = None,
        log: bool = True,
    ) -> None:
        super().__init__()
        if validation not in ("fixed", "continue"):
            raise ConfigError(f"validation={validation!r} is unknown; use 'fixed' or 'continue'")
        self.config: Config = load_config(config, tuple(overrides))
        self.val_config = None if val_config is None else _finite(val_config, "val_config", validation == "fixed")
        self.test_config = None if test_config is None else _finite(test_config, "test_config", True)
        self.log_metrics = log
        self._fixed = validation == "fixed"
        self._topology = topology
        self._group: ProcessGroup | None = None
        self._train: Stream | None = None
        self._val: Stream | FixedStream | None = None
        self._test: FixedStream | None = None
        # Where a continuing validation stopped, and the rank whose part of the state that is.
        self._val_kept: tuple[Topology, dict[str, Any]] | None = None
        self._trained_by: Trainer | None = None
        # Loaded before there was a loader to load it into.
        self._pending: Mapping[str, Any] | None = None
        # The last whole state: what a rank alone can say when the others may be gone.
        self._anchor: dict[str, Any] | None = None
        # Where the trainer's epoch began, and whether its gradients were applied up to the position.
        self.epoch_began = 0
        self.stepped = True
        # Lightning asks whether these are overridden, and warns of loaders for which the model has no step.
        for name, given in (("val_dataloader", val_config), ("test_dataloader", test_config)):
            if given is None:
                setattr(self, name, getattr(super(), name))

    @property
    def train_stream(self) -> Stream | None:
        """The training stream; None before `setup`."""
        return self._train

    @property
    def val_stream(self) -> Stream | FixedStream | None:
        """The validation stream; None before `setup` and without val_config."""
        return self._val

    @property
    def stateful(self) -> LanesState:
        """A Stateful for a program's own saves with torch.distributed.checkpoint: one key a lane, none a rank.

        Save at any micro-batch's end; load in `on_fit_start`, for a Trainer without ckpt_path. The trainer's epoch
        then begins at the position, so of a finite stream save at a pass's end. Raises ConfigError before
        `setup("fit")`, and where `lanes` isn't set.
        """
        if self._train is None:
            raise ConfigError("there is no training stream yet: use module.stateful in on_fit_start or later")
        return LanesState(self._train, loaded=self._begin_here)

    def prepare_data(self) -> None:
        """Build the indices once a node, before the ranks want them."""
        for config in (self.config, self.val_config, self.test_config):
            if config is not None:
                with Loader(replace(config, device="cpu")) as loader:
                    _ = loader.plan

    def setup(self, stage: str) -> None:
        """Make the loaders that a stage needs; Lightning calls it on every rank.

        Raises ConfigError for a Trainer with two ZephonCheckpoints, and for a fit with overfit_batches.
        """
        trainer = self.trainer
        check_trainer(trainer, stage)
        self._group = host_group()
        if stage == "fit":
            kept = None
            if trainer is not None and trainer is self._trained_by:
                # After an exception Lightning leaves everything as it was, and the stream knows best.
                kept = self._anchor if self._train is None else self.state_dict()
            self._trained_by = trainer
            self._close_train()
            loader = self._loader(self.config)
            kind = StatefulStream if self.config.length is None else StatefulFiniteStream
            self._train = kind(loader, self)
            self._anchor = None
            if kept is not None and self._pending is None:
                self._pending = kept
        if stage in ("fit", "validate"):
            insert_callback(trainer)
            self._setup_validation()
        if stage == "test" and self.test_config is not None and self._test is None:
            self._test = FixedStream(self._loader(self.test_config))
        if self._pending is not None and self._train is not None:
            pending, self._pending = self._pending, None
            self.load_state_dict(pending)

    def train_dataloader(self) -> Stream:
        """Return the training stream; always the same object, so that reloading it loses nothing."""
        if self._train is None:
            self.setup("fit")
        stream: Any = self._train
        if self.trainer is not None:
            stream.rolls = self.trainer.limit_train_batches != 1.0
        return stream  # type: ignore[no-any-return]

    def val_dataloader(self) -> Any:
        """Return the validation stream."""
        return [] if self._val is None else self._val

    def test_dataloader(self) -> Any:
        """Return the test stream."""
        return [] if self._test is None else self._test

    def state_dict(self) -> dict[str, Any]:
        """Return the whole state after what was processed: a collective, but for interrupted trainers and at rest.

        An interrupted trainer's ranks may be gone: then it is the last whole state and how many sequences were
        processed since, which are read again when it is loaded.
        """
        if self._train is None:
            return dict(self._anchor or self._pending or {})
        if self.trainer is None and self._train.fetched:
            raise StateError(
                "a Trainer iterates the module's loader without the module, so that nobody counts what was trained; "
                "call trainer.fit(model, datamodule=module)"
            )
        alone = self._train.loader.topology.dp_size == 1
        if self._anchor is not None and ((self._interrupted and not alone) or self._at_anchor(self._train)):
            return {
                **self._anchor,
                "ahead": self._train.consumed - self._anchor["train"]["consumed"],
                "epoch_began": self.epoch_began,
                "stepped": self.stepped,
            }
        if self._interrupted and not alone:
            raise StateError("the run was interrupted before its first step; there is nothing to save, start anew")
        self._anchor = self._gather(self._train)
        return dict(self._anchor)

    def load_state_dict(self, state_dict: dict[str, Any] | Mapping[str, Any]) -> None:
        """Go on from a state, now or as soon as there is a loader; also where iterators exist already."""
        if not state_dict:
            return
        state = None if self.trainer is None else self.trainer.state
        if state is not None and state.fn not in ("fit", None) and state.status == "running":
            # Weights alone are wanted of it: what is fitted later begins anew.
            return
        if state_dict.get("version") != VERSION or not set(FIELDS) <= set(state_dict):
            raise StateError(f"no state of ZephonDataModule (it has: {', '.join(map(str, state_dict))})")
        if self._train is None:
            self._pending = state_dict
            return
        train = state_dict["train"]
        ahead = state_dict["ahead"]
        if ahead:
            train = advance(self.config, self._train.loader.topology, train, ahead)
        self._train.load(train)
        self.epoch_began, self.stepped = state_dict["epoch_began"], state_dict["stepped"]
        if isinstance(self._val, Stream) and state_dict["val"] is not None:
            self._val.load(state_dict["val"])
        self._anchor = {**state_dict, "unit": self.unit} if not ahead else None

    @property
    def unit(self) -> int:
        """Sequences that all ranks together take with one micro-batch each."""
        if self._train is None:
            return self.config.micro_batch_size
        return self._train.loader.topology.dp_size * self.config.micro_batch_size

    def remember(self) -> None:
        """Take a whole state, for when a rank has to save alone; a collective."""
        if self._train is not None:
            self.state_dict()

    def on_exception(self, exception: BaseException) -> None:
        """Stop threads and workers after a run that failed; what can be saved and gone on with stays the same."""
        for stream in (self._train, self._val, self._test):
            if stream is not None:
                stream.rest()

    def teardown(self, stage: str) -> None:
        """Stop threads and workers; the state stays to be had."""
        if stage == "fit":
            self._close_train()
        if self._val is not None and stage in ("fit", "validate"):
            if isinstance(self._val, Stream) and not self._interrupted:
                self._val_kept = (self._val.loader.topology, self._val.part())
            self._val.loader.close()
            self._val = None
        if self._test is not None and stage == "test":
            self._test.loader.close()
            self._test = None

    def _begin_here(self) -> None:
        self._anchor, self.stepped = None, True
        self.epoch_began = 0 if self._train is None else self._train.consumed

    @property
    def _interrupted(self) -> bool:
        return self.trainer is not None and bool(self.trainer.interrupted)

    def _at_anchor(self, train: Stream) -> bool:
        return self._anchor is not None and self._anchor["train"]["consumed"] == train.consumed and not self._val_moves

    @property
    def _val_moves(self) -> bool:
        # Its position may have changed while the training stream's didn't.
        return isinstance(self._val, Stream)

    def _gather(self, train: Stream) -> dict[str, Any]:
        val = self._val if isinstance(self._val, Stream) else None
        return {
            "version": VERSION,
            "train": gather_state(train.part_or_error(), group=self._group),
            "val": None if val is None else gather_state(val.part_or_error(), group=self._group),
            "unit": self.unit,
            "ahead": 0,
            "epoch_began": self.epoch_began,
            "stepped": self.stepped,
        }

    def _setup_validation(self) -> None:
        if self.val_config is None or self._val is not None:
            return
        loader = self._loader(self.val_config)
        if self._fixed:
            self._val = FixedStream(loader)
            return
        self._val = FiniteStream(loader)
        if self._val_kept is not None and self._val_kept[0] == loader.topology:
            self._val.load(self._val_kept[1])

    def _loader(self, config: Config) -> Loader:
        device = device_of(self.trainer) if config.device == "auto" else config.device
        return Loader(replace(config, device=device), self._find_topology())

    def _find_topology(self) -> Topology:
        if isinstance(self._topology, Topology):
            return self._topology
        if self._topology is None:
            return topology_of(self.trainer)
        if self.trainer is None:
            raise ConfigError("topology is a function of the Trainer, and there is none; pass a Topology")
        return self._topology(self.trainer)

    def _close_train(self) -> None:
        if self._train is not None:
            self._train.loader.close()
            self._train = None


def _finite(config: str | Path | dict[str, Any] | Config, name: str, fixed: bool) -> Config:
    """Return the configuration of a finite stream; `fixed` ones give the same rows in every pass."""
    loaded = load_config(config)
    if loaded.length is None:
        raise ConfigError(f"{name} has no length, so a validation run would never end; set length: N or length: count")
    return replace(loaded, restart=True) if fixed else loaded
