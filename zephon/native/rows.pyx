# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Rows that compiled lanes planned; Row's counterpart."""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdlib cimport free
from libc.string cimport memcpy, memset


cdef class Memory:
    """Bytes that open pages and waiting documents of a rank's lanes take, as `held`."""


cdef void share(Document *document) noexcept:
    if document.tokens != NULL:
        document.tokens.refs += 1
    if document.payload != NULL:
        Py_INCREF(<object>document.payload)


cdef void release(Document *document, Memory memory) noexcept:
    if document.tokens != NULL:
        document.tokens.refs -= 1
        if not document.tokens.refs:
            memory.held -= document.tokens.num_bytes
            free(document.tokens)
    if document.payload != NULL:
        Py_DECREF(<object>document.payload)


@cython.no_gc_clear
cdef class PlannedRow:
    """A planned sequence: pieces of documents in increasing offset."""

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.num):
            release(&self.pieces[i].document, self.memory)
        free(self.pieces)

    def unread(self, make_item):
        """Return make_item(...) of each document whose tokens have to be read; see zephon.item.Item's arguments."""
        cdef Py_ssize_t i
        cdef Document *d
        found = []
        for i in range(self.num):
            d = &self.pieces[i].document
            if d.payload != NULL:
                payload = <object>d.payload
                if payload.tokens is None:
                    found.append(
                        make_item(
                            self.names[d.source], d.q, d.sample, d.part, d.start, d.length, (), d.block_hash, payload
                        )
                    )
        return found

    def write(self, int32_t[::1] out, int32_t pad, delivered):
        """Write the row's tokens and its padding; add each source's tokens to `delivered`.

        Returns (int32 offset and size of each piece as bytes, tokens, documents begun, whether any has a mask).
        """
        cdef Py_ssize_t i, j, capacity = out.shape[0]
        cdef int64_t end = 0, size, total = 0, documents = 0
        cdef bint masked = False
        cdef Piece *piece
        cdef const int32_t[::1] read
        layout = PyBytes_FromStringAndSize(NULL, self.num * 2 * sizeof(int32_t))
        cdef int32_t *places = <int32_t *>PyBytes_AS_STRING(layout)
        for i in range(self.num):
            piece = &self.pieces[i]
            size = piece.stop - piece.document.start
            if size < 1 or piece.document.start < 0 or piece.offset < end or piece.offset + size > capacity:
                raise IndexError(f"{size} tokens were planned at {piece.offset} in a row of {capacity}")
            for j in range(end, piece.offset):
                out[j] = pad
            end = piece.offset + size
            if piece.document.tokens != NULL:
                memcpy(&out[piece.offset], tokens_of(piece.document.tokens) + piece.document.start, size * 4)
                masked |= piece.document.tokens.masked
            else:
                payload = <object>piece.document.payload
                if payload.tokens is None:
                    raise LookupError(
                        f"source {self.names[piece.document.source]}, block {piece.document.q} (global): tokens of "
                        f"sample {piece.document.sample} are gone"
                    )
                read = payload.tokens
                if read.shape[0] < piece.stop:
                    raise IndexError(f"a document of {read.shape[0]} tokens was planned up to {piece.stop}")
                memcpy(&out[piece.offset], &read[piece.document.start], size * 4)
                masked |= payload.mask is not None
            places[2 * i] = <int32_t>piece.offset
            places[2 * i + 1] = <int32_t>size
            total += size
            if not piece.document.start:
                documents += 1
            name = self.names[piece.document.source]
            delivered[name] = delivered.get(name, 0) + size
        for j in range(end, capacity):
            out[j] = pad
        return layout, total, documents, masked

    def write_mask(self, uint8_t[::1] out):
        """Write the mask of each piece, ones for those without; what lies between is left as it is."""
        cdef Py_ssize_t i
        cdef int64_t size
        cdef Piece *piece
        cdef const uint8_t[::1] read
        for i in range(self.num):
            piece = &self.pieces[i]
            size = piece.stop - piece.document.start
            if size < 1 or piece.document.start < 0 or piece.offset < 0 or piece.offset + size > out.shape[0]:
                raise IndexError(f"{size} tokens were planned at {piece.offset} in a row of {out.shape[0]}")
            if piece.document.tokens != NULL and piece.document.tokens.masked:
                memcpy(&out[piece.offset], mask_of(piece.document.tokens) + piece.document.start, size)
                continue
            mask = None if piece.document.payload == NULL else (<object>piece.document.payload).mask
            if mask is None:
                memset(&out[piece.offset], 1, size)
            else:
                read = mask
                if read.shape[0] < piece.stop:
                    raise IndexError(f"a mask of {read.shape[0]} tokens was planned up to {piece.stop}")
                memcpy(&out[piece.offset], &read[piece.document.start], size)


def fill_pieces(list layouts, int32_t[:, ::1] out):
    """Write (row, offset, tokens) of each piece to out [P, 3]; layouts[row] holds (offset, tokens) of each, int32."""
    cdef Py_ssize_t row, i, at = 0
    cdef bytes layout
    cdef const int32_t *places
    for row in range(len(layouts)):
        layout = layouts[row]
        places = <const int32_t *>PyBytes_AS_STRING(layout)
        for i in range(len(layout) // 8):
            if at == out.shape[0]:
                raise IndexError(f"more than {at} pieces")
            out[at, 0] = <int32_t>row
            out[at, 1] = places[2 * i]
            out[at, 2] = places[2 * i + 1]
            at += 1
