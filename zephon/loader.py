"""The public door: a loader of one data-parallel rank."""

from __future__ import annotations

import logging
import operator
import os
import threading
import time
import weakref
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn, SupportsIndex

from zephon.advice import advice
from zephon.collate.batch import Batch
from zephon.collate.device import Collator, resolve_device
from zephon.config import Config
from zephon.count import count_with
from zephon.engine.process import ProcessSession
from zephon.engine.session import Delivery, Session, ThreadSession
from zephon.engine.setup import Setup, open_backend, open_indices
from zephon.errors import ConfigError, StateError, StoreError
from zephon.formats.index import SourceIndex
from zephon.plan import lanes_for, make_plan
from zephon.read_config import ConfigLike, load_config
from zephon.read_config_images import inexact_pixels, resize_rule
from zephon.report import Totals, report
from zephon.state.check import check_plan
from zephon.state.starting import check_lanes
from zephon.state.whole import check_state, make_state
from zephon.topology import Topology, lanes_of

LOG = logging.getLogger(__name__)


class Loader:
    """Delivers a rank's micro-batches of the stream, always the same for the same plan and position.

    Iterating gives `Batch`es from the current position on; a finite stream's iterator ends with its pass, and the
    next one gives the next pass. The position is that after the last batch handed out; iterators share it.

    Raises ConfigError for settings that can't work (before any data is read), StateError for states that don't
    belong to the plan or the data, StoreError for bytes that can't be read, DataError for bytes that aren't what
    the format or the stage needs. `len(loader)`, micro-batches a pass, exists for finite streams only.
    Not for use by several threads at once; `close` may come from any.
    """

    def __new__(cls, config: ConfigLike, topology: Topology | None = None) -> Loader:  # noqa: ARG004
        """Make a FiniteLoader where the stream has a length, so that only then `len` exists."""
        finite = cls is Loader and load_config(config).length is not None
        return super().__new__(FiniteLoader if finite else cls)

    def __init__(self, config: ConfigLike, topology: Topology | None = None) -> None:
        self._config: Config = load_config(config)
        if topology is not None and not isinstance(topology, Topology):
            raise ConfigError(f"topology={topology!r} is no Topology; pass zephon.Topology(dp_rank=…, dp_size=…)")
        self._topology = topology or Topology()
        if self._config.lanes is not None or self._config.length is None:
            lanes_of(self._topology, lanes_for(self._config, None))
        self._indices: dict[str, SourceIndex] | None = None
        self._collator = Collator(
            device=resolve_device(self._config.device),
            mask_boundary=self._config.mask_boundary,
            reset_position_ids=self._config.reset_position_ids,
            attention_mask=self._config.attention_mask,
            align=self._config.pack.align,
            resize=resize_rule(self._config),
        )
        self._plan: dict[str, Any] | None = None
        self._session: Session | None = None
        self._closer: Any = None
        self._closed = False
        # The position handed out; that of the state last loaded, and the encoded lanes there.
        self._consumed = self._begun = 0
        self._lanes: dict[int, bytes] = {}
        self._gate = threading.Lock()
        self._owner = os.getpid()
        self._totals = Totals()
        # Counts every state that is loaded, for iterators that were in mid-pass before.
        self._generation = 0

    def __enter__(self) -> Loader:
        """Start the workers, so that the first batch comes sooner."""
        self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Batch]:
        """Return an iterator over the rest of the pass (without an end, for an endless stream)."""
        return _Batches(self)

    if TYPE_CHECKING:
        # Only FiniteLoader has it. Which of the two it is depends on a value, so types can't tell them apart.
        def __len__(self) -> int: ...

    @property
    def config(self) -> Config:
        """The checked configuration."""
        return self._config

    @property
    def topology(self) -> Topology:
        """Which data-parallel rank this is."""
        return self._topology

    @property
    def consumed(self) -> int:
        """Sequences of the stream, over all ranks and passes, up to the last batch handed out."""
        return self._consumed

    @property
    def plan(self) -> Mapping[str, Any]:
        """The canonical plan: all that fixes the order, as plain values."""
        return self._make_plan()

    def state_dict(self, *, consumed: int | None = None) -> dict[str, Any]:
        """Return the rank's state after the last batch handed out, or at `consumed` sequences.

        {"version", "plan", "consumed", "lanes"} of plain values and bytes, without any rank in it. `consumed` is
        the end of one of the last `snapshots` micro-batches, else StateError.
        """
        self._check_open()
        plan = self._make_plan()
        position = self._consumed if consumed is None else _position(consumed)
        if position > self._consumed:
            # An engine process may know the states of batches that nobody has been given.
            raise StateError(
                f"no state at consumed={position}: {self._consumed} sequences were handed out; ask for one up to there"
            )
        if position == self._begun:
            # Known here, also where no session could be made.
            lanes = self._setup(consumed=position).starting_lanes()
        elif self._session is not None:
            lanes = self._session.lanes_at(position)
        else:
            raise StateError(f"no state at consumed={position}: no batch was handed out since {self._consumed}")
        return make_state(plan, position, lanes)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state: any whole one, or a part that has this rank's lanes.

        May be called at any time; iterators that exist already go on from the state. Raises StateError, naming the
        differences, where the state isn't of this plan, is damaged, or lacks a lane; the loader then stays as it was.
        """
        self._check_open()
        check_state(state)
        plan = self._make_plan(saved_lanes=state["plan"]["lanes"])
        finite = plan["length"] is not None
        # Passes count sequences anew, so that no mixture of a finite stream lies wholly ahead.
        check_plan(state["plan"], plan, state["consumed"] if not finite else 1 << 62)
        mine = check_lanes(state, lanes_of(self._topology, plan["lanes"]), plan)
        self._stop()
        self._plan = plan
        self._consumed = self._begun = state["consumed"]
        self._lanes = mine
        self._generation += 1

    def report(self, *, places: bool = True) -> dict[str, Any]:
        """Return what this rank was given since the loader was made, and where its sources are, as plain values.

        `places=False` leaves out `epochs` and `bad_samples`: they take as long as a state_dict() of all lanes.
        """
        state = self.state_dict() if places else {"consumed": self._consumed}
        return report(self._totals, self._make_plan(), state, inexact_pixels=inexact_pixels(self._config))

    def close(self) -> None:
        """Leave no thread, process or shared memory behind; may be called again, by any thread."""
        with self._gate:
            self._closed = True
        self._stop()

    def __reduce__(self) -> NoReturn:
        """Refuse pickles and copies: threads and processes can't be taken along."""
        raise TypeError("a Loader can't be pickled or copied; make it where it is used, from the same configuration")

    def _next(self) -> Batch | None:
        self._start()
        if self._session is None:
            raise StoreError("the loader is closed; make a new one")
        began = time.perf_counter()
        delivery: Delivery | None = self._session.next()
        self._totals.waited(time.perf_counter() - began)
        if delivery is None:
            return None
        if delivery.start != self._consumed:
            raise StateError(
                f"the batch from consumed={self._consumed} was lost in an interruption; "
                "load the last state_dict() to have it again"
            )
        batch = self._collator.hand_over(delivery.batch)
        self._consumed = delivery.consumed
        room = batch["tokens"].shape[0] * (self._config.sequence_length + 1)
        self._totals.add(delivery.counts, room, host_bytes=batch.host_bytes)
        return batch

    def _start(self) -> None:
        self._check_open()
        if self._session is not None:
            return
        session: Session
        if self._config.engine == "process":
            session = ProcessSession(self._setup(), self._collator.build)
        else:
            session = self._thread_session()
        with self._gate:
            # Another thread may have closed the loader meanwhile.
            if not self._closed:
                self._session = session
                self._owner = os.getpid()
                self._totals.restart()
                # Also when the loader is forgotten or the interpreter ends.
                self._closer = weakref.finalize(self, session.close)
        if self._session is None:
            session.close()
            self._check_open()

    def _thread_session(self) -> Session:
        if self._config.length == "count":
            # Counting has workers of its own.
            self._make_plan()
        # Before index and plan, because workers take longest to be ready.
        backend = open_backend(self._config)
        try:
            return ThreadSession(self._setup(), self._open(), backend, self._collator.build)
        except BaseException:
            backend.close()
            raise

    def _stop(self) -> None:
        self._session = None
        if self._closer is not None:
            self._closer()
            self._closer = None

    def _setup(self, *, consumed: int | None = None) -> Setup:
        plan = self._make_plan()
        return Setup(
            config=self._config,
            topology=self._topology,
            num_lanes=plan["lanes"],
            length=plan["length"],
            pad_id=plan["tokenizer"]["pad"] if plan["tokenizer"] else 0,
            consumed=self._consumed if consumed is None else consumed,
            lanes=self._lanes,
        )

    def _open(self) -> dict[str, SourceIndex]:
        if self._indices is None:
            self._indices = open_indices(self._config)
        return self._indices

    def _make_plan(self, *, saved_lanes: int | None = None) -> dict[str, Any]:
        """Return the plan; the lanes of a state count only where the configuration doesn't say."""
        lanes = lanes_for(self._config, saved_lanes)
        if self._plan is None or (saved_lanes is not None and self._plan["lanes"] != lanes):
            indices = self._open()
            # Topology before counting: that may take long.
            lanes_of(self._topology, lanes)
            length = self._config.length
            counted = None
            if length == "count":
                counted = count_with(self._config, indices, lanes)
                length = counted.rows
            plan = make_plan(self._config, indices, lanes, length)
            if saved_lanes is not None:
                return plan
            self._plan = plan
            if self._topology.dp_rank == 0:
                for line in advice(self._config, indices, lanes, counted=counted):
                    LOG.warning("%s", line)
        return self._plan

    def _check_open(self) -> None:
        if self._closed:
            raise StoreError("the loader is closed; make a new one")
        if self._session is not None and self._owner != os.getpid():
            raise StoreError(
                "this loader was started before the process forked, and its threads stayed behind; "
                "make a new loader in the child and load the state into it"
            )


def _position(consumed: object) -> int:
    """Return a number of sequences as a plain int: what goes into a state has to come out of it."""
    if isinstance(consumed, SupportsIndex) and not isinstance(consumed, bool):
        return operator.index(consumed)
    raise StateError(f"consumed={consumed!r} is no number of sequences; pass an int")


class FiniteLoader(Loader):
    """A loader of a finite stream: it has a length."""

    def __len__(self) -> int:
        """Return the number of micro-batches that every rank is given in a whole pass."""
        step = self._topology.dp_size * self._config.micro_batch_size
        return -(-int(self._make_plan()["length"]) // step)


class _Batches:
    """An iterator over the rest of a pass; it has no effect before its first `next`."""

    def __init__(self, loader: Loader) -> None:
        self._loader = loader
        self._ended_in: int | None = None

    def __iter__(self) -> _Batches:
        return self

    def __next__(self) -> Batch:
        loader = self._loader
        # A state loaded later makes an iterator go on that had ended.
        if self._ended_in == loader._generation:
            raise StopIteration
        batch = loader._next()
        if batch is None:
            self._ended_in = loader._generation
            raise StopIteration
        return batch
