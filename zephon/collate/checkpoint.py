"""Reading what a training script saved with torch.save."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

import torch

from zephon.errors import StateError, StoreError

ZIP = b"PK"
# What the unpickler says behind its advice on trusted files.
REASON = re.compile(r"WeightsUnpickler error:\s*(.+?)(?:\. Please |\s*Check the documentation|$)", re.DOTALL)


def load_checkpoint(path: Path) -> Any:
    """Return a checkpoint's content, on the CPU; of an archive, tensors are mapped and not read.

    Only what torch.load takes with weights_only. Raises StoreError where the file can't be read, StateError where
    it can't be loaded.
    """
    try:
        with path.open("rb") as file:
            archive = file.read(len(ZIP)) == ZIP
        with warnings.catch_warnings():
            # Of pickles' protocols; what matters of that is in the error.
            warnings.simplefilter("ignore")
            return torch.load(path, map_location="cpu", weights_only=True, mmap=archive)
    except OSError as error:
        raise StoreError(f"can't read the checkpoint {path}: {error.strerror or error}") from error
    except Exception as error:  # a damaged file makes the unpickler raise almost anything
        raise StateError(
            f"torch can't load {path} with weights_only=True: {_reason(error)}; save loader.state_dict() in a file of "
            "its own by torch.save, or pass a checkpoint of tensors and plain values"
        ) from error


def _reason(error: Exception) -> str:
    """Return the first sentence of what torch says, on one line."""
    text = str(error)
    found = REASON.search(text)
    sentence = found[1] if found else text.partition(". This ")[0]
    return " ".join(sentence.split()).rstrip(".")[:200] or type(error).__name__
