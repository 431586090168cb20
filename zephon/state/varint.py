"""Numbers in few bytes: LEB128, with zigzag for signed ones."""

from __future__ import annotations

from zephon.errors import StateError


class Writer:
    """Appends numbers, bytes and texts to a buffer."""

    def __init__(self) -> None:
        self.buffer = bytearray()

    def number(self, value: int) -> None:
        """Append a number >= 0."""
        while value > 0x7F:
            self.buffer.append(value & 0x7F | 0x80)
            value >>= 7
        self.buffer.append(value)

    def signed(self, value: int) -> None:
        """Append a number of either sign."""
        self.number(value << 1 if value >= 0 else (-value << 1) - 1)

    def raw(self, data: bytes) -> None:
        """Append bytes whose number the reader knows."""
        self.buffer += data

    def text(self, value: str) -> None:
        """Append a text with its length."""
        data = value.encode()
        self.number(len(data))
        self.buffer += data


class Reader:
    """Reads what a Writer wrote. Raises StateError at the end of the bytes."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._place = 0

    @property
    def left(self) -> int:
        """How many bytes are left."""
        return len(self._data) - self._place

    def number(self) -> int:
        """Read a number >= 0."""
        value = shift = 0
        while True:
            byte = self.raw(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7

    def signed(self) -> int:
        """Read a number of either sign."""
        value = self.number()
        return -(value + 1 >> 1) if value & 1 else value >> 1

    def raw(self, size: int) -> bytes:
        """Read `size` bytes."""
        if size > self.left:
            raise StateError(f"the bytes end at {len(self._data)}, {size - self.left} too early")
        self._place += size
        return self._data[self._place - size : self._place]

    def text(self) -> str:
        """Read a text with its length."""
        return self.raw(self.number()).decode()
