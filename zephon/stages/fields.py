"""How stages read a field of a sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from zephon.errors import DataError
from zephon.formats.sample import Sample
from zephon.native import compiled

ONE_OF_THESE = " to one of these"
# Of what a sample has, in a message.
MAX_NAMES = 12
kernels = compiled("kernels")


class BadSampleError(DataError):
    """A sample isn't what its stage needs; reported per sample, and raised no further than the stage."""


def unusable(source: str, fault: str) -> DataError:
    """Return the error that ends a stream at a bad sample, where bad samples aren't skipped."""
    # Where a setting names what no sample has, to skip would be to skip everything.
    remedy = "" if fault.endswith(ONE_OF_THESE) else "; mend it, or set on_bad_sample: skip"
    return DataError(f"source {source}: {fault}{remedy}")


def read_field(sample: Sample, name: str, *, place: str) -> Any:
    """Return a field of a sample; raises BadSampleError where the reader found the sample bad, or it's missing."""
    if sample.error is not None:
        raise BadSampleError(sample.error)
    try:
        return sample.fields[name]
    except KeyError:
        raise BadSampleError(_missing(name, sample, place=place)) from None


def _missing(name: str, sample: Sample, *, place: str) -> str:
    there = tuple(sample.fields)
    if not there:
        return f"no member {name!r} (has: nothing); set {place}"
    has = ", ".join(map(repr, there[:MAX_NAMES])) + (f", … {len(there)} in all" if len(there) > MAX_NAMES else "")
    # Bytes, as members of a tar are.
    if sum(each.endswith(f".{name}") and isinstance(value, bytes) for each, value in sample.fields.items()) > 1:
        return (
            f"no member {name!r} (has: {has}): a sample's name ends at the first dot of the file's, so that these are "
            "one sample; rename the files"
        )
    return f"no member {name!r} (has: {has}); set {place}{ONE_OF_THESE}"


def read_text(value: Any, *, name: str, errors: str) -> str:
    """Return a field's text: bytes decoded as UTF-8, a string as it is; raises BadSampleError.

    `errors` is strict (what isn't Unicode is bad), replace (by U+FFFD) or ignore. Nothing is normalised.
    """
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8", errors)
        except UnicodeDecodeError as error:
            raise BadSampleError(
                f"{name!r} isn't UTF-8 at byte {error.start}; set the stage's errors to replace or ignore"
            ) from None
    if not isinstance(value, str):
        raise BadSampleError(f"{name!r} is of type {type(value).__name__}, not text")
    broken = half_pair(value)
    if broken is None:
        return value
    if errors == "strict":
        raise BadSampleError(
            f"{name!r} has half a surrogate pair at character {broken}; set the stage's errors to replace or ignore"
        )
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", errors)


def half_pair(text: str) -> int | None:
    """Return where a text has half a surrogate pair: no character, though JSON can spell it; None: nowhere."""
    if text.isascii():
        return None
    try:
        if kernels is None:
            text.encode()
        else:
            # Leaves the bytes with the text, for the tokenizer.
            kernels.keep_utf8(text)
    except UnicodeEncodeError as error:
        return error.start
    return None


def read_texts(
    samples: Sequence[Sample], *, field: str, errors: str, place: str
) -> tuple[list[int], list[str], dict[int, str]]:
    """Return the samples' texts that aren't empty, with their samples' numbers, and bad samples' messages."""
    owners: list[int] = []
    texts: list[str] = []
    bad: dict[int, str] = {}
    for number, sample in enumerate(samples):
        try:
            text = read_text(read_field(sample, field, place=f"{place}.field"), name=field, errors=errors)
        except BadSampleError as error:
            bad[number] = str(error)
            continue
        if text:
            owners.append(number)
            texts.append(text)
    return owners, texts, bad
