# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Loops over every token and every pixel level: what NumPy needs several passes over memory for, in one.

Each gives to the last bit what its counterpart in zephon.collate gives; tests/unit/native holds them to that.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

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
    cdef bint masked = mask is not None
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
    return num, longest


def fill_fixed(const uint8_t[:, :, ::1] levels, const float[:, ::1] values, float[:, :, ::1] out):
    """Write values[channel, level] of a uint8 image [H, W, 3] to out [3, H, W]."""
    cdef Py_ssize_t size = levels.shape[0] * levels.shape[1], i
    cdef const uint8_t *source = &levels[0, 0, 0]
    cdef const float *red = &values[0, 0]
    cdef const float *green = &values[1, 0]
    cdef const float *blue = &values[2, 0]
    cdef float *target = &out[0, 0, 0]
    with nogil:
        for i in range(size):
            target[i] = red[source[3 * i]]
            target[size + i] = green[source[3 * i + 1]]
            target[2 * size + i] = blue[source[3 * i + 2]]


def fill_patches(
    const uint8_t[:, :, :, ::1] levels,
    const float[:, ::1] values,
    float[:, :, :, ::1] out,
    *,
    Py_ssize_t patch,
    Py_ssize_t merge,
):
    """Write values[channel, level] of an image [frames, H, W, 3] to its patches, out [patches, 3, depth, patch * patch].

    Time after time; there the patches of a token stand together, row by row, and so do the tokens. Of `depth` frames
    those that an image doesn't have are its first of that time.
    """
    cdef Py_ssize_t frames = levels.shape[0], height = levels.shape[1], width = levels.shape[2]
    cdef Py_ssize_t depth = out.shape[2], held = min(frames, depth), side = merge * patch
    cdef Py_ssize_t time, row, column, down, across, channel, frame, y, x, number = 0
    cdef const uint8_t *line
    cdef const float *table
    cdef float *target
    with nogil:
        for time in range(frames // held):
            for row in range(height // side):
                for column in range(width // side):
                    for down in range(merge):
                        for across in range(merge):
                            for channel in range(3):
                                table = &values[channel, 0]
                                for frame in range(depth):
                                    target = &out[number, channel, frame, 0]
                                    for y in range(patch):
                                        line = &levels[
                                            time * held + (frame if frame < held else 0),
                                            (row * merge + down) * patch + y,
                                            (column * merge + across) * patch,
                                            channel,
                                        ]
                                        for x in range(patch):
                                            target[y * patch + x] = table[line[3 * x]]
                            number += 1
