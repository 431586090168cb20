"""From an engine that is soon there to one that is fast: `auto` begins with the first and goes on with the second."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Lock

from zephon.errors import ConfigError
from zephon.tokenizer.check import first_difference
from zephon.tokenizer.engines import Encode, Encoded

# For 128,000 tokens Hugging Face's engine loads in 0.45 s of processor time and fastokens in 1.7 s, in which the
# former encodes twice as much as this.
SWITCH_CHARS = 2 << 20

LoadFast = Callable[[Encode], Encode | None]


class Switch:
    """Encodes with `reference` until `switch_chars` of text have come, and with what `load_fast` gives from then on.

    The thread whose turn it is then loads, while others go on. All that was encoded until then is encoded once more
    and compared, because when the switch happens may have no effect on ids: a difference is a ConfigError, now and
    in every later call. `load_fast` is given the reference, and returns None where that has to do. May be called by
    several threads at once.
    """

    def __init__(self, reference: Encode, load_fast: LoadFast, *, path: str, switch_chars: int = SWITCH_CHARS) -> None:
        self._current = reference
        self._load_fast: LoadFast | None = load_fast
        self._path = path
        self._switch_chars = switch_chars
        self._lock = Lock()
        self._settled = False
        self._chars = 0
        self._encoded: list[tuple[Sequence[str], Encoded]] = []
        self._failure: str | None = None
        self.switched = False

    def __call__(self, texts: Sequence[str]) -> Encoded:
        """Encode texts; raises what the engines raise."""
        if self._failure is not None:
            raise ConfigError(self._failure)
        if self._settled:
            return self._current(texts)
        load_fast = self._claim()
        if load_fast is not None:
            self._switch(load_fast)
            return self(texts)
        encoded = self._current(texts)
        self._note(texts, encoded)
        return encoded

    def _claim(self) -> LoadFast | None:
        """Return what loads the fast engine, to the one caller whose turn it is."""
        with self._lock:
            if self._chars < self._switch_chars:
                return None
            claimed, self._load_fast = self._load_fast, None
            return claimed

    def _switch(self, load_fast: LoadFast) -> None:
        fast = load_fast(self._current)
        with self._lock:
            encoded, self._encoded = self._encoded, []
            if fast is not None:
                self._current = fast
                self.switched = True
            self._settled = True
        if fast is not None:
            for texts, before in encoded:
                self._compare(texts, before)

    def _note(self, texts: Sequence[str], encoded: Encoded) -> None:
        with self._lock:
            if not self._settled:
                self._chars += sum(map(len, texts))
                self._encoded.append((texts, encoded))
                return
        # The switch happened meanwhile.
        self._compare(texts, encoded)

    def _compare(self, texts: Sequence[str], before: Encoded) -> None:
        different = first_difference(texts, self._current(texts), before)
        if different is not None:
            self._failure = (
                f"tokenizer.engine=auto: fastokens gives other ids than Hugging Face's engine for {different[:40]!r} "
                f"with {self._path!r}; set tokenizer.engine: hf"
            )
            raise ConfigError(self._failure)
