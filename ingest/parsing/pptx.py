"""PowerPoint presentations to text: slide by slide, with tables, speaker notes and comments.

Knows PresentationML and the text of DrawingML, not how they are zipped.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ingest.api import PermanentError
from ingest.parsing.manuscript import Manuscript, counted, joined, numbered, one_line
from ingest.parsing.ooxml import END, START, TEXT, Event, Package, is_on
from ingest.parsing.parsed import Parsed, ParseLimits

TITLE_LEVEL = 1
TITLES = frozenset({"title", "ctrTitle"})
UNSAID = frozenset({"sldNum", "sldImg"})
"""Placeholders that hold no words of the author."""
SHAPES = frozenset({"sp", "graphicFrame", "cxnSp"})
ELEMENTS = SHAPES | {"t", "br", "ph", "p", "tr", "tc", "sld"}


@dataclass(slots=True)
class Shape:
    placeholder: str | None = None
    lines: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Slide:
    """The texts of one part in the order in which they are drawn."""

    shapes: list[Shape] = field(default_factory=list)
    is_hidden: bool = False

    def title(self) -> str:
        titles = [each for each in self.shapes if each.placeholder in TITLES]
        return one_line(" ".join(line for each in titles for line in each.lines))

    def body(self) -> list[Shape]:
        return [each for each in self.shapes if each.placeholder not in TITLES | UNSAID]


class SlideReader:
    """Collects the shapes of a slide, of its speaker notes or of a diagram."""

    def __init__(self) -> None:
        self.slide = Slide()
        self._shape = Shape()
        self._pieces: list[str] = []
        self._row: list[str] = []
        self._cell: list[str] | None = None
        self._takes_text = False

    def read(self, events: Iterable[Event]) -> Slide:
        self.slide.shapes.append(self._shape)
        for step, name, attributes in events:
            if step is START:
                self._start(name, attributes)
            elif step is END:
                self._end(name)
            elif self._takes_text:
                self._pieces.append(name)
        return self.slide

    def _start(self, name: str, attributes: Mapping[str, str]) -> None:
        if name == "t":
            self._takes_text = True
        elif name == "br":
            self._pieces.append("\n")
        elif name in SHAPES:
            self._shape = Shape()
            self.slide.shapes.append(self._shape)
        elif name == "ph":
            self._shape.placeholder = attributes.get("type", "body")
        elif name == "tr":
            self._row = []
        elif name == "tc":
            self._cell = []
        elif name == "sld":
            self.slide.is_hidden = not is_on(attributes, "show")

    def _end(self, name: str) -> None:
        if name == "t":
            self._takes_text = False
        elif name == "p":
            text = "".join(self._pieces).strip()
            self._pieces = []
            if text:
                (self._shape.lines if self._cell is None else self._cell).append(text)
        elif name == "tc":
            self._row.append(" ".join(self._cell or []))
            self._cell = None
        elif name == "tr" and joined(self._row):
            self._shape.lines.append(joined(self._row))


def parse_pptx(raw: bytes, limits: ParseLimits) -> Parsed:
    """A slide is a page. Raises PermanentError for a broken or overblown file or an empty one."""
    package = Package(raw, limits)
    parts = _slide_parts(package)
    if len(parts) > limits.max_pages:
        raise PermanentError(
            f"The presentation has {len(parts)} slides; the limit is {limits.max_pages} slides."
        )
    manuscript = Manuscript("presentation", limits)
    hidden, blank = list[int](), list[int]()
    for number, part in enumerate(parts, start=1):
        manuscript.page()
        slide = _read(package, part)
        if slide.is_hidden:
            hidden.append(number)
        if not _write_slide(manuscript, package, part, slide, number):
            blank.append(number)
    for sentence in _notes(hidden, blank, len(parts), package.unread_note()):
        manuscript.note(sentence)
    units = [counted(len(parts), "slide")]
    return manuscript.parsed(units, why_empty="perhaps its slides are pictures")


def _read(package: Package, part: str) -> Slide:
    return SlideReader().read(package.events(part, ELEMENTS))


def _notes(hidden: list[int], blank: list[int], total: int, unread: str | None) -> Iterator[str]:
    if hidden:
        yield f"Hidden, but read: {numbered('slide', hidden)} of {total}."
    if blank:
        yield f"No text on {numbered('slide', blank)} of {total}: empty, or pictures only."
    if unread is not None:
        yield unread


def _slide_parts(package: Package) -> list[str]:
    """In the order in which they are shown."""
    main = package.main_part()
    targets = {each.id: each.target for each in package.relations(main) if each.kind == "slide"}
    ids = [
        attributes.get("r:id", "")
        for step, _, attributes in package.events(main, ("sldId",))
        if step is START
    ]
    parts = [targets[each] for each in dict.fromkeys(ids) if each in targets]
    return [part for part in parts if part in package]


def _write_slide(
    manuscript: Manuscript, package: Package, part: str, slide: Slide, number: int
) -> bool:
    """Whether anything was written. A slide without a title is called by its number."""
    before = manuscript.num_chars
    title = slide.title()
    if title:
        manuscript.heading(TITLE_LEVEL, title)
    else:
        manuscript.label(TITLE_LEVEL, f"Slide {number}")
    for shape in slide.body():
        manuscript.block("\n".join(shape.lines))
    for diagram in package.related(part, "diagramData"):
        for shape in _read(package, diagram).shapes:
            manuscript.block("\n".join(shape.lines))
    for notes in package.related(part, "notesSlide"):
        spoken = [
            line
            for shape in _read(package, notes).shapes
            if shape.placeholder == "body"
            for line in shape.lines
        ]
        if spoken:
            manuscript.block("Notes: " + "\n".join(spoken))
    for comment in _comments(package, part):
        manuscript.block(f"Comment: {comment}")
    return manuscript.num_chars > before


def _comments(package: Package, part: str) -> Iterator[str]:
    for kind in ("comments", "comment"):
        for source in package.related(part, kind):
            pieces, inside = list[str](), False
            for step, name, _ in package.events(source, ("text", "t")):
                if step is TEXT and inside:
                    pieces.append(name)
                elif step is not TEXT:
                    inside = step is START
                    if step is END:
                        yield "".join(pieces)
                        pieces.clear()
