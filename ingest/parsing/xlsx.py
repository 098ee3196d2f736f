"""Excel workbooks to text: every sheet, every row on a line, with stored results of formulas.

Knows which parts a workbook has; knows neither how they are zipped nor cells. What a sheet says of
its own size is not believed: a row costs what its cells cost, wherever they stand.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ingest.api import PermanentError
from ingest.parsing.cells import ELEMENTS, Meanings, Row, SheetReader, unescaped
from ingest.parsing.manuscript import Manuscript, columns_title, counted
from ingest.parsing.numbers import Look, look_of
from ingest.parsing.ooxml import END, START, TEXT, Package, is_on, whole
from ingest.parsing.parsed import Parsed, ParseLimits

SHEET_LEVEL, COLUMNS_LEVEL = 1, 2


@dataclass(frozen=True, slots=True)
class Sheet:
    name: str
    part: str
    is_hidden: bool


@dataclass(frozen=True, slots=True)
class Book:
    sheets: Sequence[Sheet]
    others: Sequence[str]
    """Names of what is no worksheet: charts, macros, dialogs."""
    meanings: Meanings


@dataclass(frozen=True, slots=True)
class Written:
    """What became of one sheet."""

    sheet: Sheet
    num_rows: int
    num_uncomputed: int
    has_hidden: bool


def parse_xlsx(raw: bytes, limits: ParseLimits) -> Parsed:
    """Raises PermanentError for a broken or overblown workbook and for one without any cell."""
    package = Package(raw, limits)
    book = read_book(package, limits)
    manuscript = Manuscript("workbook", limits)
    written = [_write_sheet(manuscript, package, book, sheet) for sheet in book.sheets]
    for sentence in _notes(book, written, package.unread_note()):
        manuscript.note(sentence)
    num_rows = sum(each.num_rows for each in written)
    return manuscript.parsed([counted(len(book.sheets), "sheet"), counted(num_rows, "row")])


def _notes(book: Book, written: Sequence[Written], unread: str | None) -> Iterator[str]:
    named = (
        ("Hidden, but read", [each.sheet for each in written if each.sheet.is_hidden]),
        ("Hidden rows or columns, which were read", [e.sheet for e in written if e.has_hidden]),
        ("Without any cell", [each.sheet for each in written if not each.num_rows]),
    )
    for what, sheets in named:
        if sheets:
            names = ", ".join(repr(sheet.name) for sheet in sheets)
            yield f"{what}: sheet{'s' if len(sheets) > 1 else ''} {names}."
    if book.others:
        yield f"Did not read what is no worksheet: {', '.join(map(repr, book.others))}."
    num_uncomputed = sum(each.num_uncomputed for each in written)
    if num_uncomputed:
        number = counted(num_uncomputed, "formula")
        yield f"Without a stored result: {number}; the text holds the formula itself."
    if unread is not None:
        yield unread


def _write_sheet(manuscript: Manuscript, package: Package, book: Book, sheet: Sheet) -> Written:
    reader = SheetReader(book.meanings)
    num_rows, last = 0, 0
    for row in reader.rows(package.events(sheet.part, ELEMENTS)):
        if not num_rows:
            _begin_sheet(manuscript, sheet, row)
        elif row.number is not None and row.number > last + 1:
            manuscript.block("")
        manuscript.row(row.texts)
        num_rows, last = num_rows + 1, row.number or last + 1
    for comment in _comments(package, sheet.part):
        manuscript.block(comment)
    return Written(sheet, num_rows, reader.num_uncomputed, reader.has_hidden)


def _begin_sheet(manuscript: Manuscript, sheet: Sheet, first: Row) -> None:
    manuscript.heading(SHEET_LEVEL, sheet.name)
    columns = columns_title(first.texts) if first.is_all_text else None
    if columns is not None:
        manuscript.label(COLUMNS_LEVEL, columns)


def _comments(package: Package, part: str) -> Iterator[str]:
    for source in package.related(part, "comments"):
        reference, pieces, inside = "", list[str](), False
        for step, name, attributes in package.events(source, ("t", "comment")):
            if step is TEXT:
                if inside:
                    pieces.append(name)
            elif name == "t":
                inside = step is START
            elif name == "comment" and step is START:
                reference = attributes.get("ref", "")
            elif name == "comment":
                yield f"Comment on {reference}: {''.join(pieces)}"
                pieces.clear()


def read_book(package: Package, limits: ParseLimits) -> Book:
    main = package.main_part()
    targets = {each.id: each for each in package.relations(main)}
    sheets, others, is_1904 = list[Sheet](), list[str](), False
    for step, name, attributes in package.events(main, ("workbookPr", "sheet")):
        if step is START and name == "workbookPr":
            is_1904 = "date1904" in attributes and is_on(attributes, "date1904")
        elif step is START:
            title = attributes.get("name", "")
            relation = targets.get(attributes.get("r:id", ""))
            if relation is None or relation.kind != "worksheet" or relation.target not in package:
                others.append(title)
                continue
            is_hidden = attributes.get("state", "visible") != "visible"
            sheets.append(Sheet(title, relation.target, is_hidden))
    strings = [
        each
        for part in package.related(main, "sharedStrings")
        for each in _strings(package, part, limits)
    ]
    looks = [look for part in package.related(main, "styles") for look in _looks(package, part)]
    return Book(sheets, others, Meanings(strings, looks, is_1904))


def _strings(package: Package, part: str, limits: ParseLimits) -> Iterator[str]:
    """Rich text is joined; what only says how to pronounce it (rPh) is left out."""
    pieces, inside, phonetic, num_chars = list[str](), False, False, 0
    for step, name, _ in package.events(part, ("t", "rPh", "si")):
        if step is TEXT:
            if inside and not phonetic:
                pieces.append(name)
        elif name == "t":
            inside = step is START
        elif name == "rPh":
            phonetic = step is START
        elif name == "si" and step is END:
            text = unescaped("".join(pieces))
            pieces.clear()
            num_chars += len(text)
            if num_chars > limits.max_chars:
                raise PermanentError(
                    f"The workbook has more than {limits.max_chars} characters of text, "
                    "which is the limit."
                )
            yield text


def _looks(package: Package, part: str) -> Iterator[Look]:
    """How each cell format (cellXfs) shows numbers, in the order in which cells name them."""
    codes, inside = dict[int, str](), False
    for step, name, attributes in package.events(part, ("cellXfs", "numFmt", "xf")):
        if name == "cellXfs":
            inside = step is START
        elif step is START and name == "numFmt":
            codes[whole(attributes.get("numFmtId")) or 0] = attributes.get("formatCode", "")
        elif step is START and name == "xf" and inside:
            format_id = whole(attributes.get("numFmtId")) or 0
            yield look_of(format_id, codes.get(format_id))
