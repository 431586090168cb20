from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import pytest
import torch

from zephon.collate.batch import Batch

COPIES: dict[str, Callable[[Batch], Batch]] = {
    "copy": Batch.copy,
    "copy.copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda batch: pickle.loads(pickle.dumps(batch)),
    "to": lambda batch: batch.to("cpu", non_blocking=True),
    "Batch": Batch,
}


@pytest.mark.parametrize("way", COPIES)
def test_copies_keep_tensors_and_sequences(way: str) -> None:
    batch = Batch({"tokens": torch.arange(6).view(2, 3), "max_seqlen": 3}, sequences=(4, 6))
    result = COPIES[way](batch)
    assert type(result) is Batch
    assert result is not batch
    assert result.sequences == (4, 6)
    assert result["max_seqlen"] == 3
    assert torch.equal(result["tokens"], batch["tokens"])


def test_to_moves_every_tensor() -> None:
    batch = Batch({"tokens": torch.zeros(2), "max_seqlen": 3}, sequences=(0,)).to(torch.device("meta"))
    assert batch["tokens"].device.type == "meta"
