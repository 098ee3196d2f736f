"""HTML becomes what a reader sees, with its headings."""

import pytest

from ingest.api import PermanentError
from ingest.parsing.html import parse_html
from ingest.parsing.parsed import Heading

PAGE = """<!doctype html><html><head><title> The  Case </title><style>p{}</style></head><body>
<script>alert(1)</script><h1>Facts</h1><p>The   tenant
paid <b>late</b>.</p><p hidden>secret</p><div style="display: none">also secret</div>
<h2>Money</h2><ul><li>rent</li><li>deposit</li></ul>
<table><tr><td>May</td><td>900</td></tr><tr><td>June</td><td>950</td></tr></table>
<pre>def f():
    return 1</pre>one<br>two</body></html>"""


def test_a_page_reads_as_a_person_sees_it() -> None:
    assert parse_html(PAGE.encode()).text == (
        "Facts\n\nThe tenant paid late.\n\nMoney\n\nrent\ndeposit\n\n"
        "May | 900 |\nJune | 950 |\n\ndef f():\n    return 1\n\none\ntwo"
    )


def test_headings_carry_their_offsets() -> None:
    parsed = parse_html(PAGE.encode())
    assert parsed.outline == [
        Heading(0, 1, "The Case"),
        Heading(0, 2, "Facts"),
        Heading(parsed.text.index("Money"), 3, "Money"),
    ]


def test_the_declared_encoding_is_used_when_it_is_not_utf8() -> None:
    raw = '<html><meta charset="koi8-r"><p>Да</p>'.encode("koi8_r")
    assert parse_html(raw).text == "Да"


def test_a_page_of_scripts_only_is_refused() -> None:
    with pytest.raises(PermanentError, match="no visible text"):
        parse_html(b"<html><script>let x = 1</script></html>")


def test_deep_nesting_breaks_nothing() -> None:
    assert parse_html(b"<div>" * 20_000 + b"deep" + b"</div>" * 20_000).text == "deep"


def test_the_encoding_that_came_with_the_page_goes_before_its_own_word() -> None:
    raw = '<html><meta charset="latin1"><p>Да</p>'.encode("koi8_r")
    assert parse_html(raw, declared="koi8-r").text == "Да"


def test_an_xml_declaration_names_the_encoding_too() -> None:
    raw = '<?xml version="1.0" encoding="koi8-r"?><html><p>Да</p></html>'.encode("koi8_r")
    assert parse_html(raw).text == "Да"


def test_pictures_are_told() -> None:
    parsed = parse_html(b"<html><p>text<img src=x><iframe src=y></iframe>")
    assert parsed.notes == ["Did not read 2 pictures or frames."]
