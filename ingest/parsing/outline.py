"""Headings in Markdown text, with their offsets. Knows ATX and setext headings and code fences."""

import re

from ingest.parsing.parsed import Heading

FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*$")
SETEXT = re.compile(r" {0,3}(=+|-+)[ \t]*$")


def markdown_outline(text: str) -> list[Heading]:
    headings: list[Heading] = []
    fence: str | None = None
    previous, previous_start, offset = "", 0, 0
    for line in text.splitlines(keepends=True):
        bare = line.rstrip("\r\n")
        opened = FENCE.match(bare)
        if opened:
            fence = _next_fence(fence, opened[1])
        elif fence is None:
            heading = _atx(bare, offset) or _setext(bare, previous, previous_start)
            if heading is not None:
                headings.append(heading)
        is_prose = fence is None and not opened and ATX.match(bare) is None
        previous, previous_start = (bare if is_prose else ""), offset
        offset += len(line)
    return headings


def _next_fence(fence: str | None, mark: str) -> str | None:
    if fence is None:
        return mark
    closes = mark[0] == fence[0] and len(mark) >= len(fence)
    return None if closes else fence


def _atx(line: str, offset: int) -> Heading | None:
    found = ATX.match(line)
    if found is None or not found[2]:
        return None
    return Heading(offset, len(found[1]), found[2].strip())


def _setext(line: str, previous: str, previous_start: int) -> Heading | None:
    title = previous.strip()
    found = SETEXT.match(line)
    if found is None or not title or title[0] in "-*+>|#" or SETEXT.match(previous):
        return None
    return Heading(previous_start, 1 if found[1][0] == "=" else 2, title)
