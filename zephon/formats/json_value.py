"""JSON to Python's values, with a bound of its own on how deep they nest.

Without it the interpreter's recursion limit would be the bound, and whether that is met depends on who calls: the same
bytes would be a sample in one thread and none in another.
"""

from __future__ import annotations

import msgspec
import numpy as np

# Far below the interpreter's limit of 1,000, of which the caller has used some; templates and repr recurse as well.
MAX_NESTING = 128
_BRACKETS = b'[]{}"'
_OTHERS = bytes(byte for byte in range(256) if byte not in _BRACKETS)
_STEPS = np.zeros(256, np.int8)
_STEPS[[ord("["), ord("{")]] = 1
_STEPS[[ord("]"), ord("}")]] = -1


def json_value(text: bytes | str, decoder: msgspec.json.Decoder[object]) -> object:
    """Return what JSON says, lists and objects nested at most MAX_NESTING deep.

    Raises msgspec.DecodeError or UnicodeDecodeError for anything else, by the text alone.
    """
    raw = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    # Nearly always few enough not to look closer; [ and { differ in this bit. bytes.count takes as long as decoding.
    if np.count_nonzero(np.frombuffer(raw, np.uint8) | 0x20 == ord("{")) > MAX_NESTING and _nesting(raw) > MAX_NESTING:
        raise msgspec.DecodeError(f"it nests more than {MAX_NESTING} lists and objects")
    return decoder.decode(raw)


def _nesting(raw: bytes) -> int:
    """Return how deep the brackets outside strings nest; up to its first fault, a JSON text nests no deeper."""
    # Without escaped quotes, a quote begins or ends a string. Linear time, whatever the bytes.
    kept = raw.replace(rb"\\", b"").replace(rb"\"", b"").translate(None, _OTHERS)
    marks = np.frombuffer(kept, np.uint8)
    outside = np.cumsum(marks == ord('"')) % 2 == 0
    return int(np.cumsum(_STEPS[marks] * outside, dtype=np.int64).max(initial=0))
