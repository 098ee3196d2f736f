"""One worksheet, as XML events, to rows of texts. Knows cells, neither workbooks nor layout."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from ingest.parsing.numbers import Look, shown
from ingest.parsing.ooxml import END, START, Event, is_on, whole

MAX_GAP_CELLS = 20
"""More empty cells than this between two others are counted instead of written."""
MAX_COLUMN = 16_384
REFERENCE = re.compile(r"([A-Z]{1,3})[0-9]*$")
ESCAPED = re.compile(r"_x([0-9A-Fa-f]{4})_")
BOOLEANS = {"0": "FALSE", "1": "TRUE"}
ELEMENTS = frozenset({"row", "col", "c", "v", "t", "f", "rPh"})
"""All that `SheetReader.rows` wants to be told of."""
TEXT_KINDS = frozenset({"s", "str", "inlineStr"})


@dataclass(frozen=True, slots=True)
class Meanings:
    """What cells refer to: texts by number, ways to show numbers by number."""

    strings: Sequence[str]
    looks: Sequence[Look]
    is_1904: bool


@dataclass(slots=True)
class Row:
    number: int | None
    texts: list[str] = field(default_factory=list)
    is_all_text: bool = True


@dataclass(slots=True)
class Cell:
    column: int | None
    kind: str
    look: int
    value: list[str] = field(default_factory=list)
    formula: list[str] | None = None


class SheetReader:
    def __init__(self, meanings: Meanings) -> None:
        self._meanings = meanings
        self._cell: Cell | None = None
        self._row = Row(None)
        self._column = 0
        self._into: list[str] | None = None
        self._is_phonetic = False
        self.num_uncomputed = 0
        self.has_hidden = False

    def rows(self, events: Iterable[Event]) -> Iterator[Row]:
        """Rows with at least one cell that holds something."""
        for step, name, attributes in events:
            if step is START:
                self._start(name, attributes)
            elif step is not END:
                if self._into is not None:
                    self._into.append(name)
            elif name == "row":
                if any(self._row.texts):
                    yield self._row
            else:
                self._end(name)

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "c":
            self._cell = Cell(
                column_of(attributes.get("r", "")),
                attributes.get("t", "n"),
                whole(attributes.get("s")) or 0,
            )
        elif name == "row":
            self._row, self._column = Row(whole(attributes.get("r"))), 0
            self._see_hidden(attributes)
        elif name == "col":
            self._see_hidden(attributes)
        elif name == "rPh":
            self._is_phonetic = True
        elif self._cell is not None:
            if name == "v" or (name == "t" and not self._is_phonetic):
                self._into = self._cell.value
            elif name == "f":
                self._into = self._cell.formula = []

    def _end(self, name: str) -> None:
        if name in ("v", "t", "f"):
            self._into = None
        elif name == "rPh":
            self._is_phonetic = False
        elif name == "c" and self._cell is not None:
            self._place(self._cell)
            self._cell = None

    def _place(self, cell: Cell) -> None:
        text = self._text(cell)
        if not text:
            return
        column = max(cell.column or 0, self._column + 1)
        num_empty = min(column, MAX_COLUMN) - self._column - 1
        if num_empty > MAX_GAP_CELLS:
            self._row.texts.append(f"({num_empty} empty cells)")
        elif num_empty > 0:
            self._row.texts.extend([""] * num_empty)
        self._row.texts.append(text)
        self._row.is_all_text &= cell.kind in TEXT_KINDS
        self._column = column

    def _text(self, cell: Cell) -> str:
        stored = "".join(cell.value)
        if not stored and cell.formula is not None:
            self.num_uncomputed += 1
            return f"={''.join(cell.formula) or '(shared formula)'}"
        match cell.kind:
            case "s":
                index = whole(stored)
                strings = self._meanings.strings
                return strings[index] if index is not None and index < len(strings) else stored
            case "b":
                return BOOLEANS.get(stored, stored)
            case "n":
                look = self._look(cell.look)
                return shown(stored, look, is_1904=self._meanings.is_1904) if stored else ""
            case _:
                return unescaped(stored)

    def _look(self, index: int) -> Look:
        looks = self._meanings.looks
        return looks[index] if index < len(looks) else Look.PLAIN

    def _see_hidden(self, attributes: Mapping[str, str]) -> None:
        self.has_hidden |= "hidden" in attributes and is_on(attributes, "hidden")


def column_of(reference: str) -> int | None:
    """As in 28 for "AB7"."""
    found = REFERENCE.match(reference)
    if found is None:
        return None
    column = 0
    for letter in found[1]:
        column = column * 26 + ord(letter) - ord("A") + 1
    return column


def unescaped(text: str) -> str:
    """Office writes characters that XML forbids as _x000D_."""
    if "_x" not in text:
        return text
    return ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)
