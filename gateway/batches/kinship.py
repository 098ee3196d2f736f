"""Which lines of a batch begin with the same text, so that it can be prefilled once. Pure.

A line's prompt is digested at growing lengths and after every attached file; two lines are kin by
the longest beginning that they share with anybody.
"""

import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import msgspec

MARKS = tuple(1024 * 4**i for i in range(8))
"""Lengths in bytes at which a beginning is remembered: 1 KiB to 16 MiB."""

Digests = tuple[str, ...]


def beginnings(body: Mapping[str, object]) -> Digests:
    """Digests of the beginnings of a line's prompt, shortest first."""
    digest = hashlib.blake2b(digest_size=12)
    found: list[str] = []
    num_bytes = 0
    marks = list(MARKS)
    for text, is_file in _atoms(body):
        piece = text.encode("utf-8", "surrogatepass")
        while marks and num_bytes + len(piece) >= marks[0]:
            cut = marks.pop(0) - num_bytes
            digest.update(piece[:cut])
            piece, num_bytes = piece[cut:], num_bytes + cut
            found.append(digest.hexdigest())
        digest.update(piece)
        num_bytes += len(piece)
        if is_file:
            found.append(digest.hexdigest())
    return tuple(found)


def kinships(lines: Sequence[Digests]) -> list[str]:
    """For each line the longest beginning that another has too; "" when there is none."""
    counts = Counter(one for digests in lines for one in set(digests))
    return [next((one for one in reversed(digests) if counts[one] > 1), "") for digests in lines]


def _atoms(body: Mapping[str, object]) -> Iterator[tuple[str, bool]]:
    """The prompt's texts in the order in which a model reads them; files by their id."""
    for document in _list(body.get("documents")):
        yield _said(document), True
    for name in ("tools", "instructions", "prompt"):
        if body.get(name) is not None:
            yield _said(body[name]), False
    turns = body.get("messages", body.get("input"))
    for turn in _list(turns):
        content = turn.get("content") if isinstance(turn, Mapping) else turn
        for part in _list(content):
            yield _said(part), isinstance(part, Mapping) and "file" in str(part.get("type"))


def _list(value: object) -> Sequence[object]:
    if value is None:
        return ()
    return value if isinstance(value, list) else [value]


def _said(value: object) -> str:
    """A text as it is, so that one that goes on after it still begins with it."""
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping) and isinstance(value.get("text"), str):
        return str(value["text"])
    return msgspec.json.encode(value).decode()
