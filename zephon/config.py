"""The configuration: frozen structs, unknown fields forbidden. Reading and checks are in read_config.py."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

Positive = Annotated[int, Meta(ge=1)]
NonNegative = Annotated[int, Meta(ge=0)]


class Struct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of every node of the configuration: frozen, keyword-only, strict."""


class Source(Struct, frozen=True, kw_only=True):
    """A named corpus.

    path           shard, directory, glob or brace expansion, or a list of these; order counts
    weight         share of the mixture, > 0, read as a decimal; unset: joins by a schedule entry
    stage          {kind: text | tokens | chat | function | image_text | interleaved | video, ...}; see their fields
    epochs         passes over the source; null: endless
    format         auto (by name) | tar | jsonl | parquet
    block_samples  at most so many samples a block
    block_bytes    about so many bytes a block
    """

    path: str | list[str]
    weight: float | str | None = None
    stage: dict[str, Any] = msgspec.field(default_factory=lambda: {"kind": "text"})
    epochs: Positive | None = None
    format: str = "auto"
    block_samples: Annotated[int, Meta(ge=1, le=4096)] = 64
    block_bytes: Annotated[int, Meta(ge=1024)] = 1 << 20


class Entry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"from_": "from"}):
    """A mixture that replaces the one before it.

    from     it governs pulls made while a lane's next sequence number is at least this
    weights  by source name, > 0; a source left out is off
    """

    from_: Positive
    weights: dict[str, float | str]


class Mix(Struct, frozen=True, kw_only=True):
    """How sources are mixed.

    by        tokens | samples: what a pull is charged by
    schedule  later mixtures, in increasing `from`
    """

    by: Literal["tokens", "samples"] = "tokens"
    schedule: tuple[Entry, ...] = ()


class Tokenizer(Struct, frozen=True, kw_only=True):
    """A tokenizer.json and its special tokens.

    path    tokenizer.json, or a folder that holds one
    eos     token put after each document
    bos     token put before each document where the stage asks for it
    pad     token that fills rows; null: eos, or 0 without one
    engine  auto | hf | fastokens; never changes the ids
    """

    path: str
    eos: str | None = None
    bos: str | None = None
    pad: str | None = None
    engine: Literal["auto", "hf", "fastokens"] = "auto"


class Pack(Struct, frozen=True, kw_only=True):
    """How documents become rows of sequence_length + 1 tokens.

    kind         best_fit | best_fit_split | concat | pad | first_fit
    pool         documents that wait in a lane (best_fit, best_fit_split, first_fit)
    long         split | truncate | drop: documents longer than a row
    align        documents start at multiples of it in a row (context parallelism needs 2 * cp)
    homogeneous  none | source | group | {group: [sources]}: rows hold documents of one group only
    max_age      rows after which a waiting group is emitted; null: 4 * pool
    budgets      {metadata: most of it a row}: a row takes no document that would put it over one (best_fit)
    """

    kind: str = "best_fit"
    pool: Positive = 32
    long: Literal["split", "truncate", "drop"] = "split"
    align: Positive = 1
    homogeneous: str | dict[str, list[str]] = "none"
    max_age: Positive | None = None
    budgets: dict[str, Positive] = {}


class OperatorConfig(Struct, frozen=True, kw_only=True):
    """A stateful part of every lane, before the packer.

    kind     shuffle, or your own class as module:Class
    options  its keyword arguments
    version  part of the plan: change it when your code changes what it does
    """

    kind: str
    options: dict[str, Any] = {}
    version: int | str | None = None


class Backend(Struct, frozen=True, kw_only=True):
    """Who runs the stages; never changes the order.

    kind      inline | threads | processes
    workers   threads or processes (inline runs in the engine itself)
    prefetch  micro-batches made ahead of the trainer; 0: made when asked for; null: 8, or 2 where they have images
    """

    kind: str = "threads"
    workers: Positive = 2
    prefetch: NonNegative | None = None


class Spill(Struct, frozen=True, kw_only=True):
    """Where restart units of many blocks are decoded to, once: Parquet row groups, zstd frames, gzip streams.

    Units of more than two blocks go there if all of the configuration's fit; else only those of more than 16,
    which have to. What it holds may be removed at any time, and serves later runs.

    dir        folder; null: a folder `spill` in the index cache
    max_bytes  what it may hold in all; the units used longest ago make room
    """

    dir: str | None = None
    max_bytes: Positive = 16 << 30


class Config(Struct, frozen=True, kw_only=True):
    """All that a loader needs.

    seed, sources, lanes, sequence_length, length, restart, mix, tokenizer, pack, operators, spread and
    mask_boundary fix the order (they are the plan); everything else may change from run to run.

    seed                  of every keyed choice: another seed is another order
    sources               named corpora; sources are told apart by name
    mix                   by what sources are charged, and later mixtures
    tokenizer             turns text into tokens; null: sources hold tokens already
    pack                  how documents become rows
    operators             stateful parts of every lane before the packer, in order
    backend               who runs the stages
    spill                 where compressed units too large to be read in blocks are decoded to
    lanes                 fixed substreams; null: the state's, else global_batch_size (1 for a finite stream)
    global_batch_size     sequences a step, over all ranks
    micro_batch_size      sequences a batch of one rank
    sequence_length       tokens of a row's input; rows hold one more
    length                null: endless | a number of sequences | count
    restart               a finite stream gives the same rows in every pass
    spread                blocks that a lane keeps open per source
    max_empty             samples without documents in a row, of one source in a lane, that raise DataError
    mask_boundary         no loss on predicting a document's first token from the one before
    reset_position_ids    positions start anew with each document
    attention_mask        also build a dense boolean mask [b, 1, S, S], true where attention is allowed
    on_bad_sample         raise | skip: what to do with a sample that isn't what its stage needs
    max_bad_samples       with skip: at most so many bad samples per lane and source; null: no limit
    engine                thread | process: where planner and assembly run
    device                auto | cpu | cuda | cuda:N
    index_dir             folder of the index cache; null: beside the data, else the user's cache
    snapshots             batches handed out whose state can still be asked for
    memory_bytes          what pages and waiting documents may take, about
    """

    seed: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] = 0
    lanes: Positive | None = None
    global_batch_size: Positive | None = None
    micro_batch_size: Positive = 1
    sequence_length: Positive
    length: Positive | Literal["count"] | None = None
    restart: bool = False
    sources: dict[str, Source]
    mix: Mix = Mix()
    tokenizer: Tokenizer | None = None
    pack: Pack = Pack()
    operators: tuple[OperatorConfig, ...] = ()
    spread: Positive = 4
    max_empty: Positive = 1_000_000
    mask_boundary: bool = True
    reset_position_ids: bool = True
    attention_mask: bool = False
    on_bad_sample: Literal["raise", "skip"] = "raise"
    max_bad_samples: Positive | None = None
    backend: Backend = Backend()
    engine: Literal["thread", "process"] = "thread"
    device: str = "auto"
    index_dir: str | None = None
    spill: Spill = Spill()
    snapshots: Positive = 64
    memory_bytes: Positive = 1 << 30
