"""Where a rank stands in a Megatron layout, and whether it reads data there."""

from __future__ import annotations

from typing import Any

import msgspec

from zephon import ConfigError, Topology

AXES = ("dp", "tp", "pp", "cp")


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's index and the size of each kind of parallelism.

    dp is pure data parallelism: context peers (cp) share one dp_rank, and so get equal micro-batches, as do tensor
    (tp) and pipeline (pp) peers. `vp_stage` is the model chunk among `vp_size` of an interleaved pipeline; None
    without one. Raises ConfigError for an index outside its size.
    """

    dp_rank: int = 0
    dp_size: int = 1
    tp_rank: int = 0
    tp_size: int = 1
    pp_rank: int = 0
    pp_size: int = 1
    cp_rank: int = 0
    cp_size: int = 1
    vp_stage: int | None = None
    vp_size: int | None = None

    def __post_init__(self) -> None:
        for axis in AXES:
            rank, size = getattr(self, f"{axis}_rank"), getattr(self, f"{axis}_size")
            if not 0 <= rank < size:
                raise ConfigError(f"{axis}_rank={rank} is outside 0..{size - 1} ({axis}_size={size})")
        if (self.vp_stage is None) != (self.vp_size is None):
            raise ConfigError(f"vp_stage={self.vp_stage} and vp_size={self.vp_size}: set both or none of them")
        if self.vp_size is not None and not 0 <= (self.vp_stage or 0) < self.vp_size:
            raise ConfigError(f"vp_stage={self.vp_stage} is outside 0..{self.vp_size - 1} (vp_size={self.vp_size})")

    @property
    def topology(self) -> Topology:
        """What a Loader needs to know: the data-parallel rank and size."""
        return Topology(dp_rank=self.dp_rank, dp_size=self.dp_size)

    @property
    def is_first_stage(self) -> bool:
        """Whether the rank (or its model chunk) holds the embedding."""
        return self.pp_rank == 0 and not self.vp_stage

    @property
    def is_last_stage(self) -> bool:
        """Whether the rank (or its model chunk) holds the loss."""
        last_chunk = self.vp_size is None or self.vp_stage == self.vp_size - 1
        return self.pp_rank == self.pp_size - 1 and last_chunk

    @property
    def holder(self) -> int:
        """A number unique among the ranks of one dp_rank: 0 on exactly one of them."""
        return (self.pp_rank * self.cp_size + self.cp_rank) * self.tp_size + self.tp_rank

    def __str__(self) -> str:
        place = ", ".join(f"{axis} {getattr(self, f'{axis}_rank')}/{getattr(self, f'{axis}_size')}" for axis in AXES)
        return place if self.vp_stage is None else f"{place}, vp {self.vp_stage}/{self.vp_size}"


def needs_data(place: Place, *, packed: bool, replicate: bool = False, all_stages: bool = False) -> bool:
    """Return whether a rank takes micro-batches.

    On the first tensor-parallel rank only, because Megatron-LM's get_batch broadcasts to the others; `replicate`:
    on all of them (Megatron-Bridge calls `next` on every rank). On the first and the last pipeline stage; on those
    between them only when rows are `packed`, since attention needs the documents' bounds there, or with
    `all_stages` (layers that predict several tokens ahead, wherever they lie).
    """
    if place.tp_rank and not replicate:
        return False
    return place.is_first_stage or place.is_last_stage or packed or all_stages


def find_place(groups: Any = None, *, vp_stage: int | None = None, vp_size: int | None = None) -> Place:
    """Return this rank's place: from a ProcessGroupCollection (or the like), or from megatron's parallel_state.

    Of `groups` dp, tp, pp and cp are read; what it lacks counts as size 1, except dp. Raises ConfigError where
    neither groups nor parallel_state know the data-parallel group.
    """
    sizes: dict[str, int] = {}
    for axis in AXES:
        group = getattr(groups, axis, None) if groups is not None else None
        if groups is None:
            sizes |= _from_parallel_state(axis)
        elif group is not None:
            sizes |= {f"{axis}_rank": group.rank(), f"{axis}_size": group.size()}
        elif axis == "dp":
            raise ConfigError(f"{type(groups).__name__} has no dp group; set it, since data is sharded over it alone")
    return Place(vp_stage=vp_stage, vp_size=vp_size, **sizes)


def _from_parallel_state(axis: str) -> dict[str, int]:
    from megatron.core import parallel_state

    if not parallel_state.model_parallel_is_initialized():
        raise ConfigError(
            "megatron.core.parallel_state isn't initialised; call initialize_model_parallel first, or pass a Place"
        )
    name = {"dp": "data", "tp": "tensor_model", "pp": "pipeline_model", "cp": "context"}[axis]
    return {
        f"{axis}_rank": getattr(parallel_state, f"get_{name}_parallel_rank")(),
        f"{axis}_size": getattr(parallel_state, f"get_{name}_parallel_world_size")(),
    }
