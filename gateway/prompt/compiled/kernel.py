"""Splits a text as a tokenizer's expression does and merges every piece, compiled.

Knows UTF-8, the kinds of characters and a vocabulary as flat arrays. Changes nothing that is
shared and holds no GIL. All functions are in this one module: numba's cache on disk does not see
changes of others.
"""

from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

from gateway.prompt.compiled.arrays import EMPTY, NONE, Bytes, Ids, Memo, Vocabulary, Words
from gateway.prompt.compiled.kinds import CODE_POINTS, Kind, Kinds
from gateway.prompt.compiled.rules import Family

P = ParamSpec("P")
R = TypeVar("R")
Int = int | np.int64

MAX_PIECE_BYTES = 255
"""Merging takes the square of a piece's length; a longer piece is for others to merge, and no
longer token is in a vocabulary."""

MAX_SPELLED_BYTES = 2**24

UNSURE = -1
ENDS = 7
"""The kind of what is behind a text: none of the others."""

SIGN, LETTER, NUMBER = int(Kind.SIGN), int(Kind.LETTER), int(Kind.NUMBER)
SPACE, LINE_END, DOUBTFUL = int(Kind.SPACE), int(Kind.LINE_END), int(Kind.UNSURE)
GPT2 = int(Family.GPT2)
APOSTROPHE = 0x27


def compiled(function: Callable[P, R]) -> Callable[P, R]:
    """Compiled at the first call and kept on disk, where there is a disk to write to."""
    compiler: Any = njit(nogil=True, cache=True)
    try:
        return cast("Callable[P, R]", compiler(function))
    except RuntimeError:
        return cast("Callable[P, R]", njit(nogil=True)(function))


@intrinsic
def _load(typing_context: Any, array: Any, at: Any) -> Any:
    """Eight bytes from `at` on as a word, the first one lowest."""

    def build(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        place = builder.bitcast(builder.gep(data, [args[1]]), ir.IntType(64).as_pointer())
        return builder.load(place, align=1)

    return types.int64(array, types.intp), build


load = cast("Callable[[Bytes, Int], np.int64]", _load)


@compiled
def fill(tokens: Ids, stops: Words, vocabulary: Vocabulary) -> None:
    """Put in all tokens: `spelled` has their bytes one after the other up to `stops`, and the
    slots are empty."""
    slots, spelled = vocabulary.slots, vocabulary.spelled
    mask = slots.shape[0] - 1
    start = 0
    for i in range(tokens.shape[0]):
        stop = stops[i]
        size = stop - start
        if size == 1:
            vocabulary.byte_ids[spelled[start]] = tokens[i]
        elif size == 2:
            vocabulary.pair_ids[np.int64(spelled[start]) << 8 | spelled[start + 1]] = tokens[i]
        key = _key(spelled, start, stop)
        slot = _mixed(key, size) & mask
        while slots[slot, 1] != EMPTY:
            slot = (slot + 1) & mask
        slots[slot, 0] = key
        slots[slot, 1] = size << 55 | start << 31 | tokens[i]
        start = stop


@compiled
def encode(
    text: Bytes, kinds: Kinds, rules: tuple[int, int, bool], vocabulary: Vocabulary, memo: Memo,
    out: Ids,
) -> Int:  # fmt: skip
    """The number of ids, which are in `out`, as long as `text`; -1 for a text that must be split
    or merged by others. `rules` are family, max_digits and numbers_first."""
    family, max_digits, numbers_first = rules
    starts = np.empty(MAX_PIECE_BYTES + 1, np.int64)
    pairs = np.empty(MAX_PIECE_BYTES, np.int32)
    at: Int = 0
    start: Int = 0
    while start < text.shape[0]:
        if family == GPT2:
            stop = _gpt2_stop(text, start, kinds, max_digits, numbers_first)
        else:
            stop = _gpt4_stop(text, start, kinds, max_digits)
        if stop == UNSURE or stop - start > MAX_PIECE_BYTES:
            return UNSURE
        token = _token(text, start, stop, vocabulary)
        if token != NONE:
            out[at] = token
            at += 1
        else:
            num_parts = _recall(text, start, stop, memo, out[at:])
            if num_parts == 0:
                num_parts = _merge(text, start, stop, vocabulary, starts, out[at:], pairs)
                if num_parts == UNSURE:
                    return UNSURE
                _remember(text, start, stop, memo, out[at : at + num_parts])
            at += num_parts
        start = stop
    return at


@compiled
def _gpt2_stop(text: Bytes, start: Int, kinds: Kinds, max_digits: Int, numbers_first: bool) -> Int:
    """Where the piece that begins at `start` ends, by `BYTE_LEVEL` or `AFTER_DIGITS`."""
    kind, after = _kind(text, start, kinds)
    if kind == DOUBTFUL:
        return UNSURE
    if kind == NUMBER:
        return _numbers_stop(text, after, kinds, max_digits)
    if text[start] == APOSTROPHE:
        size = _contraction(text, start, np.uint8(0))
        if size:
            return start + size
    if kind == SPACE:
        following, behind = _kind(text, after, kinds)
        if following <= NUMBER and not (numbers_first and following == NUMBER):
            return _run_stop(text, behind, kinds, following)
    if kind < SPACE:
        return _run_stop(text, after, kinds, kind)
    stop, last, _ = _blanks(text, start, after, kinds)
    following, _ = _kind(text, stop, kinds)
    keeps_all = following == ENDS or last == start or (numbers_first and following == NUMBER)
    return stop if keeps_all else last


@compiled
def _gpt4_stop(text: Bytes, start: Int, kinds: Kinds, max_digits: Int) -> Int:
    """Where the piece that begins at `start` ends, by an expression like `CL100K`."""
    kind, after = _kind(text, start, kinds)
    if kind == DOUBTFUL:
        return UNSURE
    if kind == LETTER:
        return _run_stop(text, after, kinds, LETTER)
    if kind == NUMBER:
        return _numbers_stop(text, after, kinds, max_digits)
    following, behind = _kind(text, after, kinds)
    if text[start] == APOSTROPHE:
        size = _contraction(text, start, np.uint8(0x20))
        if size:
            return start + size
    if kind != LINE_END and following == LETTER:
        return _run_stop(text, behind, kinds, LETTER)
    if kind == SIGN or (kind == SPACE and following == SIGN):
        stop = _run_stop(text, after, kinds, SIGN)
        while stop < text.shape[0] and (text[stop] == 0x0A or text[stop] == 0x0D):
            stop += 1
        return stop
    stop, last, line_stop = _blanks(text, start, after, kinds)
    if line_stop:
        return line_stop
    following, _ = _kind(text, stop, kinds)
    return stop if following == ENDS or last == start else last


@compiled
def _kind(text: Bytes, at: Int, kinds: Kinds) -> tuple[Int, Int]:
    """The kind of the character at `at`, and where the next one begins."""
    if at >= text.shape[0]:
        return ENDS, at
    first = np.int64(text[at])
    if first < 0x80:
        return np.int64(kinds[first]), at + 1
    if first < 0xE0:
        point = (first & 0x1F) << 6 | (text[at + 1] & 0x3F)
        return np.int64(kinds[point]), at + 2
    point = (first & 0x0F) << 6 | (text[at + 1] & 0x3F)
    point = point << 6 | (text[at + 2] & 0x3F)
    if first < 0xF0:
        return np.int64(kinds[point]), at + 3
    point = point << 6 | (text[at + 3] & 0x3F)
    if point >= CODE_POINTS:
        return DOUBTFUL, at + 4
    return np.int64(kinds[point]), at + 4


@compiled
def _run_stop(text: Bytes, at: Int, kinds: Kinds, wanted: Int) -> Int:
    """The end of a run of one kind of characters."""
    while True:
        kind, after = _kind(text, at, kinds)
        if kind != wanted:
            return at
        at = after


@compiled
def _numbers_stop(text: Bytes, at: Int, kinds: Kinds, max_digits: Int) -> Int:
    """`at` is behind the first digit."""
    num_digits = 1
    while num_digits != max_digits:
        kind, after = _kind(text, at, kinds)
        if kind != NUMBER:
            break
        at = after
        num_digits += 1
    return at


@compiled
def _blanks(text: Bytes, start: Int, after: Int, kinds: Kinds) -> tuple[Int, Int, Int]:
    """Of the run of blanks at `start`: its end, where its last blank begins, and the end of its
    last end of a line, or 0."""
    at, last = after, start
    line_stop: Int = 0
    kind, _ = _kind(text, start, kinds)
    while True:
        if kind == LINE_END:
            line_stop = at
        kind, after = _kind(text, at, kinds)
        if kind < SPACE or kind > LINE_END:
            return at, last, line_stop
        last, at = at, after


@compiled
def _contraction(text: Bytes, start: Int, case: np.uint8) -> Int:
    """The size of 's, 'd, 'm, 't, 'll, 've or 're at `start`, or 0; `case` is the bit that does
    not matter."""
    if start + 1 >= text.shape[0]:
        return 0
    first = text[start + 1] | case
    if first == 0x73 or first == 0x64 or first == 0x6D or first == 0x74:
        return 2
    if start + 2 >= text.shape[0]:
        return 0
    second = text[start + 2] | case
    if first == 0x6C and second == 0x6C:
        return 3
    return 3 if (first == 0x76 or first == 0x72) and second == 0x65 else 0


@compiled
def _recall(text: Bytes, start: Int, stop: Int, memo: Memo, out: Ids) -> Int:
    """The number of the piece's tokens, which are then in `out`; 0 when it is not known."""
    size = stop - start
    row = _mixed(_key(text, start, stop), size) & (memo.pieces.shape[0] - 1)
    if memo.pieces[row, 0] != size:
        return 0
    for i in range(size):
        if memo.pieces[row, 2 + i] != text[start + i]:
            return 0
    num_ids = np.int64(memo.pieces[row, 1])
    for i in range(num_ids):
        out[i] = memo.ids[row, i]
    return num_ids


@compiled
def _remember(text: Bytes, start: Int, stop: Int, memo: Memo, ids: Ids) -> None:
    size = stop - start
    if size > memo.pieces.shape[1] - 2 or ids.shape[0] > memo.ids.shape[1]:
        return
    row = _mixed(_key(text, start, stop), size) & (memo.pieces.shape[0] - 1)
    memo.pieces[row, 0], memo.pieces[row, 1] = size, ids.shape[0]
    for i in range(size):
        memo.pieces[row, 2 + i] = text[start + i]
    for i in range(ids.shape[0]):
        memo.ids[row, i] = ids[i]


@compiled
def _merge(  # noqa: PLR0913
    text: Bytes, start: Int, stop: Int, vocabulary: Vocabulary, starts: Words, parts: Ids,
    pairs: Ids,
) -> Int:  # fmt: skip
    """Merge neighbours, the lowest id first, the leftmost of equals; the number of `parts`."""
    size = stop - start
    for i in range(size):
        starts[i] = start + i
        parts[i] = vocabulary.byte_ids[text[start + i]]
        pairs[i] = NONE if i == size - 1 else _pair(text, start + i, vocabulary)
        if parts[i] == NONE:
            return UNSURE
    starts[size] = stop
    while size > 1:
        at = _lowest(pairs, size - 1)
        if pairs[at] == NONE:
            break
        parts[at] = pairs[at]
        size -= 1
        for i in range(at + 1, size):
            starts[i], parts[i], pairs[i] = starts[i + 1], parts[i + 1], pairs[i + 1]
        starts[size] = stop
        if at + 1 < size:
            pairs[at] = _token(text, starts[at], starts[at + 2], vocabulary)
        if at > 0:
            pairs[at - 1] = _token(text, starts[at - 1], starts[at + 1], vocabulary)
    return size


@compiled
def _pair(text: Bytes, start: Int, vocabulary: Vocabulary) -> Int:
    return np.int64(vocabulary.pair_ids[np.int64(text[start]) << 8 | text[start + 1]])


@compiled
def _lowest(pairs: Ids, num_pairs: Int) -> Int:
    """In two loops, of which the first becomes vector code."""
    lowest = pairs[0]
    for i in range(1, num_pairs):
        lowest = min(lowest, pairs[i])
    at = 0
    while pairs[at] != lowest:
        at += 1
    return at


@compiled
def _token(text: Bytes, start: Int, stop: Int, vocabulary: Vocabulary) -> Int:
    """The id of the token that is text[start:stop], or NONE."""
    size = stop - start
    if size == 1:
        return np.int64(vocabulary.byte_ids[text[start]])
    if size == 2:
        return _pair(text, start, vocabulary)
    slots, spelled = vocabulary.slots, vocabulary.spelled
    mask = slots.shape[0] - 1
    key = _key(text, start, stop)
    slot = _mixed(key, size) & mask
    while slots[slot, 1] != EMPTY:
        told = slots[slot, 1]
        if slots[slot, 0] == key and told >> 55 == size:
            begins = told >> 31 & 0xFFFFFF
            i = 0 if size > 8 else size
            while i < size and spelled[begins + i] == text[start + i]:
                i += 1
            if i == size:
                return np.int64(told & 0x7FFFFFFF)
        slot = (slot + 1) & mask
    return NONE


@compiled
def _key(text: Bytes, start: Int, stop: Int) -> Int:
    """Up to 8 bytes as they are, more of them hashed."""
    size = stop - start
    if size > 8:
        key = np.uint64(0)
        for at in range(start, stop - 8, 8):
            key = (key ^ np.uint64(load(text, at))) * np.uint64(0x9E3779B97F4A7C15)
            key ^= key >> np.uint64(32)
        return np.int64(key ^ np.uint64(load(text, stop - 8)))
    if start + 8 <= text.shape[0]:
        # Bytes behind the piece are shifted out.
        above = np.uint64(64 - 8 * size)
        return np.int64(np.uint64(load(text, start)) << above >> above)
    key = np.uint64(0)
    for i in range(size):
        key |= np.uint64(text[start + i]) << np.uint64(8 * i)
    return np.int64(key)


@compiled
def _mixed(key: Int, size: Int) -> Int:
    """A hash of 32 bits."""
    mixed = (np.uint64(key) + np.uint64(size)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ mixed >> np.uint64(29)) * np.uint64(0xBF58476D1CE4E5B9)
    return np.int64(mixed >> np.uint64(32))
