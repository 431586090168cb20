"""What a micro-batch must look like, one token at a time, from docs/stream.md alone."""

from __future__ import annotations

import numpy as np

from zephon.collate.host import HostBatch

Expected = dict[str, list[object]]


def expected(host: HostBatch, *, mask_boundary: bool, reset_position_ids: bool, align: int = 1) -> Expected:
    """Return tokens, labels, loss_mask, position_ids as lists of rows, cu_seqlens, and the segment of each input."""
    rows, width = host.tokens.shape
    length = width - 1
    out: Expected = {"tokens": [], "labels": [], "loss_mask": [], "position_ids": [], "cu_seqlens": [], "segments": []}
    for row in range(rows):
        pieces = [(int(offset), int(tokens)) for r, offset, tokens in host.pieces if r == row]
        piece_of = {i: number for number, (offset, tokens) in enumerate(pieces) for i in range(offset, offset + tokens)}
        starts = {0} | {offset for offset, _ in pieces}
        padding = pieces[-1][0] + pieces[-1][1] if pieces else 0
        while padding % align:
            padding += 1
        starts |= {padding}
        out["tokens"].append([int(host.tokens[row, i]) for i in range(length)])
        out["labels"].append([int(host.tokens[row, i + 1]) for i in range(length)])
        loss, positions, segments = [], [], []
        for i in range(length):
            token = i + 1
            predicted = token in piece_of and i in piece_of
            if host.mask is not None and not host.mask[row, token]:
                predicted = False
            if mask_boundary and token in piece_of and piece_of[token] != piece_of.get(i):
                predicted = False
            loss.append(1.0 if predicted else 0.0)
            positions.append(i - max(s for s in starts if s <= i) if reset_position_ids else i)
            segments.append(row * length + max(s for s in starts if s <= i))
        out["loss_mask"].append(loss)
        out["position_ids"].append(positions)
        out["segments"].append(segments)
        out["cu_seqlens"] += [row * length + s for s in sorted(starts) if s < length]
    out["cu_seqlens"].append(rows * length)
    return out


def make_host(lengths: list[list[int]], width: int, *, align: int = 1, mask_seed: int | None = None) -> HostBatch:
    """Return rows of `width` tokens that hold pieces of these lengths, as far as they fit, one after another."""
    pieces = []
    tokens = np.full((len(lengths), width), 7, np.int32)
    mask = None if mask_seed is None else np.zeros((len(lengths), width), np.uint8)
    rng = np.random.default_rng(mask_seed)
    for row, row_lengths in enumerate(lengths):
        offset = 0
        for size in row_lengths:
            if offset + size > width:
                break
            pieces.append((row, offset, size))
            tokens[row, offset : offset + size] = np.arange(size) + 1000 * len(pieces)
            if mask is not None:
                mask[row, offset : offset + size] = rng.integers(0, 2, size)
            offset += size + -size % align
    return HostBatch(
        tokens=tokens,
        pieces=np.array(pieces, np.int32).reshape(-1, 3),
        mask=mask,
        sequences=tuple(range(10, 10 + len(lengths))),
    )
