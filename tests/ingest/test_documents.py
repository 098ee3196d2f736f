"""All files of the shared test documents end as a person would expect."""

from pathlib import Path

from ingest.api import FileRecord, FileStatus
from tests.ingest.house import House

# A phrase that the stored text must hold, or the cause that a person must be told.
PDFS = {
    "GeoTopo-komprimiert.pdf": "Topologische Grundbegriffe",
    "annotated_pdf.pdf": "Some text.",
    "google-doc-document.pdf": "Beautiful is better than ugly",
    "habibi.pdf": "habibi",
    "minimal-document.pdf": "Lorem ipsum dolor sit amet",
    "mistitled_outlines_example.pdf": "Contents",
    "multicolumn.pdf": "Two-Column Document with Lorem",
    "nih-NCT06159946_Prot_000.pdf": "Study Protocol",
    "ntsb-20071229X02007.pdf": "National Transportation Safety Board",
    "ntsb-20080102X00002.pdf": "National Transportation Safety Board",
    "ntsb-20080108X00031.pdf": "National Transportation Safety Board",
    "ntsb-20080116X00061.pdf": "National Transportation Safety Board",
    "ntsb-20080124X00101.pdf": "National Transportation Safety Board",
    "output_with_metadata_pymupdf.pdf": "Hello, World!",
    "pdflatex-4-pages.pdf": "Hello, here is some text",
    "pdflatex-forms.pdf": "Submit",
    "pdflatex-outline.pdf": "Contents",
    "with-attachment.pdf": "Lorem ipsum dolor sit amet",
}
CAUSES = {
    "imagemagick-images.pdf": "No text on any of the PDF's 6 page(s); "
    "they are probably scanned images.",
    "libreoffice-writer-password.pdf": "The PDF is protected by a password; upload it without one.",
    "nih-NCT06155240_Prot_SAP_000.pdf": "No text on any of the PDF's 1 page(s); "
    "they are probably scanned images.",
}
TEXTS = {
    "sample-arabic-1.txt": "بالموازاة مع ذلك",
    "sample-arabic.txt": "بالموازاة مع ذلك",
    "sample-bulgarian.txt": "Член 26",
    "sample-chinese.txt": "維基大典（Wikipedia）者",  # noqa: RUF001
    "sample-english.bom.txt": "00:00:06,500 --> 00:00:09,000",
    "sample-french-1.txt": "JEAN-BAPTISTE POQUELIN MOLIÈRE",
    "sample-french.txt": "JEAN-BAPTISTE POQUELIN MOLIÈRE",
    "sample-greek-2.txt": "Η ελληνική αποτελεί",  # noqa: RUF001
    "sample-greek.txt": "Η ελληνική αποτελεί",  # noqa: RUF001
    "sample-hebrew-2.txt": "אין כמעט ניבים",
    "sample-hebrew-3.txt": "אין כמעט ניבים",
    "sample-korean.txt": "역사적 예수 연구자들은",
    "sample-polish.txt": "POLISH",
    "sample-russian-2.txt": "В гимназии он не был",  # noqa: RUF001
    "sample-russian-3.txt": "столица",
    "sample-russian.txt": "В гимназии он не был",  # noqa: RUF001
    "sample-spanish.txt": "En el principio creó",
    "sample-turkish.txt": "İstanbul, Türkiye'nin",
}
NOTES = {
    "pdflatex-forms.pdf": ("Read 1 page, 19 characters.",),
    "with-attachment.pdf": (
        "Read 1 page, 594 characters.",
        "Did not read 1 attached file: 'image.png'.",
    ),
    "sample-russian.txt": ("Read as mac_cyrillic: the file is not UTF-8.",),
}


def files_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


async def ingested(house: House, documents: Path) -> dict[str, FileRecord]:
    ids = {}
    for path in files_in(documents):
        ids[path.name] = (await house.add(path.read_bytes(), path.name)).id
    await house.settle()
    return {name: await house.library.get(file_id) for name, file_id in ids.items()}


async def test_every_document_ends_as_a_person_would_expect(house: House, documents: Path) -> None:
    records = await ingested(house, documents)
    assert set(records) == PDFS.keys() | CAUSES.keys() | TEXTS.keys()
    for name, record in records.items():
        await check(house, name, record)


async def check(house: House, name: str, record: FileRecord) -> None:
    if name in CAUSES:
        assert (record.status, record.cause) == (FileStatus.ERROR, CAUSES[name]), name
        return
    assert record.status is FileStatus.PROCESSED, (name, record.cause)
    text = (await house.library.text(record.id)).text
    assert (PDFS | TEXTS)[name] in text, name
    assert record.num_chars == len(text), name
    assert record.num_chunks is not None, name
    assert record.num_chunks >= len(text) // 100, name
    if name in NOTES:
        assert record.notes == NOTES[name], name


async def test_pages_and_their_offsets_are_kept(house: House, documents: Path) -> None:
    raw = (documents / "pdf/pdflatex-4-pages.pdf").read_bytes()
    record = await house.add(raw, "four.pdf")
    await house.settle()
    kept = await house.texts.get(record.id)
    assert len(kept.page_starts) == 4
    assert kept.page_starts == sorted(kept.page_starts)
    assert kept.page_starts[0] == 0
    assert all(kept.text[start - 2 : start] == "\n\n" for start in kept.page_starts[1:])
