"""The automatic numbers of Word's lists and headings, as a reader of the page sees them.

Knows numbering.xml and counts; knows no text.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from ingest.parsing.ooxml import END, START, Package, whole

NUM_LEVELS = 9
PLACEHOLDER = re.compile(r"%([1-9])")
BULLET = "-"
ELEMENTS = frozenset(
    {"abstractNum", "num", "abstractNumId", "lvl", "lvlOverride", "startOverride"}
    | {"start", "numFmt", "lvlText"}
)
ROMAN = (
    (1000, "m"), (900, "cm"), (500, "d"), (400, "cd"), (100, "c"), (90, "xc"),
    (50, "l"), (40, "xl"), (10, "x"), (9, "ix"), (5, "v"), (4, "iv"), (1, "i"),
)  # fmt: skip
MAX_ROMAN = 4_000


@dataclass(slots=True)
class ListLevel:
    start: int = 1
    style: str = "decimal"
    pattern: str = ""


@dataclass(slots=True)
class Numbering:
    """Counters of all lists of a document; a label must be asked for in reading order."""

    abstract_of: Mapping[str, str]
    levels: Mapping[tuple[str, int], ListLevel]
    starts: Mapping[tuple[str, int], int] = field(default_factory=dict)
    """Where a list, by its own id, restarts a level."""
    _counts: dict[str, list[int | None]] = field(default_factory=dict)
    """The numbers shown last at each level."""
    _seen: set[str] = field(default_factory=set)

    def label(self, num_id: str, depth: int) -> str:
        """As in "4.2" or "-"; empty for a list that is not defined."""
        abstract = self.abstract_of.get(num_id, "")
        level = self.levels.get((abstract, depth))
        if level is None:
            return ""
        if level.style == "bullet":
            return BULLET
        counts = self._counts.setdefault(abstract, [None] * NUM_LEVELS)
        self._restart(num_id, counts)
        for above in range(depth):
            counts[above] = self._begin(abstract, above) if counts[above] is None else counts[above]
        count = counts[depth]
        counts[depth] = self._begin(abstract, depth) if count is None else count + 1
        counts[depth + 1 :] = [None] * (NUM_LEVELS - depth - 1)
        label = PLACEHOLDER.sub(
            lambda found: self._number(abstract, counts, int(found[1]) - 1), level.pattern
        )
        return label.strip()

    def _restart(self, num_id: str, counts: list[int | None]) -> None:
        if num_id in self._seen:
            return
        self._seen.add(num_id)
        for depth in range(NUM_LEVELS):
            if (num_id, depth) in self.starts:
                counts[depth] = self.starts[num_id, depth] - 1

    def _begin(self, abstract: str, depth: int) -> int:
        level = self.levels.get((abstract, depth))
        return level.start if level is not None else 1

    def _number(self, abstract: str, counts: list[int | None], depth: int) -> str:
        level, number = self.levels.get((abstract, depth)), counts[depth]
        return "" if number is None or level is None else shown(number, level.style)


def read_numbering(package: Package, main: str) -> Numbering:
    reader = Reader()
    for part in package.related(main, "numbering"):
        for step, name, attributes in package.events(part, ELEMENTS):
            if step is START:
                reader.start(name, attributes)
            elif step is END and name == "abstractNum":
                reader.abstract = ""
    return Numbering(reader.abstract_of, reader.levels, reader.starts)


class Reader:
    def __init__(self) -> None:
        self.abstract_of: dict[str, str] = {}
        self.levels: dict[tuple[str, int], ListLevel] = {}
        self.starts: dict[tuple[str, int], int] = {}
        self.abstract = ""
        self._num_id = ""
        self._depth = 0

    def start(self, name: str, attributes: Mapping[str, str]) -> None:
        value = attributes.get("val", "")
        match name:
            case "abstractNum":
                self.abstract = attributes.get("abstractNumId", "")
            case "num":
                self._num_id = attributes.get("numId", "")
            case "abstractNumId":
                self.abstract_of[self._num_id] = value
            case "lvl" | "lvlOverride":
                self._depth = min(whole(attributes.get("ilvl")) or 0, NUM_LEVELS - 1)
                if name == "lvl" and self.abstract:
                    self.levels[self.abstract, self._depth] = ListLevel()
            case "startOverride":
                self.starts[self._num_id, self._depth] = whole(value) or 0
            case "start" | "numFmt" | "lvlText":
                level = self.levels.get((self.abstract, self._depth))
                if level is not None:
                    _define(level, name, value)


def _define(level: ListLevel, name: str, value: str) -> None:
    if name == "start":
        level.start = whole(value) or 0
    elif name == "numFmt":
        level.style = value
    else:
        level.pattern = value


def shown(number: int, style: str) -> str:
    match style:
        case "lowerLetter":
            return _letters(number)
        case "upperLetter":
            return _letters(number).upper()
        case "lowerRoman":
            return _roman(number)
        case "upperRoman":
            return _roman(number).upper()
        case "decimalZero":
            return f"{number:02}"
        case "none":
            return ""
        case _:
            return str(number)


def _letters(number: int) -> str:
    """Word goes on from z with aa, bb, cc."""
    if not 0 < number <= 26 * 30:
        return str(number)
    times, index = divmod(number - 1, 26)
    return chr(ord("a") + index) * (times + 1)


def _roman(number: int) -> str:
    if not 0 < number < MAX_ROMAN:
        return str(number)
    digits = ""
    for value, letters in ROMAN:
        while number >= value:
            digits += letters
            number -= value
    return digits
