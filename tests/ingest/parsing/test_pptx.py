"""A presentation reads slide by slide, with what the speaker says."""

from pptx.presentation import Presentation
from pptx.util import Inches

from ingest.parsing.parsed import Heading
from tests.ingest.parsing.office_files import pptx_bytes, read


def talk(slides: Presentation) -> None:
    first = slides.slides.add_slide(slides.slide_layouts[1])
    first.shapes.title.text = "The Plan"
    first.placeholders[1].text = "First think.\nThen act."
    first.notes_slide.notes_text_frame.text = "Smile."
    second = slides.slides.add_slide(slides.slide_layouts[6])
    table = second.shapes.add_table(2, 2, 0, 0, Inches(2), Inches(1)).table
    for index, text in enumerate(["Year", "Cost", "2024", "12"]):
        table.cell(index // 2, index % 2).text = text
    group = second.shapes.add_group_shape()
    group.shapes.add_textbox(0, 0, Inches(1), Inches(1)).text_frame.text = "in a group"
    second._element.set("show", "0")
    slides.slides.add_slide(slides.slide_layouts[6])


def test_slides_are_pages_with_titles_tables_and_notes() -> None:
    parsed = read(pptx_bytes(talk), "talk.pptx")
    assert parsed.text.rstrip("\n") == (
        "The Plan\n\nFirst think.\nThen act.\n\nNotes: Smile.\n\n"
        "Year | Cost\n2024 | 12\n\nin a group"
    )
    assert parsed.page_starts == [0, parsed.text.index("Year"), len(parsed.text)]
    assert parsed.outline == [
        Heading(0, 1, "The Plan"),
        Heading(parsed.text.index("Year"), 1, "Slide 2"),
        Heading(len(parsed.text), 1, "Slide 3"),
    ]
    assert parsed.notes == [
        f"Read 3 slides, {len(parsed.text)} characters.",
        "Hidden, but read: slide 2 of 3.",
        "No text on slide 3 of 3: empty, or pictures only.",
    ]
