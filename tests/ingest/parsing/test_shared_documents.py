"""The shared test documents end as a person who opened them would expect.

Each row: the file's kind, its pages and characters, words that must stand in its text, its notes.
"""

from pathlib import Path

import pytest

from ingest.api import PermanentError
from ingest.parsing.parsed import Parsed
from ingest.parsing.sniff import Kind, sniff
from tests.ingest.parsing.office_files import read

# file, pages, least characters, words
PDFS = [
    ("GeoTopo-komprimiert.pdf", 117, 140_000, ["Topologische Grundbegriffe", "Martin Thoma"]),
    ("annotated_pdf.pdf", 1, 130, ["Some text.", "Comment by Lucas: Hello world!"]),
    ("google-doc-document.pdf", 1, 1_000, ["Beautiful is better than ugly."]),
    # Its Arabic is written behind pictures of letters, and PDFium gives it in the order seen.
    ("habibi.pdf", 1, 20, ["habibi"]),
    ("minimal-document.pdf", 1, 590, ["Lorem ipsum dolor sit amet"]),
    ("mistitled_outlines_example.pdf", 4, 7_700, ["Contents", "9 Baz 4"]),
    ("multicolumn.pdf", 3, 7_000, ["Two-Column Document with Lorem", "This is a sample document"]),
    ("nih-NCT06159946_Prot_000.pdf", 2, 3_900, ["Study Protocol", "Sensor driven smart faucet"]),
    ("ntsb-20071229X02007.pdf", 4, 5_700, ["Aviation Accident Final Report", "Page 4 of 4"]),
    ("ntsb-20080102X00002.pdf", 3, 3_800, ["Aviation Accident Factual Report", "Page 3 of 3"]),
    ("ntsb-20080108X00031.pdf", 3, 3_300, ["Aviation Accident Factual Report", "Page 3 of 3"]),
    ("ntsb-20080116X00061.pdf", 4, 5_200, ["Aviation Accident Final Report", "Page 4 of 4"]),
    ("ntsb-20080124X00101.pdf", 4, 6_000, ["Aviation Accident Final Report", "Page 4 of 4"]),
    ("output_with_metadata_pymupdf.pdf", 1, 13, ["Hello, World!"]),
    ("pdflatex-4-pages.pdf", 4, 14_000, ["Hello, here is some text without a meaning."]),
    ("pdflatex-forms.pdf", 1, 19, ["Name", "Check", "Submit"]),
    ("pdflatex-outline.pdf", 4, 7_700, ["Contents", "9 Baz 4"]),
    ("with-attachment.pdf", 1, 590, ["Lorem ipsum dolor sit amet"]),
]
MORE_NOTES = {"with-attachment.pdf": ["Did not read 1 attached file: 'image.png'."]}
HEADINGS = {
    "GeoTopo-komprimiert.pdf": ["1 Topologische Grundbegriffe", "1.1 Topologische Räume"],
    "mistitled_outlines_example.pdf": ["First", "Second"],
    "pdflatex-outline.pdf": ["Foo", "Bar"],
}
REFUSED = [
    (
        "imagemagick-images.pdf",
        "No text on any of the PDF's 6 page(s); they are probably scanned images.",
    ),
    (
        "libreoffice-writer-password.pdf",
        "The PDF is protected by a password; upload it without one.",
    ),
    (
        "nih-NCT06155240_Prot_SAP_000.pdf",
        "No text on any of the PDF's 1 page(s); they are probably scanned images.",
    ),
]

# file, the encoding it is in, characters, its first and its last words
TEXTS = [
    ("sample-arabic-1.txt", "cp1256", 906, "بالموازاة مع ذلك", "وهي تصحيف"),
    ("sample-arabic.txt", "utf-8", 906, "بالموازاة مع ذلك", "وهي تصحيف"),
    ("sample-bulgarian.txt", "utf-8", 1_217, "Член 26", "на което той е автор."),  # noqa: RUF001
    ("sample-chinese.txt", "big5", 389, "維基大典（Wikipedia）者", "具錄於維基共享︰維基大典。"),  # noqa: RUF001
    ("sample-english.bom.txt", "utf-8-sig", 856, "1\n00:00:06,500", "global awareness day"),
    ("sample-french-1.txt", "cp1252", 3_251, "JEAN-BAPTISTE POQUELIN MOLIÈRE", "scrupuleux."),
    ("sample-french.txt", "utf-8", 3_251, "JEAN-BAPTISTE POQUELIN MOLIÈRE", "scrupuleux."),
    ("sample-greek-2.txt", "cp1253", 570, "Η ελληνική αποτελεί", "20 εκατομμύρια."),  # noqa: RUF001
    ("sample-greek.txt", "cp1253", 570, "Η ελληνική αποτελεί", "20 εκατομμύρια."),  # noqa: RUF001
    ("sample-hebrew-2.txt", "cp1255", 340, "אין כמעט ניבים", "אינו גדול (יחסית)."),
    ("sample-hebrew-3.txt", "cp1255", 340, "אין כמעט ניבים", "אינו גדול (יחסית)."),
    ("sample-korean.txt", "cp949", 225, "역사적 예수 연구자들은", "소개하고 있다."),
    ("sample-polish.txt", "utf-8", 5_693, '"source";"target"', '"URZĄDZENIE REBOOT"'),
    ("sample-russian-2.txt", "utf-8", 1_211, "В гимназии он не был", "повторить поступление."),  # noqa: RUF001
    ("sample-russian-3.txt", "utf-8", 1_701, "Москва́ (произношение", "чемпионата мира по футболу."),
    ("sample-russian.txt", "mac_cyrillic", 1_211, "В гимназии он не был", "повторить поступление."),  # noqa: RUF001
    ("sample-spanish.txt", "utf-8", 7_095, "La creación", "y no se avergonzaban."),
    ("sample-turkish.txt", "cp1254", 1_840, "İstanbul, Türkiye'nin", "kullanılırdı.[17]"),  # noqa: RUF001
]


def test_every_file_has_its_row(documents: Path) -> None:
    rows = [row[0] for row in [*PDFS, *REFUSED, *TEXTS]]
    assert len(rows) == 39
    assert sorted(rows) == sorted(path.name for path in documents.rglob("*") if path.is_file())


@pytest.mark.parametrize(("name", "num_pages", "least", "words"), PDFS)
def test_a_pdf_is_read(
    documents: Path, name: str, num_pages: int, least: int, words: list[str]
) -> None:
    raw = (documents / "pdf" / name).read_bytes()
    parsed = read(raw, name)
    assert sniff(raw, "x.txt") is Kind.PDF
    assert least <= len(parsed.text) <= 1.1 * least + 10
    assert all(each in parsed.text for each in words)
    pages = f"{num_pages} page{'s' if num_pages > 1 else ''}"
    assert parsed.notes == [
        f"Read {pages}, {len(parsed.text)} characters.",
        *MORE_NOTES.get(name, []),
    ]
    assert [each.title for each in parsed.outline[:2]] == HEADINGS.get(name, [])
    check_pages(parsed, num_pages)


def check_pages(parsed: Parsed, num_pages: int) -> None:
    assert len(parsed.page_starts) == num_pages
    assert parsed.page_starts[0] == 0
    assert all(parsed.text[start - 2 : start] == "\n\n" for start in parsed.page_starts[1:])


@pytest.mark.parametrize(("name", "cause"), REFUSED)
def test_a_pdf_is_refused_with_its_cause(documents: Path, name: str, cause: str) -> None:
    with pytest.raises(PermanentError) as refused:
        read((documents / "pdf" / name).read_bytes(), name)
    assert str(refused.value) == cause


@pytest.mark.parametrize(("name", "encoding", "num_chars", "first", "last"), TEXTS)
def test_a_text_is_decoded_whole(
    documents: Path, name: str, encoding: str, num_chars: int, first: str, last: str
) -> None:
    raw = (documents / "text_encodings" / name).read_bytes()
    parsed = read(raw, name)
    assert sniff(raw, "x.pdf") is Kind.TEXT
    assert parsed.text == raw.decode(encoding)
    assert len(parsed.text) == num_chars
    assert parsed.text.startswith(first)
    assert parsed.text.rstrip().endswith(last)
    is_unicode = encoding.startswith("utf")
    assert parsed.notes == ([] if is_unicode else [f"Read as {encoding}: the file is not UTF-8."])


@pytest.mark.parametrize(
    ("legacy", "modern"),
    [
        ("sample-arabic-1.txt", "sample-arabic.txt"),
        ("sample-french-1.txt", "sample-french.txt"),
        ("sample-russian.txt", "sample-russian-2.txt"),
    ],
)
def test_a_legacy_text_reads_as_its_twin_in_utf8(documents: Path, legacy: str, modern: str) -> None:
    folder = documents / "text_encodings"
    assert read((folder / legacy).read_bytes()).text == (folder / modern).read_bytes().decode()
