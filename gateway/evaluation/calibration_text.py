"""The words, the table and the YAML of a calibration; decides nothing."""

from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from gateway.evaluation.calibration import Advice, Measured, Outlook, samples_for
from gateway.evaluation.tables import tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """`today` is None where its routes were not measured; `unit` is of the costs; `notes` are
    the evaluation's own."""

    advice: Advice
    today: Outlook | None
    evidence: float | None
    num_judged: int
    unit: str
    notes: tuple[str, ...] = ()


def snippet(told: Told) -> str:
    """Keys for the policy file; those it does not name stay as they are."""
    auto = told.advice.chosen.auto
    keys: dict[str, dict[str, float]] = {
        "auto": {
            "full_max_tokens": auto.full_max_tokens,
            "hierarchical_max_tokens": auto.hierarchical_max_tokens,
        }
    }
    if told.evidence is not None:
        keys["retrieval"] = {"min_evidence": floored(told.evidence)}
    return yaml.safe_dump(keys, sort_keys=False)


def floored(evidence: float) -> float:
    """Three digits, and never above what was measured as good enough."""
    return int(min(1.0, max(0.0, evidence)) * 1000) / 1000


def as_text(told: Told) -> str:
    lines = [*_verdict(told), "", *_table(told), "", *_warnings(told), "", snippet(told).rstrip()]
    return "\n".join(lines)


def _verdict(told: Told) -> Iterator[str]:
    advice, chosen = told.advice, told.advice.chosen
    auto = chosen.auto
    yield (
        f"Read fully up to {auto.full_max_tokens:,} tokens, hierarchically up to "
        f"{auto.hierarchical_max_tokens:,}, searched beyond: {chosen.accuracy:.0%} right, "
        f"{cost(chosen.cost, told.unit)} per request."
    )
    if told.today is None:
        yield "Today's policy cannot be compared: a route that it takes was not measured."
    else:
        ratio = f" ({chosen.cost / told.today.cost:.2f} of it)" if told.today.cost else ""
        yield (
            f"Today's policy: {told.today.accuracy:.0%} right, "
            f"{cost(told.today.cost, told.unit)} per request; the change costs "
            f"{cost(chosen.cost - told.today.cost, told.unit, signed=True)}{ratio}."
        )
    if advice.kept < advice.wanted:
        yield (
            f"No thresholds keep {advice.wanted:.0%} wherever some route has it; "
            f"the most that can be kept is {advice.kept:.0%}."
        )


def _table(told: Told) -> Iterator[str]:
    yield (
        f"{'length':>8}  {'route':<13}{'right':>6}  {'95 % interval':<15}{'answers':>7}"
        f"{'tokens read':>13}{'cost':>14}  today"
    )
    today = told.today.by_length if told.today else (None,) * len(told.advice.chosen.by_length)
    for one, before in zip(told.advice.chosen.by_length, today, strict=True):
        interval = f"{one.low:.0%} to {one.high:.0%}"
        yield (
            f"{tokens(one.length):>8}  {one.route:<13}{one.accuracy:>6.0%}  {interval:<15}"
            f"{one.answered:>7}{one.tokens_read:>13,.0f}{cost(one.cost, told.unit):>14}  "
            f"{_before(before, told.unit)}"
        )


def _before(one: Measured | None, unit: str) -> str:
    return "-" if one is None else f"{one.route}, {one.accuracy:.0%}, {cost(one.cost, unit)}"


def _warnings(told: Told) -> Iterator[str]:
    advice = told.advice
    yield from told.notes
    for one in advice.vague:
        more = max(1, samples_for(one.accuracy) - one.answered)
        yield (
            f"TOO LITTLE DATA at {tokens(one.length)} by {one.route}: {one.answered} answers leave "
            f"{one.low:.0%} to {one.high:.0%} possible; about {more} more would do."
        )
    if advice.beyond:
        at = ", ".join(tokens(length) for length in advice.beyond)
        others = len(advice.chosen.by_length) - len(advice.beyond)
        elsewhere = f", and at least {advice.kept:.0%} elsewhere" if others else ""
        yield (
            f"No measured route reaches {advice.wanted:.0%} at {at}; there the best is "
            f"asked for{elsewhere}."
        )
    longest = advice.chosen.by_length[-1].length
    yield f"Prompts above {longest:,} tokens were not measured; they would be searched."
    if told.evidence is not None:
        yield (
            f"Searched answers with evidence of {floored(told.evidence):.3f} or more are right "
            f"often enough ({told.num_judged} judged); what escalating the others costs is not "
            "in the table."
        )
    elif told.num_judged:
        yield (
            f"{told.num_judged} searched answers tell no evidence that promises "
            f"{advice.wanted:.0%}; min_evidence stays as it is."
        )


def cost(value: float, unit: str, *, signed: bool = False) -> str:
    form = "{:+,.4g} {}" if signed else "{:,.4g} {}"
    return form.format(value, unit)
