"""A Word document reads as its reader would read it aloud."""

from docx.document import Document
from docx.oxml import parse_xml

from ingest.parsing.parsed import Heading
from tests.ingest.parsing.office_files import docx_bytes, part_of, read, with_parts

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def lease(document: Document) -> None:
    document.add_heading("The Lease", 0)
    document.add_heading("Parties", 1)
    document.add_paragraph("Ann lets the flat\tto Bob.")
    document.add_paragraph("pay the rent", style="List Number")
    document.add_paragraph("keep it clean", style="List Number")
    document.add_paragraph("no dogs", style="List Bullet")
    table = document.add_table(2, 3)
    for index, text in enumerate(["Month", "Rent", "Paid", "May", "900\nEUR"]):
        table.cell(index // 3, index % 3).text = text
    inner = table.cell(1, 2).add_table(1, 2)
    inner.cell(0, 0).text, inner.cell(0, 1).text = "yes", "late"
    document.add_heading("Notice", 2)
    paragraph = document.add_paragraph("Three months.")
    document.add_comment(paragraph.runs, text="Check this", author="Zoe")
    document.sections[0].header.paragraphs[0].text = "Confidential"
    document.sections[0].footer.paragraphs[0].text = "Seite 1"


LEASE = """The Lease

Parties

Ann lets the flat\tto Bob.

1. pay the rent
2. keep it clean
- no dogs

Month | Rent | Paid
May | 900 EUR | yes | late

Notice

Three months.

Comments

Comment by Zoe: Check this

Headers

Confidential

Footers

Seite 1"""


def test_everything_that_is_written_is_read_in_order() -> None:
    parsed = read(docx_bytes(lease), "lease.docx")
    assert parsed.text == LEASE
    assert parsed.notes == [f"Read 15 paragraphs, 2 tables, {len(LEASE)} characters."]


def test_headings_stand_where_the_outline_says() -> None:
    parsed = read(docx_bytes(lease))
    assert [(each.level, each.title) for each in parsed.outline[:3]] == [
        (1, "The Lease"),
        (2, "Parties"),
        (3, "Notice"),
    ]
    assert all(parsed.text.startswith(each.title, each.start) for each in parsed.outline)


def body(xml: str) -> bytes:
    """A document whose body is `xml`."""

    def write(document: Document) -> None:
        for element in parse_xml(f"<w:body {W}>{xml}</w:body>"):
            document.element.body.insert_element_before(element, "w:sectPr")

    return docx_bytes(write)


def test_tracked_changes_read_as_accepted_and_are_told() -> None:
    parsed = read(
        body(
            "<w:p><w:r><w:t>rent is </w:t></w:r>"
            "<w:del><w:r><w:delText>800</w:delText></w:r></w:del>"
            "<w:ins><w:r><w:t>900</w:t></w:r></w:ins></w:p>"
        )
    )
    assert parsed.text == "rent is 900"
    assert parsed.notes[1:] == ["Did not read 1 passage that tracked changes delete or move away."]


def test_a_text_box_is_read_once_and_hidden_text_is_told() -> None:
    mc = 'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'
    box = "<w:txbxContent><w:p><w:r><w:t>in the box</w:t></w:r></w:p></w:txbxContent>"
    parsed = read(
        body(
            f"<w:p><w:r><mc:AlternateContent {mc}><mc:Choice>{box}</mc:Choice>"
            f"<mc:Fallback>{box}</mc:Fallback></mc:AlternateContent></w:r>"
            "<w:r><w:rPr><w:vanish/></w:rPr><w:t>secret</w:t></w:r></w:p>"
        )
    )
    assert parsed.text == "in the box\n\nsecret"
    assert parsed.notes[1:] == ["Some text is formatted as hidden; it was read."]


def test_footnotes_follow_the_text_and_are_named_in_it() -> None:
    raw = body('<w:p><w:r><w:t>See</w:t></w:r><w:r><w:footnoteReference w:id="2"/></w:r></w:p>')
    notes = (
        f'<w:footnotes {W}><w:footnote w:type="separator" w:id="0"><w:p><w:r><w:t>-</w:t></w:r>'
        '</w:p></w:footnote><w:footnote w:id="2"><w:p><w:r><w:t>Ibid.</w:t></w:r></w:p>'
        "</w:footnote></w:footnotes>"
    )
    name = "word/_rels/document.xml.rels"
    relation = b'<Relationship Id="rF" Type="x/relationships/footnotes" Target="footnotes.xml"/>'
    relations = part_of(raw, name).replace(b"</Relationships>", relation + b"</Relationships>")
    parsed = read(with_parts(raw, {"word/footnotes.xml": notes.encode(), name: relations}))
    assert parsed.text == "See[note 2]\n\nFootnotes\n\n[note 2] Ibid."
    assert parsed.outline == [Heading(13, 2, "Footnotes")]


def test_numbered_clauses_keep_their_numbers() -> None:
    levels = "".join(
        f'<w:lvl w:ilvl="{depth}"><w:start w:val="1"/><w:numFmt w:val="{style}"/>'
        f'<w:lvlText w:val="{text}"/></w:lvl>'
        for depth, (style, text) in enumerate(
            [("decimal", "%1."), ("decimal", "%1.%2"), ("lowerLetter", "(%3)")]
        )
    )
    numbering = (
        f'<w:numbering {W}><w:abstractNum w:abstractNumId="7">{levels}</w:abstractNum>'
        '<w:num w:numId="3"><w:abstractNumId w:val="7"/></w:num></w:numbering>'
    )

    def clause(depth: int, text: str) -> str:
        properties = f'<w:numPr><w:ilvl w:val="{depth}"/><w:numId w:val="3"/></w:numPr>'
        return f"<w:p><w:pPr>{properties}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"

    clauses = [(0, "Rent"), (1, "Sum"), (1, "Due"), (2, "cash"), (2, "wire"), (0, "End"), (1, "x")]
    raw = body("".join(clause(depth, text) for depth, text in clauses))
    parsed = read(with_parts(raw, {"word/numbering.xml": numbering.encode()}))
    assert parsed.text.splitlines() == [
        "1. Rent", "1.1 Sum", "1.2 Due", "(a) cash", "(b) wire", "2. End", "2.1 x",
    ]  # fmt: skip
