"""Comma-separated values and their kin to text: a row on each line, cells apart.

Knows delimiters and quotes; knows no encoding and no column's meaning.
"""

import csv
import io
from collections.abc import Iterator
from itertools import islice

from ingest.api import PermanentError
from ingest.parsing.manuscript import Manuscript, columns_title, counted, numbered
from ingest.parsing.parsed import Parsed, ParseLimits

DELIMITERS = (",", ";", "\t", "|")
SAMPLE_ROWS = 50
SEP_LINE = "sep="
"""Excel's way to name the delimiter, on the first line."""
COLUMNS_LEVEL = 1


def parse_delimited(text: str, limits: ParseLimits) -> Parsed:
    """Raises PermanentError when there is no cell, or too much in them."""
    csv.field_size_limit(limits.max_chars)
    first, _, rest = text.partition("\n")
    named = first.strip().removeprefix(SEP_LINE) if first.startswith(SEP_LINE) else ""
    body = rest if len(named) == 1 else text
    manuscript = Manuscript("table", limits)
    ragged, num_rows, num_columns = list[int](), 0, 0
    try:
        for cells in rows(body, named if len(named) == 1 else delimiter_of(body)):
            num_rows += 1
            if num_rows == 1:
                num_columns = len(cells)
                _label(manuscript, cells)
            elif len(cells) != num_columns:
                ragged.append(num_rows)
            manuscript.row(cells)
    except csv.Error as error:
        raise PermanentError(f"The table cannot be read: {error}.") from error
    if ragged:
        usual = counted(num_columns, "cell")
        manuscript.note(f"Without the {usual} of row 1, but read: {numbered('row', ragged)}.")
    return manuscript.parsed([counted(num_rows, "row")], why_empty="its cells are empty")


def _label(manuscript: Manuscript, cells: list[str]) -> None:
    title = columns_title(cells)
    if title is not None:
        manuscript.label(COLUMNS_LEVEL, title)


def rows(text: str, delimiter: str) -> Iterator[list[str]]:
    """Rows with at least one cell."""
    return filter(None, csv.reader(io.StringIO(text, newline=""), delimiter=delimiter))


def delimiter_of(text: str) -> str:
    """The one that gives the first rows most often the same number of cells, if above one."""

    def fitness(delimiter: str) -> tuple[float, int]:
        widths = [len(row) for row in islice(rows(text, delimiter), SAMPLE_ROWS)]
        usual = max(set(widths), key=widths.count, default=1)
        return (widths.count(usual) / len(widths) if usual > 1 else 0.0), usual

    return max(DELIMITERS, key=fitness)
