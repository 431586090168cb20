# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""A lane that mixes and packs by best fit, without an object for each document.

Decides what zephon.lanes.lane, mixer, cursor and best_fit decide, which say why; what happens rarely (entering a mixture,
opening a block, errors) is done by them or by the functions that are passed in. tests/property/test_compiled_laws.py
holds both to the same rows and states.
"""

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.ref cimport Py_INCREF, PyObject
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove

from zephon.native.rows cimport Document, Memory, Piece, PlannedRow, Tokens, mask_of, release, share, tokens_of

cdef int64_t TOKEN = 1024
cdef int64_t NEAR = 8


cdef inline uint64_t mix(uint64_t value) noexcept nogil:
    value = (value ^ (value >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    value = (value ^ (value >> 27)) * <uint64_t>0x94D049BB133111EB
    return value ^ (value >> 31)


cdef inline uint64_t draw(uint64_t key, uint64_t counter) noexcept nogil:
    return mix(key ^ mix((counter + 1) * <uint64_t>0x9E3779B97F4A7C15))


# What __dealloc__ needs must outlive the collector's breaking of cycles.
@cython.no_gc_clear
cdef class Block:
    """An open block: its samples, from pages that hold a run of them each; see zephon.engine.feed.PageReader."""

    cdef object pages
    cdef list order
    cdef int64_t k, q, samples, taken, start, stop, order_at, page_bytes
    cdef uint64_t hash
    cdef Py_ssize_t document
    cdef const uint32_t[::1] tokens
    cdef const uint8_t[::1] mask
    cdef const int64_t[::1] offsets
    cdef const int32_t[::1] counts
    cdef bint kept, masked
    cdef dict bad
    cdef Memory memory

    def __cinit__(self, pages, int64_t k, int64_t q, int64_t taken, uint64_t block_hash, Memory memory):
        self.pages = pages
        self.order = pages.order
        self.k, self.q, self.samples, self.taken, self.hash = k, q, pages.samples, taken, block_hash
        self.start = self.stop = taken
        self.memory = memory

    def __dealloc__(self):
        if self.memory is not None:
            self.memory.held -= self.page_bytes

    cdef int close(self) except -1:
        self.drop()
        self.pages.close()

    cdef void drop(self):
        """Forget the page."""
        self.memory.held -= self.page_bytes
        self.page_bytes = 0
        self.tokens = self.mask = None

    cdef int next_page(self) except -1:
        self.drop()
        page, stop, kept = self.pages.next_kept()
        self.start, self.stop = self.taken, stop
        # The next run is ordered when half of this one is taken.
        self.order_at = (self.start + self.stop) // 2
        self.hash = page.block_hash
        self.offsets, self.counts = page.offsets, page.counts
        self.document = 0
        self.bad = dict(page.bad) if page.bad else None
        self.kept, self.masked = kept, page.mask is not None
        if kept:
            self.tokens = page.tokens
            if self.masked:
                self.mask = page.mask
            self.page_bytes = page.tokens.nbytes + (page.mask.nbytes if self.masked else 0)
            self.memory.held += self.page_bytes
        self.check()

    cdef int check(self) except -1:
        """Raise IndexError where a page's numbers would lead outside of it."""
        cdef Py_ssize_t i
        cdef int64_t documents = 0
        if self.counts.shape[0] != self.stop - self.start:
            raise IndexError(f"a page has counts for {self.counts.shape[0]} samples of {self.stop - self.start}")
        for i in range(self.counts.shape[0]):
            documents += self.counts[i]
            if self.counts[i] < 0 or documents >= self.offsets.shape[0]:
                raise IndexError(f"a page has {self.offsets.shape[0]} offsets for {documents} documents")
        if self.masked and self.mask is not None and self.mask.shape[0] != self.tokens.shape[0]:
            raise IndexError(f"a page has a mask of {self.mask.shape[0]} for {self.tokens.shape[0]} tokens")
        for i in range(documents):
            if self.offsets[i] < 0 or self.offsets[i + 1] <= self.offsets[i]:
                raise IndexError(f"a page's offsets don't rise from {self.offsets[i]} to {self.offsets[i + 1]}")

    cdef int64_t take(self, Lane lane, int64_t source) except -2:
        """Give the next sample's documents to the lane's pool; return their tokens, or -1 for a bad sample."""
        cdef int64_t charge = 0, length
        cdef Py_ssize_t number, part
        cdef Document *d
        if self.taken == self.stop:
            self.next_page()
        if self.taken == self.order_at:
            self.pages.order_more()
        number = self.taken - self.start
        if self.bad is not None and number in self.bad:
            self.pages.refuse(self.bad[number])
            self.taken += 1
            return -1
        for part in range(self.counts[number]):
            length = self.offsets[self.document + 1] - self.offsets[self.document]
            if length > lane.longest:
                if lane.drops:
                    self.document += 1
                    continue
                length = lane.longest
            d = lane.room()
            d.q, d.sample, d.part, d.start, d.length = self.q, self.order[self.taken], part, 0, length
            d.block_hash, d.source, d.tokens, d.payload = self.hash, source, NULL, NULL
            if self.kept:
                d.tokens = self.copy(self.offsets[self.document], length)
            else:
                payload = lane.missing()
                Py_INCREF(payload)
                d.payload = <PyObject *>payload
            lane.num += 1
            self.document += 1
            charge += length
        self.taken += 1
        return charge

    cdef Tokens *copy(self, int64_t start, int64_t length) except NULL:
        """Return a document's tokens in memory of their own: it may wait long after its neighbours are gone."""
        cdef Py_ssize_t num_bytes = sizeof(Tokens) + length * (5 if self.masked else 4)
        cdef Tokens *made
        if start + length > self.tokens.shape[0]:
            raise IndexError(f"a document ends at {start + length} in a page of {self.tokens.shape[0]} tokens")
        made = <Tokens *>malloc(num_bytes)
        if made == NULL:
            raise MemoryError()
        made.refs, made.num_bytes, made.length, made.masked = 1, num_bytes, length, self.masked
        memcpy(tokens_of(made), &self.tokens[start], length * 4)
        if self.masked:
            memcpy(mask_of(made), &self.mask[start], length)
        self.memory.held += num_bytes
        return made


cdef class Cursor:
    """A lane's place in one source; see zephon.lanes.cursor."""

    cdef readonly str name
    cdef readonly object phase_draw
    cdef public object passed, stride
    cdef readonly bint used_up
    cdef int64_t source, first, lanes, end, next_k, pulls, bad, empty, pulled, left, reserve, spread
    cdef uint64_t key
    cdef list blocks, ahead
    cdef object feed
    cdef Memory memory

    def __init__(self, feed, Memory memory, *, source, name, key, phase_draw, first, lanes, end, spread, state):
        """`end` is -1 where the source never ends; `state` a SourceState, or None."""
        self.feed, self.memory = feed, memory
        self.source, self.name, self.key, self.phase_draw = source, name, key, phase_draw
        self.first, self.lanes, self.end, self.spread = first, lanes, end, spread
        self.blocks, self.ahead = [], []
        self.stride = 0
        if state is None:
            while len(self.blocks) < spread and self.exists(self.next_k):
                self.blocks.append(self.read(self.next_k, 0, 0, False))
                self.next_k += 1
        else:
            self.passed = state.passed
            self.next_k, self.pulls, self.bad, self.empty = state.next_k, state.pulls, state.bad, state.empty
            for k, taken, block_hash in state.open:
                self.blocks.append(self.read(k, taken, block_hash, False))
        self.used_up = not self.blocks
        for block in self.blocks:
            self.left += (<Block>block).samples - (<Block>block).taken
        self.look_ahead(self.feed.ahead(self.name))

    cdef bint exists(self, int64_t k) noexcept:
        return self.end < 0 or self.first + self.lanes * k < self.end

    cdef Block read(self, int64_t k, int64_t taken, uint64_t block_hash, bint ahead):
        cdef int64_t q = self.first + self.lanes * k
        pages = self.feed.open_pages(self.name, q, taken, block_hash, ahead=ahead)
        return Block(pages, k, q, taken, block_hash, self.memory)

    cdef int look_ahead(self, Py_ssize_t wanted) except -1:
        """Open blocks ahead until there are `wanted`, or no more."""
        cdef int64_t samples = 0
        cdef Block following
        self.reserve = 0
        while len(self.ahead) < wanted:
            if not self.exists(self.next_k + len(self.ahead)):
                return 0
            following = self.read(self.next_k + len(self.ahead), 0, 0, True)
            self.ahead.append(following)
            self.left += following.samples
        for block in self.blocks:
            samples += (<Block>block).samples
        self.reserve = self.feed.reserve(self.name, samples)

    cdef int order_ahead(self, Py_ssize_t wanted) except -1:
        """Order the pages of `wanted` blocks ahead, or of as many as there are."""
        self.look_ahead(wanted)
        for following in self.ahead:
            (<Block>following).pages.expect()

    cdef int64_t take(self, Lane lane) except -2:
        """Give the next sample's documents to the lane's pool; return their tokens, or -1 for a bad sample."""
        cdef Py_ssize_t index = draw(self.key, self.pulls) % <uint64_t>len(self.blocks)
        cdef Block block = self.blocks[index]
        cdef int64_t charge = block.take(lane, self.source)
        self.pulls += 1
        if charge > 0:
            self.empty = 0
            self.pulled += charge
        self.left -= 1
        if block.taken == block.samples:
            self.replace(index)
        if block.taken == block.samples - NEAR or block.samples <= NEAR:
            self.order_ahead(max(1, len(self.ahead)))
        elif self.left < self.reserve and len(self.ahead) < self.spread:
            self.order_ahead(len(self.ahead) + 1)
        return charge

    cdef int replace(self, Py_ssize_t index) except -1:
        (<Block>self.blocks[index]).close()
        if not self.exists(self.next_k):
            del self.blocks[index]
            self.used_up = not self.blocks
            return 0
        if self.ahead:
            self.blocks[index] = self.ahead.pop(0)
        else:
            self.blocks[index] = self.read(self.next_k, 0, 0, False)
            self.left += (<Block>self.blocks[index]).samples
        self.next_k += 1
        self.look_ahead(self.feed.ahead(self.name))

    cdef bytes numbers(self):
        """Return SourceState.numbers as int64 (hashes as their bits)."""
        cdef bytes made = PyBytes_FromStringAndSize(NULL, 8 * (4 + 3 * len(self.blocks)))
        cdef int64_t *place = <int64_t *>PyBytes_AS_STRING(made)
        cdef Block block
        place[0], place[1], place[2], place[3] = self.next_k, self.pulls, self.bad, self.empty
        for item in self.blocks:
            block = <Block>item
            place += 3
            place[1], place[2], place[3] = block.k, block.taken, <int64_t>block.hash if block.taken else 0
        return made

    def close(self):
        """Give up all open blocks."""
        for block in (*self.blocks, *self.ahead):
            (<Block>block).close()


@cython.no_gc_clear
cdef class Lane:
    """Mixer and packer of a lane. `enter(lane)` is called where the next mixture is due; see zephon.lanes.compiled."""

    cdef Document *pool
    cdef Py_ssize_t num, size
    cdef int64_t lane, lanes, capacity, wanted, align, longest
    cdef bint drops, split, by_samples
    cdef tuple names
    cdef object missing, without_documents
    cdef Memory memory
    cdef object pulled
    cdef readonly int64_t sequences
    cdef public object enter
    cdef public list cursors
    cdef public list active
    cdef public int64_t next_entry

    def __cinit__(self):
        self.cursors, self.active = [], []
        self.next_entry = INT64_MAX

    def __init__(
        self, Memory memory, *, lane, lanes, sequences, capacity, pool, align, split, by_samples, longest, drops, names,
        missing, without_documents, pulled,
    ):
        self.memory = memory
        self.lane, self.lanes, self.sequences = lane, lanes, sequences
        self.capacity, self.wanted, self.align, self.split = capacity, pool, align, split
        self.by_samples, self.longest, self.drops, self.names = by_samples, min(longest, INT64_MAX), drops, names
        self.missing, self.without_documents, self.pulled = missing, without_documents, pulled

    def __dealloc__(self):
        cdef Py_ssize_t i
        for i in range(self.num):
            release(&self.pool[i], self.memory)
        free(self.pool)

    cdef Document *room(self) except NULL:
        """Return the place after the pool's last document."""
        cdef Document *wider
        if self.num == self.size:
            wider = <Document *>realloc(self.pool, (2 * self.size + 16) * sizeof(Document))
            if wider == NULL:
                raise MemoryError()
            self.pool, self.size = wider, 2 * self.size + 16
        return &self.pool[self.num]

    def hold(self, item, Py_ssize_t source):
        """Take up an Item of a state; its payload is there, empty or not."""
        cdef Document *d = self.room()
        if not 0 <= item.start < item.length:
            raise ValueError(f"a held document of {item.length} tokens goes on at {item.start}")
        d.q, d.sample, d.part, d.start, d.length = item.q, item.sample, item.part, item.start, item.length
        d.block_hash, d.source, d.tokens = item.block_hash, source, NULL
        payload = item.payload
        Py_INCREF(payload)
        d.payload = <PyObject *>payload
        self.num += 1

    def next(self):
        """Return the next row, or None where every source is used up and nothing waits."""
        row = self.pop(False)
        while row is None:
            if not self.pull():
                row = self.pop(True)
                break
            row = self.pop(False)
        if row is not None:
            self.sequences += 1
            for cursor in self.cursors:
                if (<Cursor>cursor).pulled:
                    name = (<Cursor>cursor).name
                    self.pulled[name] = self.pulled.get(name, 0) + (<Cursor>cursor).pulled
                    (<Cursor>cursor).pulled = 0
        return row

    def state(self):
        """Return (each cursor's (name, pass, numbers), the pool's documents as int64 [8] each)."""
        cdef Py_ssize_t i
        cdef Document *d
        cdef bytes held = PyBytes_FromStringAndSize(NULL, 64 * self.num)
        cdef int64_t *place = <int64_t *>PyBytes_AS_STRING(held)
        for i in range(self.num):
            d = &self.pool[i]
            place[0], place[1], place[2], place[3] = d.source, d.q, d.sample, d.part
            place[4], place[5], place[6], place[7] = d.start, d.length, <int64_t>d.block_hash, 0
            place += 8
        sources = [((<Cursor>c).name, (<Cursor>c).passed, (<Cursor>c).numbers()) for c in self.cursors]
        return sources, held

    cdef bint pull(self) except -1:
        """Take the next sample; False where every source is used up."""
        cdef Cursor cursor
        cdef int64_t charge
        if self.lane + self.lanes * self.sequences >= self.next_entry or not self.active:
            self.enter(self.lane + self.lanes * self.sequences)
            if not self.active:
                return False
        cursor = <Cursor>self.active[0]
        if len(self.active) > 1:
            for other in self.active:
                if (<Cursor>other).passed < cursor.passed:
                    cursor = <Cursor>other
        charge = cursor.take(self)
        if charge > 0:
            charge *= TOKEN
        else:
            cursor.empty += 1
            cursor.bad += charge < 0
            self.without_documents(cursor.name, cursor.empty, cursor.bad, charge < 0)
            charge = 1
        cursor.passed = cursor.passed + (TOKEN if self.by_samples else charge) * cursor.stride
        if cursor.used_up:
            self.active = [other for other in self.active if not (<Cursor>other).used_up]
        return True

    cdef PlannedRow pop(self, bint last):
        """Return a row once enough documents wait; see zephon.lanes.best_fit."""
        cdef PlannedRow row
        cdef int64_t offset, left, most
        cdef Py_ssize_t i, found
        if not self.num or (self.num < self.wanted and not last):
            return None
        row = PlannedRow.__new__(PlannedRow)
        row.memory, row.names = self.memory, self.names
        row.pieces = <Piece *>malloc((self.num + 1) * sizeof(Piece))
        if row.pieces == NULL:
            raise MemoryError()
        left = self.pool[0].length - self.pool[0].start
        if left > self.capacity:
            self.cut(row, self.capacity, 0)
            return row
        self.move(row, 0, 0)
        offset = left
        while self.num:
            if offset % self.align:
                offset += self.align - offset % self.align
            found, most = -1, 0
            for i in range(self.num):
                left = self.pool[i].length - self.pool[i].start
                # Among equals the oldest.
                if most < left <= self.capacity - offset:
                    found, most = i, left
            if found < 0:
                break
            self.move(row, found, offset)
            offset += most
        if self.split and self.num and self.capacity - offset >= 2:
            self.cut(row, self.capacity - offset, offset)
        return row

    cdef void move(self, PlannedRow row, Py_ssize_t i, int64_t offset):
        """Put the rest of a waiting document into a row."""
        cdef Piece *piece = &row.pieces[row.num]
        piece.document, piece.stop, piece.offset = self.pool[i], self.pool[i].length, offset
        row.num += 1
        self.num -= 1
        memmove(&self.pool[i], &self.pool[i + 1], (self.num - i) * sizeof(Document))

    cdef void cut(self, PlannedRow row, int64_t tokens, int64_t offset):
        """Put the next tokens of the oldest document into a row; it keeps its place in the pool."""
        cdef Piece *piece = &row.pieces[row.num]
        piece.document, piece.offset = self.pool[0], offset
        piece.stop = self.pool[0].start + tokens
        share(&piece.document)
        row.num += 1
        self.pool[0].start = piece.stop
