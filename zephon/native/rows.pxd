# cython: language_level=3
"""Documents and rows as compiled lanes hold them."""

from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef struct Tokens:
    # A document's tokens, and after them its mask if it has one: shared by the pool and the rows that hold pieces of it.
    Py_ssize_t refs
    Py_ssize_t num_bytes
    int64_t length
    bint masked

cdef struct Document:
    int64_t q
    int64_t sample
    int64_t part
    int64_t start
    int64_t length
    uint64_t block_hash
    # One of the two: tokens in memory, or the Payload that they are read into when they are due.
    Tokens *tokens
    PyObject *payload
    int64_t source

cdef struct Piece:
    Document document
    int64_t stop
    int64_t offset


cdef class Memory:
    cdef public int64_t held


cdef class PlannedRow:
    cdef Piece *pieces
    cdef Py_ssize_t num
    cdef Memory memory
    cdef tuple names


cdef void share(Document *document) noexcept
cdef void release(Document *document, Memory memory) noexcept


cdef inline uint32_t *tokens_of(Tokens *tokens) noexcept nogil:
    return <uint32_t *>(<char *>tokens + sizeof(Tokens))


cdef inline uint8_t *mask_of(Tokens *tokens) noexcept nogil:
    return <uint8_t *>(tokens_of(tokens) + tokens.length)
