"""The text of a document while it is written: blocks, headings, pages and notes under one limit.

Knows how stored text is laid out; knows no file format.
"""

import re
from collections.abc import Iterable, Sequence

from ingest.api import PermanentError
from ingest.parsing.decoding import without_surrogates
from ingest.parsing.parsed import Heading, Parsed, ParseLimits

CELL_GAP = " | "
LINE, BLOCK = "\n", "\n\n"
MAX_TITLE_CHARS = 300
MAX_NAME_CHARS = 60
SHOWN_NUMBERS = 20
CONTROLS = {code: " " for code in range(32) if chr(code) not in "\t\n"}
WHITE = re.compile(r"\s+")


class Manuscript:
    """`noun` names the document in refusals, as in "The PDF has no text."."""

    def __init__(self, noun: str, limits: ParseLimits) -> None:
        self._noun = noun
        self._max_chars = limits.max_chars
        self._pieces: list[str] = []
        self._gap = ""
        self._is_fresh = True
        """Nothing was written since the last gap."""
        self._outline: list[Heading] = []
        self._page_starts: list[int] = []
        self._notes: list[str] = []
        self.num_chars = 0

    def block(self, text: str) -> None:
        """A paragraph: an empty line before and after. White space alone writes nothing."""
        self._need(BLOCK)
        self.line(text)
        self._need(BLOCK)

    def line(self, text: str) -> None:
        clean = tidy(text)
        if clean:
            self._write(clean)
            self._gap = LINE

    def row(self, cells: Sequence[str]) -> None:
        """A table's row on one line; empty cells at its end are dropped."""
        self.line(joined(cells))

    def heading(self, level: int, title: str) -> None:
        """A heading that is written."""
        if tidy(title):
            self._outline.append(Heading(self.here(), level, short(title)))
            self.block(title)

    def label(self, level: int, title: str) -> None:
        """A heading for what follows that is not written itself."""
        self._outline.append(Heading(self.here(), level, short(title)))

    def page(self) -> None:
        """The next page begins."""
        self._page_starts.append(self.here())

    def here(self) -> int:
        """The offset at which the next text will lie."""
        self._need(BLOCK)
        self._flush_gap()
        return self.num_chars

    def append(self, parsed: Parsed, *, level: int) -> None:
        """Another text with its outline below `level`; its pages are not kept."""
        start = self.here()
        self._write(parsed.text)
        self._outline += [
            Heading(start + each.start, each.level + level, each.title) for each in parsed.outline
        ]
        self._need(BLOCK)

    def note(self, sentence: str) -> None:
        self._notes.append(sentence)

    def parsed(self, units: Sequence[str], *, why_empty: str = "") -> Parsed:
        """Raises PermanentError when nothing was written."""
        if not self.num_chars:
            because = f"; {why_empty}" if why_empty else ""
            raise PermanentError(f"The {self._noun} has no text{because}.")
        read = ", ".join([*units, counted(self.num_chars, "character")])
        return Parsed(
            text="".join(self._pieces),
            notes=[f"Read {read}.", *self._notes],
            page_starts=self._page_starts,
            outline=self._outline,
        )

    def _need(self, gap: str) -> None:
        if not self._is_fresh:
            self._gap = max(self._gap, gap, key=len)

    def _flush_gap(self) -> None:
        self._pieces.append(self._gap)
        self.num_chars += len(self._gap)
        self._gap, self._is_fresh = "", True

    def _write(self, text: str) -> None:
        self._flush_gap()
        self._pieces.append(text)
        self.num_chars += len(text)
        self._is_fresh = False
        if self.num_chars > self._max_chars:
            raise PermanentError(
                f"The {self._noun} has more than {self._max_chars} characters of text, "
                "which is the limit."
            )


def tidy(text: str) -> str:
    return without_surrogates(text.translate(CONTROLS)).strip()


def one_line(text: str) -> str:
    return WHITE.sub(" ", text).strip()


def short(title: str) -> str:
    line = one_line(tidy(title))
    return line if len(line) <= MAX_TITLE_CHARS else line[: MAX_TITLE_CHARS - 1] + "…"


def joined(cells: Iterable[str]) -> str:
    lines = [one_line(cell) for cell in cells]
    while lines and not lines[-1]:
        lines.pop()
    return CELL_GAP.join(lines)


def columns_title(cells: Sequence[str]) -> str | None:
    """A heading for the rows under `cells`, if these look like names of columns."""
    names = [one_line(cell) for cell in cells if cell.strip()]
    are_names = len(names) == len(cells) > 1 and all(map(_is_name, names))
    return f"Columns: {', '.join(names)}" if are_names else None


def _is_name(cell: str) -> bool:
    return len(cell) <= MAX_NAME_CHARS and any(map(str.isalpha, cell))


def counted(number: int, noun: str) -> str:
    """As in "1 page" or "3 formulas"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def numbered(noun: str, numbers: Sequence[int]) -> str:
    """As in "pages 3, 4 and 12 more"."""
    shown = ", ".join(map(str, numbers[:SHOWN_NUMBERS]))
    num_more = len(numbers) - SHOWN_NUMBERS
    more = f" and {num_more} more" if num_more > 0 else ""
    return f"{noun}{'s' if len(numbers) > 1 else ''} {shown}{more}"
