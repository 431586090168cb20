# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Loops over every token and every pixel level: what NumPy needs several passes over memory for, in one.

Each gives to the last bit what its counterpart in zephon.collate gives; tests/unit/native holds them to that.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL


def keep_utf8(str text not None):
    """Make a text's UTF-8 and leave it with the text, where the next who asks finds it.

    Raises UnicodeEncodeError where it has half a surrogate pair.
    """
    PyUnicode_AsUTF8AndSize(text, NULL)


def fill_text(
    const int32_t[:, ::1] tokens,
    const uint8_t[:, ::1] mask,
    const int32_t[:, ::1] pieces,
    int64_t[:, ::1] inputs,
    int64_t[:, ::1] labels,
    float[:, ::1] loss,
    int64_t[:, ::1] positions,
    int32_t[::1] starts,
    *,
    bint mask_boundary,
    int64_t align,
    bint reset,
):
    """Fill a micro-batch's entries; return (number of segments, tokens of the longest).

    tokens and mask (or None) are HostBatch's [b, S + 1], pieces its [P, 3]; inputs, labels, loss and positions [b, S].
    `starts` has room for P + 2 * b + 1 numbers: the segments' starts and, after them, b * S.
    """
    cdef Py_ssize_t rows = inputs.shape[0], length = inputs.shape[1], num_pieces = pieces.shape[0]
    cdef Py_ssize_t row, i, piece = 0, first, last, offset, end, padding, num = 0
    cdef int64_t base, longest = 0, count
    cdef bint masked = mask is not None, torn = False
    if labels.shape[0] != rows or loss.shape[0] != rows or positions.shape[0] != rows or tokens.shape[0] != rows:
        raise ValueError("a micro-batch and its entries differ in rows")
    if labels.shape[1] != length or loss.shape[1] != length or positions.shape[1] != length:
        raise ValueError("a micro-batch's entries differ in length")
    if tokens.shape[1] != length + 1 or pieces.shape[1] != 3 or starts.shape[0] < num_pieces + 2 * rows + 1:
        raise ValueError("a micro-batch, its pieces or their starts differ from its entries in shape")
    if masked and (mask.shape[0] != rows or mask.shape[1] != length + 1):
        raise ValueError("a micro-batch's mask differs from it in shape")
    with nogil:
        for row in range(rows):
            base = row * length
            for i in range(length):
                inputs[row, i] = tokens[row, i]
            for i in range(length):
                labels[row, i] = tokens[row, i + 1]
            if masked:
                for i in range(length):
                    loss[row, i] = mask[row, i + 1]
            else:
                for i in range(length):
                    loss[row, i] = 1.0
            first = num
            starts[num] = base
            num += 1
            end = 0
            while piece < num_pieces and pieces[piece, 0] == row:
                offset = pieces[piece, 1]
                if offset < end or pieces[piece, 2] < 1 or offset + pieces[piece, 2] > length + 1:
                    torn = True
                    break
                # The label of the token at offset i stands at input i - 1; the one at offset 0 is nobody's label.
                if offset:
                    if offset < length:
                        starts[num] = base + offset
                        num += 1
                    if offset > end:
                        for i in range(end - 1 if end else 0, offset):
                            loss[row, i] = 0.0
                    elif mask_boundary:
                        loss[row, offset - 1] = 0.0
                end = offset + pieces[piece, 2]
                piece += 1
            padding = end
            if end % align:
                padding += align - end % align
            if 0 < padding < length:
                starts[num] = base + padding
                num += 1
            if torn:
                break
            for i in range(end - 1 if end else 0, length):
                loss[row, i] = 0.0
            starts[num] = base + length
            if reset:
                for last in range(first, num):
                    count = starts[last + 1] - starts[last]
                    longest = max(longest, count)
                    for i in range(count):
                        positions[row, starts[last] - base + i] = i
            else:
                for last in range(first, num):
                    longest = max(longest, starts[last + 1] - starts[last])
                for i in range(length):
                    positions[row, i] = i
    if torn or piece < num_pieces:
        raise ValueError(f"piece {piece} of {num_pieces} doesn't lie behind the one before and inside its row")
    return num, longest


cdef extern from *:
    """
    #if defined(__GNUC__) && defined(__x86_64__) && defined(__linux__)
    __attribute__((target_clones("avx2", "default")))
    #endif
    static void zephon_planes(const unsigned char *restrict levels, Py_ssize_t size, const float *scale,
                              const float *shift, float *restrict out) {
        float *restrict red = out, *restrict green = out + size, *restrict blue = out + 2 * size;
        const float a = scale[0], b = scale[1], c = scale[2], x = shift[0], y = shift[1], z = shift[2];
        for (Py_ssize_t i = 0; i < size; i++) {
            red[i] = (float)levels[3 * i] * a + x;
            green[i] = (float)levels[3 * i + 1] * b + y;
            blue[i] = (float)levels[3 * i + 2] * c + z;
        }
    }
    """
    void zephon_planes(
        const uint8_t *levels, Py_ssize_t size, const float *scale, const float *shift, float *out
    ) noexcept nogil


def fill_fixed(
    const uint8_t[:, :, ::1] levels, const float[::1] scale, const float[::1] shift, float[:, :, ::1] out
):
    """Write level * scale[channel] + shift[channel] of a uint8 image [H, W, 3] to out [3, H, W], rounded twice."""
    if out.shape[0] != 3 or out.shape[1] * out.shape[2] != levels.shape[0] * levels.shape[1] or levels.shape[2] != 3:
        raise ValueError("an image and its values differ in shape")
    with nogil:
        zephon_planes(&levels[0, 0, 0], levels.shape[0] * levels.shape[1], &scale[0], &shift[0], &out[0, 0, 0])


def fill_patches(
    const uint8_t[:, :, :, ::1] levels,
    const float[::1] scale,
    const float[::1] shift,
    float[:, :, :, ::1] out,
    *,
    Py_ssize_t patch,
    Py_ssize_t merge,
):
    """Write the values of an image [frames, H, W, 3], as fill_fixed's, to out [patches, 3, depth, patch * patch].

    Time after time; there the patches of a token stand together, row by row, and so do the tokens. Of `depth` frames
    those that an image doesn't have are its first of that time.
    """
    cdef Py_ssize_t frames = levels.shape[0], height = levels.shape[1], width = levels.shape[2]
    cdef Py_ssize_t depth = out.shape[2], held = min(frames, depth), side = merge * patch, band = side * width
    cdef Py_ssize_t time, frame, row, column, down, across, channel, copy, y, number, first
    cdef size_t line = patch * sizeof(float)
    cdef const float *read
    cdef float *values
    if min(held, patch, merge) < 1:
        raise ValueError("an image has no frames, or patches have no pixels")
    tiles = (height // side) * (width // side) * merge * merge
    if frames % held or height % side or width % side or levels.shape[3] != 3:
        raise ValueError("an image isn't made of whole tokens")
    if out.shape[0] != frames // held * tiles or out.shape[1] != 3 or out.shape[3] != patch * patch:
        raise ValueError("an image and its patches differ in number or shape")
    # A row of tokens at a time: that stays in the processor's cache.
    values = <float *>malloc(3 * band * sizeof(float))
    if values == NULL:
        raise MemoryError()
    with nogil:
        for time in range(frames // held):
            for frame in range(held):
                for row in range(height // side):
                    zephon_planes(&levels[time * held + frame, row * side, 0, 0], band, &scale[0], &shift[0], values)
                    first = (time * (height // side) + row) * (width // side) * merge * merge
                    for column in range(width // side):
                        for down in range(merge):
                            for across in range(merge):
                                number = first + (column * merge + down) * merge + across
                                for channel in range(3):
                                    read = values + channel * band + down * patch * width + (
                                        column * merge + across
                                    ) * patch
                                    for y in range(patch):
                                        memcpy(&out[number, channel, frame, y * patch], read + y * width, line)
                                    if not frame:
                                        for copy in range(held, depth):
                                            memcpy(
                                                &out[number, channel, copy, 0], &out[number, channel, 0, 0],
                                                patch * line,
                                            )
    free(values)
