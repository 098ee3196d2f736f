"""One part of a Word document, as XML events, to paragraphs, table rows and headings.

Knows WordprocessingML's paragraphs; knows neither packages nor what a part is for. Tracked
insertions are read, deletions and moved-away text are not.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ingest.parsing.manuscript import Manuscript, joined, one_line
from ingest.parsing.numbering import NUM_LEVELS, Numbering
from ingest.parsing.ooxml import END, START, Event, is_on, whole

TITLE_NAME = re.compile(r"title$", re.I)
HEADING_NAME = re.compile(r"heading ([1-9])$", re.I)
BODY_TEXT_LEVEL = 9
MAX_BASED_ON = 20
SKIPPED = frozenset({"Fallback", "moveFrom"})
PROPERTIES = frozenset({"pPr", "rPr", "sectPr", "tblPr", "tcPr", "trPr"})
WRITTEN = {"tab": "\t", "br": "\n", "cr": "\n", "noBreakHyphen": "-"}
MARKS = {"footnoteReference": "note", "endnoteReference": "endnote"}
NOTES = {"footnote": "note", "endnote": "endnote"}
FRAMES = frozenset({"tbl", "tr", "tc", "comment", "delText", "p", "t"})
IN_PROPERTIES = frozenset({"pStyle", "outlineLvl", "numId", "ilvl", "vanish"})
STORY_ELEMENTS = FRAMES | IN_PROPERTIES | PROPERTIES | SKIPPED | {*WRITTEN, *MARKS, *NOTES}
"""All that `Story.read` wants to be told of."""
SEPARATORS = frozenset({"separator", "continuationSeparator", "continuationNotice"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Style:
    name: str = ""
    based_on: str = ""
    outline: int | None = None
    num_id: str = ""
    depth: int = 0


@dataclass(frozen=True, slots=True)
class Looks:
    """What a paragraph's properties mean in this document."""

    styles: Mapping[str, Style]
    numbering: Numbering

    def chain(self, style_id: str) -> Iterable[Style]:
        """A style and what it is based on."""
        for _ in range(MAX_BASED_ON):
            style = self.styles.get(style_id)
            if style is None:
                return
            yield style
            style_id = style.based_on

    def level(self, style_id: str) -> int | None:
        """Title is level 1; "heading 1" and outline level 0 are level 2."""
        for style in self.chain(style_id):
            heading = HEADING_NAME.match(style.name)
            if heading:
                return int(heading[1]) + 1
            if TITLE_NAME.match(style.name):
                return 1
            if style.outline is not None:
                return outline_level(style.outline)
        return None

    def listed(self, style_id: str) -> tuple[str, int]:
        for style in self.chain(style_id):
            if style.num_id:
                return style.num_id, style.depth
        return "", 0


@dataclass(slots=True)
class Tally:
    """What the notes will tell."""

    paragraphs: int = 0
    tables: int = 0
    deletions: int = 0
    moves: int = 0
    hidden: int = 0


@dataclass(slots=True)
class Paragraph:
    pieces: list[str] = field(default_factory=list)
    level: int | None = None
    num_id: str = ""
    depth: int = 0


@dataclass(slots=True)
class Table:
    row: list[str] = field(default_factory=list)
    cell: list[str] | None = None


class Story:
    """Writes to `manuscript` what it is given; a text box comes before its paragraph."""

    def __init__(self, looks: Looks, tally: Tally, manuscript: Manuscript) -> None:
        self._looks = looks
        self._tally = tally
        self._manuscript = manuscript
        self._paragraphs: list[Paragraph] = []
        self._tables: list[Table] = []
        self._num_skipping = 0
        self._num_properties = 0
        self._takes_text = False
        self._was_item = False
        self._prefix = ""

    def read(self, events: Iterable[Event]) -> None:
        for step, name, attributes in events:
            if self._num_skipping:
                self._num_skipping += (step is START) - (step is END)
            elif step is START:
                self._start(name, attributes)
            elif step is END:
                self._end(name)
            elif self._takes_text:
                self._put(name)

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "t":
            self._takes_text = True
        elif name == "p":
            self._paragraphs.append(Paragraph())
        elif name in PROPERTIES:
            self._num_properties += 1
        elif self._num_properties:
            self._property(name, attributes)
        elif name in WRITTEN:
            self._put(WRITTEN[name])
        elif name in MARKS:
            self._put(f"[{MARKS[name]} {attributes.get('id', '')}]")
        elif name in SKIPPED:
            self._num_skipping = 1
            self._tally.moves += name == "moveFrom"
        elif name == "delText":
            self._tally.deletions += 1
        else:
            self._start_frame(name, attributes)

    def _start_frame(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "tbl":
            self._around_table()
            self._tables.append(Table())
        elif name == "tr" and self._tables:
            self._tables[-1].row = []
        elif name == "tc" and self._tables:
            self._tables[-1].cell = []
        elif name in NOTES and attributes.get("type") in SEPARATORS:
            self._num_skipping = 1
        elif name in NOTES:
            self._prefix = f"[{NOTES[name]} {attributes.get('id', '')}] "
        elif name == "comment":
            self._prefix = f"Comment by {attributes.get('author') or 'someone'}: "

    def _property(self, name: str, attributes: Mapping[str, str]) -> None:
        value = attributes.get("val", "")
        if name == "vanish":
            self._tally.hidden += is_on(attributes)
        if not self._paragraphs:
            return
        paragraph = self._paragraphs[-1]
        if name == "pStyle":
            paragraph.level = self._looks.level(value)
            paragraph.num_id, paragraph.depth = self._looks.listed(value)
        elif name == "outlineLvl":
            paragraph.level = outline_level(whole(value))
        elif name == "numId":
            paragraph.num_id = value
        elif name == "ilvl":
            paragraph.depth = min(whole(value) or 0, NUM_LEVELS - 1)

    def _end(self, name: str) -> None:
        if name == "t":
            self._takes_text = False
        elif name in PROPERTIES:
            self._num_properties -= 1
        elif name == "p" and self._paragraphs:
            self._end_paragraph(self._paragraphs.pop())
        elif name == "tc" and self._tables:
            self._end_cell(self._tables[-1])
        elif name == "tr" and self._tables:
            self._end_row(self._tables[-1].row)
        elif name == "tbl" and self._tables:
            self._tables.pop()
            self._tally.tables += 1
            self._around_table()

    def _end_paragraph(self, paragraph: Paragraph) -> None:
        bare = "".join(paragraph.pieces)
        if not bare.strip():
            return
        label = ""
        if paragraph.num_id:
            label = self._looks.numbering.label(paragraph.num_id, paragraph.depth)
        text = f"{self._prefix}{label} {bare}" if label else self._prefix + bare
        self._prefix = ""
        self._tally.paragraphs += 1
        if self._tables and self._tables[-1].cell is not None:
            self._tables[-1].cell.append(text)
        else:
            self._write(text, paragraph)

    def _write(self, text: str, paragraph: Paragraph) -> None:
        is_item = bool(paragraph.num_id) and paragraph.level is None
        if paragraph.level is not None:
            self._manuscript.heading(paragraph.level, one_line(text))
        elif is_item and self._was_item:
            self._manuscript.line(text)
        else:
            self._manuscript.block("")
            self._manuscript.line(text)
            if not is_item:
                self._manuscript.block("")
        self._was_item = is_item

    def _around_table(self) -> None:
        if not self._tables:
            self._was_item = False
            self._manuscript.block("")

    def _end_cell(self, table: Table) -> None:
        table.row.append(" ".join(table.cell or []))
        table.cell = None

    def _end_row(self, row: list[str]) -> None:
        if len(self._tables) == 1:
            self._manuscript.row(row)
            return
        outer = self._tables[-2]
        if outer.cell is not None:
            outer.cell.append(joined(row))

    def _put(self, text: str) -> None:
        if self._paragraphs:
            self._paragraphs[-1].pieces.append(text)


def outline_level(outline: int | None) -> int | None:
    return outline + 2 if outline is not None and outline < BODY_TEXT_LEVEL else None
