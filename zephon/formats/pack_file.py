"""Files that appear under their name only when they are whole, one after another."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO


class RollingFiles:
    """Opens shard-000000, shard-000001, … of a folder under temporary names, one at a time."""

    def __init__(self, folder: Path, suffix: str) -> None:
        self.written: list[str] = []
        self._folder = folder
        self._suffix = suffix
        self._file: BinaryIO | None = None

    @property
    def file(self) -> BinaryIO:
        """The file being written, opened if there is none."""
        if self._file is None:
            self._file = self._temporary.open("wb")
        return self._file

    @property
    def position(self) -> int:
        """Bytes written to the file so far; 0 if there is none."""
        return 0 if self._file is None else self._file.tell()

    def finish(self) -> None:
        """Give the file its name, if there is one."""
        if self._file is None:
            return
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        self._file = None
        self._temporary.rename(self._target)
        self.written.append(str(self._target))

    def discard(self) -> None:
        """Remove the file, if there is one."""
        if self._file is not None:
            self._file.close()
            self._file = None
            self._temporary.unlink(missing_ok=True)

    @property
    def _target(self) -> Path:
        return self._folder / f"shard-{len(self.written):06d}{self._suffix}"

    @property
    def _temporary(self) -> Path:
        return self._target.with_name(f".{self._target.name}.tmp")
