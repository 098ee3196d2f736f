"""Word documents to text: the body, then notes, comments, headers and footers.

Knows which parts a document has; knows neither how they are zipped nor what stands in them.
"""

from collections.abc import Iterator, Mapping

from ingest.parsing.manuscript import Manuscript, counted
from ingest.parsing.numbering import read_numbering
from ingest.parsing.ooxml import END, START, Package, whole
from ingest.parsing.parsed import Parsed, ParseLimits
from ingest.parsing.wordstory import STORY_ELEMENTS, Looks, Story, Style, Tally

SECTIONS = (
    ("footnotes", "Footnotes"),
    ("endnotes", "Endnotes"),
    ("comments", "Comments"),
    ("header", "Headers"),
    ("footer", "Footers"),
)
SECTION_LEVEL = 2
STYLE_ELEMENTS = frozenset({"style", "name", "basedOn", "outlineLvl", "numId", "ilvl"})


def parse_docx(raw: bytes, limits: ParseLimits) -> Parsed:
    """Raises PermanentError for a broken or overblown document and for one without text."""
    package = Package(raw, limits)
    main = package.main_part()
    looks = Looks(_styles(package, main), read_numbering(package, main))
    manuscript, tally = Manuscript("document", limits), Tally()
    Story(looks, tally, manuscript).read(package.events(main, STORY_ELEMENTS))
    for kind, title in SECTIONS:
        texts = [_text(package, part, looks, limits) for part in package.related(main, kind)]
        if any(texts):
            manuscript.heading(SECTION_LEVEL, title)
        for text in dict.fromkeys(texts):
            manuscript.block(text)
    for sentence in _notes(package, main, tally):
        manuscript.note(sentence)
    units = [counted(tally.paragraphs, "paragraph"), counted(tally.tables, "table")]
    return manuscript.parsed(units, why_empty="perhaps it holds only pictures")


def _text(package: Package, part: str, looks: Looks, limits: ParseLimits) -> str:
    manuscript = Manuscript("document", limits)
    Story(looks, Tally(), manuscript).read(package.events(part, STORY_ELEMENTS))
    return manuscript.parsed([]).text if manuscript.num_chars else ""


def _styles(package: Package, main: str) -> Mapping[str, Style]:
    styles: dict[str, Style] = {}
    for part in package.related(main, "styles"):
        style_id, found = "", dict[str, str]()
        for step, name, attributes in package.events(part, STYLE_ELEMENTS):
            if step is START and name == "style":
                style_id, found = attributes.get("styleId", ""), {}
            elif step is START:
                found.setdefault(name, attributes.get("val", ""))
            elif step is END and name == "style":
                styles[style_id] = Style(
                    name=found.get("name", ""),
                    based_on=found.get("basedOn", ""),
                    outline=whole(found.get("outlineLvl")),
                    num_id=found.get("numId", ""),
                    depth=whole(found.get("ilvl")) or 0,
                )
    return styles


def _notes(package: Package, main: str, tally: Tally) -> Iterator[str]:
    if tally.deletions or tally.moves:
        number = counted(tally.deletions + tally.moves, "passage")
        yield f"Did not read {number} that tracked changes delete or move away."
    if tally.hidden:
        yield "Some text is formatted as hidden; it was read."
    inserted = package.related(main, "aFChunk") + package.related(main, "subDocument")
    if inserted:
        yield f"Did not read {counted(len(inserted), 'inserted document')}."
    unread = package.unread_note()
    if unread is not None:
        yield unread
