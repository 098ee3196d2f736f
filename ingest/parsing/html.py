"""HTML to visible text with headings. Knows the DOM, no style sheet and no script."""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from selectolax.lexbor import LexborHTMLParser, LexborNode, SelectolaxError

from ingest.api import PermanentError
from ingest.parsing.decoding import Decoded, decode
from ingest.parsing.parsed import Heading, Parsed

DROPPED_NAMES = (
    "script style noscript template head svg math iframe object canvas audio video select"
)
BLOCK_NAMES = (
    "address article aside blockquote body caption center dd details dialog div dl dt fieldset "
    "figcaption figure footer form h1 h2 h3 h4 h5 h6 header hr li main nav ol p pre section "
    "summary table tbody tfoot thead tr ul"
)
SPACED_NAMES = "p h1 h2 h3 h4 h5 h6 ul ol dl table blockquote pre section article"
DROPPED = frozenset(DROPPED_NAMES.split())
BLOCKS = frozenset(BLOCK_NAMES.split())
SPACED = frozenset(SPACED_NAMES.split())
CELLS = frozenset({"td", "th"})
HEADINGS = {f"h{level}": level for level in range(1, 7)}
DECLARED = re.compile(
    rb"<(?:meta[^>]{0,200}charset|\?xml[^>]{0,200}encoding)\s*=\s*[\"']?\s*([\w.:-]+)", re.I
)
PICTURES = "img, svg, canvas, object, audio, video, iframe"
HIDDEN_STYLE = re.compile(r"display\s*:\s*none|visibility\s*:\s*hidden", re.I)
SPACES = re.compile(r"[ \t\r\n\f\v]+")
META_BYTES = 4096


@dataclass(slots=True)
class Writer:
    """Collects visible text: one space between words, one or two newlines between blocks."""

    pieces: list[str] = field(default_factory=list)
    length: int = 0
    newlines: int = 0
    space: bool = False

    def words(self, text: str) -> None:
        collapsed = SPACES.sub(" ", text)
        bare = collapsed.strip(" ")
        self.space = self.space or collapsed.startswith(" ")
        if bare:
            self._separate()
            self._put(bare)
            self.space = collapsed.endswith(" ")

    def verbatim(self, text: str) -> None:
        if text:
            self._separate()
            self._put(text)

    def end_block(self, newlines: int) -> None:
        self.newlines = max(self.newlines, newlines)
        self.space = False

    def begin(self) -> int:
        """The offset at which the next text will lie."""
        self._separate()
        return self.length

    def _separate(self) -> None:
        if self.newlines and self.length:
            self._put("\n" * self.newlines)
        elif self.space and self.length:
            self._put(" ")
        self.newlines, self.space = 0, False

    def _put(self, text: str) -> None:
        self.pieces.append(text)
        self.length += len(text)


def parse_html(raw: bytes, *, declared: str | None = None) -> Parsed:
    """`declared` is the encoding that came with the page and goes before the page's own word.

    Raises PermanentError when no text is visible.
    """
    within = DECLARED.search(raw[:META_BYTES])
    own = within[1].decode("ascii", "replace") if within else None
    decoded = decode(raw, declared=declared or own)
    tree = _tree(decoded.text)
    writer, outline = Writer(), list[Heading]()
    title = tree.css_first("title")
    if title is not None and title.text(strip=True):
        heading = SPACES.sub(" ", title.text()).strip()
        outline.append(Heading(0, 1, heading))
    if tree.body is not None:
        _write(tree.body, writer, outline)
    text = "".join(writer.pieces)
    if not text.strip():
        raise PermanentError("The page has no visible text.")
    return Parsed(text=text, notes=_notes(decoded, tree), outline=outline)


def _tree(text: str) -> LexborHTMLParser:
    try:
        return LexborHTMLParser(text)
    except SelectolaxError as error:
        raise PermanentError("The page is too deep or needs too much memory to be read.") from error


def _notes(decoded: Decoded, tree: LexborHTMLParser) -> list[str]:
    notes = []
    if not decoded.encoding.startswith("utf"):
        notes.append(f"Read as {decoded.encoding}: the page is not UTF-8.")
    num_pictures = len(tree.css(PICTURES))
    if num_pictures:
        notes.append(f"Did not read {num_pictures} pictures or frames.")
    return notes


def _write(root: LexborNode, writer: Writer, outline: list[Heading]) -> None:
    open_heading: tuple[int, int] | None = None
    num_pre = 0
    for node, entering in _walk(root):
        tag = node.tag or ""
        if tag == "-text":
            text = node.text_content or ""
            (writer.verbatim if num_pre else writer.words)(text)
            continue
        if tag == "br":
            writer.end_block(1)
        elif tag in CELLS and not entering:
            writer.words(" | ")
        elif tag in BLOCKS:
            writer.end_block(2 if tag in SPACED else 1)
        if tag == "pre":
            num_pre += 1 if entering else -1
        if tag in HEADINGS and entering:
            open_heading = (writer.begin(), len(writer.pieces))
        elif tag in HEADINGS and open_heading is not None:
            start, first = open_heading
            title = "".join(writer.pieces[first:]).strip()
            if title:
                outline.append(Heading(start, HEADINGS[tag] + 1, title))
            open_heading = None


def _walk(root: LexborNode) -> Iterator[tuple[LexborNode, bool]]:
    """Every visible node, entering (True) and, for elements, leaving (False). Not recursive."""
    stack: list[tuple[LexborNode, bool]] = [(root, True)]
    while stack:
        node, entering = stack.pop()
        if entering and not _visible(node):
            continue
        yield node, entering
        if not entering or node.tag == "-text":
            continue
        stack.append((node, False))
        stack.extend((child, True) for child in reversed(list(node.iter(include_text=True))))


def _visible(node: LexborNode) -> bool:
    tag = node.tag or ""
    if tag == "-text":
        return True
    if tag.startswith("-") or tag in DROPPED:
        return False
    attributes = node.attributes
    if "hidden" in attributes or attributes.get("aria-hidden") == "true":
        return False
    return HIDDEN_STYLE.search(attributes.get("style") or "") is None
