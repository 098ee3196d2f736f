"""The report's page: whole in itself, well formed, and honest about what was not answered."""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from gateway.evaluation.charts import powers
from gateway.evaluation.page_style import COLOURS
from gateway.evaluation.plan import Arm
from gateway.evaluation.report import report
from tests.gateway.evaluation.made import made_result

RIGHTS = {
    (Arm.FULL, 2048): 20,
    (Arm.FULL, 8192): None,
    (Arm.RETRIEVAL, 2048): 5,
    (Arm.RETRIEVAL, 8192): 0,
}


class References(HTMLParser):
    """All tags, and every attribute that could fetch something."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        fetching = {"src", "href", "xlink:href", "data", "action", "srcset", "style", "onload"}
        self.found += [name for name, _ in attrs if name in fetching]


def page() -> str:
    return report(made_result(RIGHTS, samples=20, haystack="<script>alert(1)</script>"))


def test_the_page_fetches_nothing_and_runs_nothing() -> None:
    seen = References()
    seen.feed(page())
    assert seen.found == []
    assert seen.tags.isdisjoint({"script", "link", "img", "iframe", "object", "embed", "base"})
    assert not re.search(r"https?:|url\(|@import|//[a-z]", page())


def test_every_chart_is_well_formed_and_has_a_point_per_answered_length() -> None:
    charts = [ElementTree.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", page())]
    accuracy = [c for c in charts if c.get("aria-label") == "Right answers by length"]
    told = [one.text for one in accuracy[0].iter("title")]
    assert told == ["full at 2K: 20 of 20", "retrieval at 2K: 5 of 20", "retrieval at 8K: 0 of 20"]
    whiskers = [p for p in accuracy[0].iter("path") if p.get("class") == "whisker"]
    assert len(whiskers) == 3


def test_text_from_elsewhere_is_escaped() -> None:
    assert "<script>" not in page()
    assert "tiny &lt;&amp;&gt; mighty" in page()


def test_an_answer_is_shown_in_words_that_cannot_become_tags() -> None:
    hostile = "</q></td><script>alert(1)</script><img src=//x onerror='y'>" + "&" * 5_000
    shown = report(made_result({(Arm.FULL, 2048): 0}, samples=1, answer=hostile))
    seen = References()
    seen.feed(shown)
    assert seen.found == []
    assert seen.tags.isdisjoint({"script", "img"})
    assert "&lt;/q&gt;&lt;/td&gt;&lt;script&gt;" in shown
    assert shown.count("&amp;") < 400, "an answer is cut"


def test_an_example_is_a_wrong_answer_where_there_is_one() -> None:
    result = made_result({(Arm.FULL, 2048): 20, (Arm.RETRIEVAL, 2048): 5}, samples=20)
    assert [(one.arm, one.is_right) for one in result.examples] == [
        (Arm.FULL, True),
        (Arm.RETRIEVAL, False),
    ]


@given(st.lists(st.floats(1e-6, 1e9), min_size=1, max_size=9))
def test_a_cost_lies_inside_its_axis_and_the_axis_has_ticks(values: list[float]) -> None:
    axis = powers(values)
    assert axis.low <= min(values) * 1.001
    assert max(values) <= axis.high * 1.001
    assert len(axis.ticks) >= 2
    assert all(axis.low * 0.99 <= at <= axis.high * 1.01 for at in axis.ticks)
    assert all(text.strip() for text in axis.ticks.values())


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    high, low = sorted((luminance(one), luminance(other)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_every_curve_can_be_read_on_light_and_on_dark() -> None:
    for light, dark in COLOURS:
        assert contrast(light, "#ffffff") >= 4.5
        assert contrast(dark, "#14181d") >= 4.5
    assert "prefers-color-scheme:dark" in page()
