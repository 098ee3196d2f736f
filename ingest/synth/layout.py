"""How a case file lies on the page: knows blocks and the three formats, not what is written."""

import html
from dataclasses import dataclass
from enum import StrEnum

from ingest.synth.facts import Planting


class DocumentFormat(StrEnum):
    TXT = "txt"
    MD = "md"
    HTML = "html"


class BlockKind(StrEnum):
    TITLE = "title"
    HEADING = "heading"
    PARAGRAPH = "paragraph"
    LINE = "line"
    """A line of a transcript, an invoice or a letterhead: its neighbours lie close."""


@dataclass(frozen=True, slots=True)
class Block:
    """One run of text; when `planting` is set, its sentence occurs in `text` exactly once."""

    kind: BlockKind
    text: str
    planting: Planting | None = None


def title(text: str) -> Block:
    return Block(BlockKind.TITLE, text)


def heading(text: str) -> Block:
    return Block(BlockKind.HEADING, text)


def paragraph(text: str, planting: Planting | None = None) -> Block:
    return Block(BlockKind.PARAGRAPH, text, planting)


def line(text: str, planting: Planting | None = None) -> Block:
    return Block(BlockKind.LINE, text, planting)


@dataclass(frozen=True, slots=True)
class PlantedSpan:
    """Characters [start, stop) of the finished text hold the planting's sentence."""

    planting: Planting
    start: int
    stop: int


MARKDOWN_MARKS = {BlockKind.TITLE: "# ", BlockKind.HEADING: "## "}
HTML_TAGS = {
    BlockKind.TITLE: "h1",
    BlockKind.HEADING: "h2",
    BlockKind.PARAGRAPH: "p",
    BlockKind.LINE: "p",
}
HTML_FOOT = "\n</body>\n</html>\n"


class Page:
    """A document as it grows. Offsets count characters of the text as written, marks included."""

    def __init__(self, document_format: DocumentFormat, *, name: str) -> None:
        self._format = document_format
        self._pieces: list[str] = []
        self._length = 0
        self._last: BlockKind | None = None
        self.spans: list[PlantedSpan] = []
        if document_format is DocumentFormat.HTML:
            safe = html.escape(name)
            self._write(
                f'<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
                f"<title>{safe}</title>\n</head>\n<body>"
            )

    def render(self, block: Block) -> str:
        """The block as `add` would write it now, with what parts it from the last one."""
        text = block.text
        if self._format is DocumentFormat.HTML:
            tag = HTML_TAGS[block.kind]
            return f"\n<{tag}>{html.escape(text, quote=False)}</{tag}>"
        if self._format is DocumentFormat.MD:
            text = MARKDOWN_MARKS.get(block.kind, "") + text
        if not self._pieces:
            return text
        is_close = block.kind is BlockKind.LINE and self._last is BlockKind.LINE
        gap = "\n" if is_close and self._format is DocumentFormat.TXT else "\n\n"
        return gap + text

    def add(self, block: Block) -> None:
        piece = self.render(block)
        if block.planting is not None:
            sentence = block.planting.sentence
            at = piece.find(sentence)
            assert at >= 0, f"the block does not hold its sentence: {sentence}"
            start = self._length + at
            self.spans.append(PlantedSpan(block.planting, start, start + len(sentence)))
        self._write(piece)
        self._last = block.kind

    def finish(self) -> str:
        self._write(HTML_FOOT if self._format is DocumentFormat.HTML else "\n")
        return "".join(self._pieces)

    def _write(self, piece: str) -> None:
        self._pieces.append(piece)
        self._length += len(piece)
