"""Markdown's headings are found where they stand, and nowhere else."""

from ingest.parsing.outline import markdown_outline
from ingest.parsing.parsed import Heading


def outline(text: str) -> list[tuple[int, str]]:
    found = markdown_outline(text)
    assert all(text[heading.start :].lstrip().startswith(("#", heading.title)) for heading in found)
    return [(heading.level, heading.title) for heading in found]


def test_both_kinds_of_headings_are_found() -> None:
    text = "# One #\ntext\n\nTwo\n===\n\nThree\n---\n\n### Four\n"
    assert outline(text) == [(1, "One"), (1, "Two"), (2, "Three"), (3, "Four")]


def test_offsets_count_characters_also_with_windows_line_ends() -> None:
    assert markdown_outline("é\r\n\r\n## Über\r\n") == [Heading(5, 2, "Über")]


def test_code_rules_lists_and_tables_are_no_headings() -> None:
    text = (
        "```sh\n# comment\n```\n\n---\n\n- item\n---\n\n| a | b |\n---\n#hashtag\n####### seven\n"
    )
    assert outline(text) == []


def test_a_fence_is_closed_only_by_its_own_kind() -> None:
    assert outline("~~~\n```\n# in\n~~~\n# out\n") == [(1, "out")]
