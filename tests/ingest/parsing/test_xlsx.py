"""A workbook reads sheet by sheet, as Excel shows it."""

import io
from datetime import date, datetime, time, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openpyxl import Workbook, load_workbook
from openpyxl.comments import Comment

from ingest.parsing.numbers import Look, look_of, shown
from ingest.parsing.parsed import Heading
from tests.ingest.parsing.office_files import CALM, part_of, read, with_parts, xlsx_bytes

SHEET = "xl/worksheets/sheet1.xml"


def rents(book: Workbook) -> None:
    sheet = book.active
    assert sheet is not None
    sheet.title = "Rents"
    sheet.append(["Month", "Rent", "Paid", "Share"])
    sheet.append([date(2024, 5, 1), 900.5, True, 0.25])
    sheet["D2"].number_format = "0%"
    sheet["A3"], sheet["B3"] = datetime(2024, 5, 1, 13, 30), "=SUM(B2:B2)"
    sheet["C5"], sheet["XFD5"], sheet["A7"] = time(8, 5), "far", timedelta(hours=30)
    sheet["A1"].comment = Comment("since when?", "Bo")
    sheet.row_dimensions[5].hidden = True
    secret = book.create_sheet("Secret")
    secret.sheet_state = "hidden"
    secret["A1"] = "margin"
    book.create_sheet("Nothing")


TEXT = """Rents

Month | Rent | Paid | Share
2024-05-01 | 900.5 | TRUE | 25%
2024-05-01 13:30:00 | =SUM(B2:B2)

|  | 08:05:00 | (16380 empty cells) | far

30:00:00

Comment on A1: since when?

Secret

margin"""


def test_every_sheet_and_cell_is_read_and_what_is_odd_is_told() -> None:
    parsed = read(xlsx_bytes(rents), "rents.xlsx")
    assert parsed.text == TEXT
    assert parsed.outline == [
        Heading(0, 1, "Rents"),
        Heading(7, 2, "Columns: Month, Rent, Paid, Share"),
        Heading(TEXT.index("Secret"), 1, "Secret"),
    ]
    assert parsed.notes == [
        f"Read 3 sheets, 6 rows, {len(TEXT)} characters.",
        "Hidden, but read: sheet 'Secret'.",
        "Hidden rows or columns, which were read: sheet 'Rents'.",
        "Without any cell: sheet 'Nothing'.",
        "Without a stored result: 1 formula; the text holds the formula itself.",
    ]


def test_a_formulas_stored_result_is_read_instead_of_it() -> None:
    raw = xlsx_bytes(lambda book: book.worksheets[0].append(["=1+1"]))
    sheet = part_of(raw, SHEET)
    for empty in (b"<v />", b"<v/>", b"<v></v>"):
        sheet = sheet.replace(empty, b"<v>2</v>")
    assert read(with_parts(raw, {SHEET: sheet})).text.endswith("\n\n2")


def test_a_sheet_that_lies_about_its_size_costs_what_it_holds() -> None:
    raw = xlsx_bytes(lambda book: book.worksheets[0].append(["only"]))
    lie = part_of(raw, SHEET).replace(b'ref="A1"', b'ref="A1:XFD1048576"')
    assert b"XFD1048576" in lie
    assert read(with_parts(raw, {SHEET: lie})).text == "Sheet\n\nonly"


@pytest.mark.parametrize(
    ("stored", "look", "text"),
    [
        ("1", Look.DATE, "1900-01-01"),
        ("59", Look.DATE, "1900-02-28"),
        ("61", Look.DATE, "1900-03-01"),
        ("2958465", Look.DATE, "9999-12-31"),
        ("2958466", Look.DATE, "2958466"),
        ("-1", Look.DATE, "-1"),
        ("45413.99999999", Look.DATE, "2024-05-02"),
        ("0.5", Look.TIME, "12:00:00"),
        ("0.30000000000000004", Look.PLAIN, "0.3"),
        ("1e400", Look.PLAIN, "1e400"),
        ("nan", Look.DATE, "nan"),
        ("12345678901234567890", Look.PLAIN, "12345678901234567890"),
    ],
)
def test_numbers_are_shown_as_their_format_means(stored: str, look: Look, text: str) -> None:
    assert shown(stored, look) == text


def test_the_calendar_of_1904_is_known() -> None:
    assert shown("0", Look.DATE, is_1904=True) == "1904-01-01"


@pytest.mark.parametrize(
    ("code", "look"),
    [
        ("yyyy-mm-dd", Look.DATE),
        ("[$-407]d. mmmm yyyy", Look.DATE),
        ('h:mm "Uhr, am Tag"', Look.TIME),
        ("dd.mm.yy hh:mm", Look.DATE_AND_TIME),
        ("[h]:mm:ss", Look.DURATION),
        ("0.00%", Look.PERCENT),
        ('#,##0.00 "days"', Look.PLAIN),
        ("[Red]0.00", Look.PLAIN),
        ("General", Look.PLAIN),
    ],
)
def test_a_number_formats_code_tells_dates_from_numbers(code: str, look: Look) -> None:
    assert look_of(164, code) is look


CELLS = st.one_of(
    st.none(),
    st.integers(-(10**9), 10**9),
    st.booleans(),
    st.text("abc \u00e9\u4e16_x000D_&<", min_size=1, max_size=8).filter(lambda text: text.strip()),
)


@settings(CALM, max_examples=25)
@given(st.lists(st.lists(CELLS, min_size=1, max_size=5), min_size=1, max_size=5))
def test_rows_are_those_that_openpyxl_reads(rows: list[list[int | bool | str | None]]) -> None:
    raw = xlsx_bytes(lambda book: [book.worksheets[0].append(row) for row in rows])
    book = load_workbook(io.BytesIO(raw), read_only=True, data_only=True)
    expected = [
        [str(cell).upper() if isinstance(cell, bool) else str(cell or (cell == 0 and "0") or "")
         for cell in row]
        for row in book.worksheets[0].iter_rows(values_only=True)
    ]  # fmt: skip
    if not any(any(row) for row in expected):
        return
    lines = [line for line in read(raw).text.split("\n")[2:] if line]
    assert [[cell.strip() for cell in line.split("|")] for line in lines] == [
        _trimmed(row) for row in expected if any(row)
    ]


def _trimmed(row: list[str]) -> list[str]:
    while not row[-1]:
        row = row[:-1]
    return [" ".join(cell.split()) for cell in row]
