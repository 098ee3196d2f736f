"""Thresholds from results: cheapest, monotone, never made up; and `ringway calibrate`."""

from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.api import Route
from gateway.cli.main import main
from gateway.evaluation.calibration import (
    Measured,
    Table,
    advise,
    min_evidence,
    money_of,
    outlook,
    samples_for,
    seconds_of,
    table_of,
)
from gateway.evaluation.calibration_text import Told, snippet
from gateway.evaluation.plan import Arm
from gateway.evaluation.results import RESULT_NAME, Judged, Result
from gateway.evaluation.scoring import wilson
from gateway.policy import AutoPolicy, parse_policy
from tests.gateway.evaluation.made import made_result

SAMPLES = 100
LENGTHS = (1024, 8192, 65536)
RIGHTS = {
    **{(Arm.FULL, 1024): 100, (Arm.FULL, 8192): 98, (Arm.FULL, 65536): None},
    **{(Arm.HIERARCHICAL, 1024): 97, (Arm.HIERARCHICAL, 8192): 95, (Arm.HIERARCHICAL, 65536): 92},
    **{(Arm.RETRIEVAL, 1024): 80, (Arm.RETRIEVAL, 8192): 80, (Arm.RETRIEVAL, 65536): 75},
}


def seconds_table(result: Result) -> Table:
    return table_of(result, seconds_of)


@pytest.mark.parametrize(
    ("min_accuracy", "auto"),
    [
        (0.0, (1024, 1024)),
        (0.7, (1024, 1024)),
        (0.9, (1024, 65536)),
        (0.96, (8192, 65536)),
    ],
)
def test_the_cheapest_thresholds_with_the_accuracy_are_chosen(
    min_accuracy: float, auto: tuple[int, int]
) -> None:
    """At 1K full takes 0.5 s, hierarchical 1.0, retrieval 0.6; at 8K 34, 8 and 0.6 s."""
    advice = advise(seconds_table(made_result(RIGHTS, SAMPLES)), min_accuracy)
    assert advice is not None
    chosen = advice.chosen.auto
    assert (chosen.full_max_tokens, chosen.hierarchical_max_tokens) == auto


@st.composite
def tables(draw: st.DrawFn) -> Table:
    measured: dict[tuple[Route, int], Measured] = {}
    refused: set[tuple[Route, int]] = set()
    for length in draw(st.lists(st.sampled_from((1, 2, 4, 8)), min_size=1, unique=True)):
        routes = draw(st.sets(st.sampled_from(Route), min_size=1))
        for route in routes:
            right, answered = draw(st.integers(0, 12)), 12
            low, high = wilson(right, answered)
            measured[route, length] = Measured(
                route=route,
                length=length,
                accuracy=right / answered,
                low=low,
                high=high,
                answered=answered,
                cost=draw(st.integers(0, 9)),
            )
        refused |= {(one, length) for one in Route if one not in routes and draw(st.booleans())}
    return Table(measured=measured, refused=frozenset(refused))


@given(table=tables(), accuracies=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_a_stricter_accuracy_is_never_cheaper(
    table: Table, accuracies: tuple[float, float]
) -> None:
    loose, strict = (advise(table, one) for one in sorted(accuracies))
    assert (loose is None) == (strict is None)
    if loose is not None and strict is not None:
        assert loose.chosen.cost <= strict.chosen.cost
        assert loose.kept <= strict.kept


@given(table=tables(), min_accuracy=st.floats(0, 1))
def test_advice_rests_on_measurements_and_keeps_what_it_says(
    table: Table, min_accuracy: float
) -> None:
    advice = advise(table, min_accuracy)
    if advice is None:
        return
    assert advice.chosen == outlook(table, advice.chosen.auto)
    assert all(
        one.accuracy >= advice.kept or one.length in advice.beyond
        for one in advice.chosen.by_length
    )


@given(
    st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=20, max_size=40),
    st.floats(0, 1),
    st.floats(0, 1),
)
def test_more_accuracy_never_asks_for_less_evidence(
    pairs: list[tuple[float, bool]], one: float, other: float
) -> None:
    judged = [Judged(evidence, is_right, 1024) for evidence, is_right in pairs]
    loose, strict = (min_evidence(judged, each) for each in sorted((one, other)))
    if strict is not None:
        assert loose is not None
        assert loose <= strict


def test_the_least_evidence_that_promises_enough_is_recommended() -> None:
    judged = [Judged(0.1, False, 1024)] * 20 + [Judged(0.5, True, 1024)] * 30
    assert min_evidence(judged, 0.9) == 0.5
    assert min_evidence(judged, 0.6) == 0.1
    assert min_evidence(judged[:20], 0.9) is None


@given(table=tables(), min_accuracy=st.floats(0, 1), evidence=st.none() | st.floats(0, 1))
def test_the_snippet_is_a_policy(table: Table, min_accuracy: float, evidence: float | None) -> None:
    advice = advise(table, min_accuracy)
    if advice is None:
        return
    told = Told(advice=advice, today=None, evidence=evidence, num_judged=0, unit="s")
    policy = parse_policy(snippet(told))
    assert policy.auto == advice.chosen.auto
    if evidence is not None:
        assert evidence - 0.001 <= policy.retrieval.min_evidence <= evidence


def test_prices_decide_where_they_are_given() -> None:
    prices = parse_policy(
        "prices: {full: [{up_to_tokens: 2000, input: 1}, {input: 5, output: 10}],"
        " hierarchical: [{input: 9}], retrieval: [{input: 1}]}"
    ).prices
    table = table_of(made_result(RIGHTS, SAMPLES), money_of(prices))
    assert table.measured[Route.FULL, 8192].cost == pytest.approx((8192 * 5 + 10 * 10) / 1e6)
    assert table.measured[Route.RETRIEVAL, 65536].cost == pytest.approx(500 / 1e6)
    advice = advise(table, 0.9)
    assert advice is not None
    assert advice.chosen.auto == AutoPolicy(full_max_tokens=8192, hierarchical_max_tokens=65536)


def write(folder: Path, result: Result) -> None:
    (folder / RESULT_NAME).write_bytes(msgspec.json.encode(result))


def test_the_command_prints_costs_beside_todays_and_a_snippet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, made_result(RIGHTS, SAMPLES))
    assert main(["calibrate", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "Read fully up to 1,024 tokens, hierarchically up to 65,536" in told
    assert "Today's policy" in told
    policy = parse_policy(told[told.index("auto:") :])
    assert policy.auto == AutoPolicy(full_max_tokens=1024, hierarchical_max_tokens=65536)


def test_what_the_evaluation_notes_is_said_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = made_result(RIGHTS, SAMPLES)
    write(tmp_path, replace(made, notes=("Stopped at 3 of 900 answers.",)))
    assert main(["calibrate", str(tmp_path)]) == 0
    assert "Stopped at 3 of 900 answers." in capsys.readouterr().out


def test_a_bar_that_no_route_reaches_promises_nothing_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, made_result({(Arm.FULL, 1024): 40, (Arm.FULL, 8192): 40}, samples=100))
    main(["calibrate", str(tmp_path)])
    told = capsys.readouterr().out
    assert "No measured route reaches 90% at 1K, 8K; there the best is asked for.\n" in told


def test_too_little_data_is_said_plainly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, made_result({(Arm.FULL, 1024): 4, (Arm.FULL, 8192): 4}, samples=4))
    assert main(["calibrate", str(tmp_path)]) == 1
    told = capsys.readouterr().out
    more = samples_for(1.0) - 4
    assert f"TOO LITTLE DATA at 8K by full: 4 answers leave 51% to 100% possible; about {more}" in (
        told
    )


@pytest.mark.parametrize(
    ("result", "told"),
    [
        (None, "cannot read"),
        (made_result({(Arm.AUTO, 1024): 4}, samples=4), "measured no set of routes"),
    ],
)
def test_a_folder_without_use_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], result: Result | None, told: str
) -> None:
    if result is not None:
        write(tmp_path, result)
    assert main(["calibrate", str(tmp_path)]) == 2
    assert told in capsys.readouterr().err
