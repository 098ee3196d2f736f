"""The regular expression by which a tokenizer.json splits its texts; knows no tokens."""

from collections.abc import Iterable
from typing import NotRequired, TypedDict

WORDS = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+"
SIGNS = r" ?[^\s\p{L}\p{N}]+"
BYTE_LEVEL = rf"{WORDS}| ?\p{{N}}+|{SIGNS}|\s+(?!\S)|\s+"
"""How `tokenizers`' ByteLevel splits. Both engines agree on \\p{L}, \\p{N} and \\s for all of
Unicode (each code point was compared)."""
AFTER_DIGITS = rf"%s|{WORDS}|{SIGNS}|\s+(?![^\s\p{{N}}])|\s+"
"""The same of what is between digits split off before; a run of spaces then also ends at one."""

NEVER = "\ue000\ue001never\ue001\ue000"
"""tiktoken searches slowly for no special tokens at all; this one is never allowed."""


class Splitter(TypedDict):
    type: str
    pretokenizers: NotRequired[list["Splitter"]]
    pattern: NotRequired[dict[str, str]]
    behavior: NotRequired[str]
    invert: NotRequired[bool]
    add_prefix_space: NotRequired[bool]
    use_regex: NotRequired[bool]
    individual_digits: NotRequired[bool]


def expression_of(splitter: Splitter | None) -> str | None:
    """The pre-tokenizer as one regular expression; None when it is not one of the known kinds."""
    steps = list(_flat(splitter))
    if not steps or steps[-1]["type"] != "ByteLevel" or steps[-1].get("add_prefix_space"):
        return None
    before, splits_words = steps[:-1], steps[-1].get("use_regex", True)
    if not before:
        return BYTE_LEVEL if splits_words else None
    [first, *others] = before
    if others:
        return None
    if first["type"] == "Digits" and splits_words:
        return AFTER_DIGITS % (r"\p{N}" if first.get("individual_digits") else r"\p{N}+")
    if first["type"] == "Split" and not splits_words:
        keeps = (first.get("behavior"), first.get("invert", False))
        if keeps in (("Isolated", False), ("Removed", True)):
            return first.get("pattern", {}).get("Regex")
    return None


def _flat(splitter: Splitter | None) -> Iterable[Splitter]:
    if splitter is None:
        return
    if splitter["type"] == "Sequence":
        for one in splitter.get("pretokenizers", []):
            yield from _flat(one)
        return
    yield splitter
