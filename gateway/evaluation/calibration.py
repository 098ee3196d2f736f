"""From measured accuracies and costs to the cheapest thresholds that keep a wanted accuracy; pure.

Never tells of a length or a route that was not measured.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from gateway.api import Route
from gateway.evaluation.plan import Arm
from gateway.evaluation.results import Cell, Judged, Result
from gateway.evaluation.scoring import wilson
from gateway.policy import AutoPolicy, PricePolicy
from gateway.routing import CHEAPER

MOST_WIDTH = 0.2
"""A wider interval says too little to decide by."""
LEAST_JUDGED = 20
ROUTES = {Arm(route.value): route for route in Route}

CostOf = Callable[[Cell, Route], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """One route at one length, all tasks together; `cost` is per request."""

    route: Route
    length: int
    accuracy: float
    low: float
    high: float
    answered: int
    cost: float
    seconds: float = 0.0
    tokens_read: float = 0.0

    @property
    def is_vague(self) -> bool:
        return self.high - self.low > MOST_WIDTH


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """`refused` are routes that would not take most prompts of a length."""

    measured: Mapping[tuple[Route, int], Measured]
    refused: frozenset[tuple[Route, int]] = frozenset()

    @property
    def lengths(self) -> tuple[int, ...]:
        return tuple(sorted({length for _, length in self.measured}))

    def taken(self, auto: AutoPolicy, length: int) -> Measured | None:
        """What answers under `auto`: the wanted route, or the next where it refuses.

        None where that was not measured.
        """
        for route in CHEAPER[wanted(auto, length)]:
            if (route, length) in self.refused:
                continue
            return self.measured.get((route, length))
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outlook:
    """What thresholds would give; every measured length counts alike."""

    auto: AutoPolicy
    by_length: tuple[Measured, ...]

    @property
    def cost(self) -> float:
        return fmean(one.cost for one in self.by_length)

    @property
    def accuracy(self) -> float:
        return fmean(one.accuracy for one in self.by_length)


@dataclass(frozen=True, slots=True, kw_only=True)
class Advice:
    """`kept` is the accuracy that thresholds can keep, at most the wanted one; `beyond` are the
    lengths at which no route has it, and which get the best there is."""

    chosen: Outlook
    wanted: float
    kept: float
    beyond: tuple[int, ...]

    @property
    def vague(self) -> tuple[Measured, ...]:
        return tuple(one for one in self.chosen.by_length if one.is_vague)


def table_of(result: Result, cost_of: CostOf) -> Table:
    measured: dict[tuple[Route, int], Measured] = {}
    refused: set[tuple[Route, int]] = set()
    for cell in result.cells:
        route = ROUTES.get(cell.arm)
        if route is None or cell.task is not None:
            continue
        if cell.refused > cell.answered:
            refused.add((route, cell.length))
        elif cell.accuracy is not None:
            measured[route, cell.length] = Measured(
                route=route,
                length=cell.length,
                accuracy=cell.accuracy,
                low=cell.low,
                high=cell.high,
                answered=cell.answered,
                cost=cost_of(cell, route),
                seconds=cell.cost.total_s or 0.0,
                tokens_read=cell.cost.tokens_read or 0.0,
            )
    return Table(measured=measured, refused=frozenset(refused))


def seconds_of(cell: Cell, route: Route) -> float:
    return cell.cost.total_s or 0.0


def money_of(prices: PricePolicy) -> CostOf:
    """Per request, in the prices' unit; cached tokens are not assumed."""

    def cost_of(cell: Cell, route: Route) -> float:
        prompt = cell.cost.prompt_tokens or cell.length
        for tier in prices.by_route()[route]:
            if tier.up_to_tokens is None or prompt <= tier.up_to_tokens:
                billed = cell.cost.billed_tokens or prompt
                answer = cell.cost.answer_tokens or 0.0
                return (billed * tier.input + answer * tier.output) / 1e6
        return 0.0

    return cost_of


def wanted(auto: AutoPolicy, length: int) -> Route:
    """The route that `auto` takes for a prompt that can be searched."""
    if length <= auto.full_max_tokens:
        return Route.FULL
    return Route.HIERARCHICAL if length <= auto.hierarchical_max_tokens else Route.RETRIEVAL


def outlook(table: Table, auto: AutoPolicy) -> Outlook | None:
    """None where some length's route was not measured."""
    taken = [table.taken(auto, length) for length in table.lengths]
    known = tuple(one for one in taken if one is not None)
    if not known or len(known) < len(taken):
        return None
    return Outlook(auto=auto, by_length=known)


def advise(table: Table, min_accuracy: float) -> Advice | None:
    """The cheapest thresholds with `min_accuracy` at every length; None without any data.

    A length at which no route has so much asks for the best there is. Where no thresholds give
    that at every length at once, `min_accuracy` is lowered until some do. Both only ever shrink
    the choice as `min_accuracy` rises, so a stricter one is never cheaper.
    """
    candidates = _candidates(table)
    if not candidates:
        return None
    best = [max(one.accuracy for one in column) for column in _columns(candidates)]
    kept = min_accuracy
    feasible = _feasible(candidates, best, kept)
    for lower in sorted(_accuracies(candidates), reverse=True):
        if feasible:
            break
        if lower < min_accuracy:
            kept, feasible = lower, _feasible(candidates, best, lower)
    chosen = min(feasible or candidates, key=_preference)
    beyond = [n for n, most in zip(table.lengths, best, strict=True) if most < min_accuracy]
    return Advice(chosen=chosen, wanted=min_accuracy, kept=kept, beyond=tuple(beyond))


def _candidates(table: Table) -> list[Outlook]:
    steps = (0, *table.lengths)
    tried = (
        outlook(table, AutoPolicy(full_max_tokens=full, hierarchical_max_tokens=hierarchical))
        for full in steps
        for hierarchical in steps
        if full <= hierarchical
    )
    return [one for one in tried if one is not None]


def _columns(candidates: Sequence[Outlook]) -> Iterable[tuple[Measured, ...]]:
    return zip(*(one.by_length for one in candidates), strict=True)


def _accuracies(candidates: Sequence[Outlook]) -> set[float]:
    return {one.accuracy for outlook in candidates for one in outlook.by_length}


def _feasible(
    candidates: Sequence[Outlook], best: Sequence[float], min_accuracy: float
) -> list[Outlook]:
    return [
        one
        for one in candidates
        if all(
            at.accuracy >= min(min_accuracy, most)
            for at, most in zip(one.by_length, best, strict=True)
        )
    ]


def _preference(one: Outlook) -> tuple[float, float, int, int]:
    auto = one.auto
    return one.cost, -one.accuracy, auto.full_max_tokens, auto.hierarchical_max_tokens


def min_evidence(judged: Sequence[Judged], min_accuracy: float) -> float | None:
    """The least evidence from which on searched answers are right often enough.

    None where too few were judged, or where no evidence promises so much.
    """
    if len(judged) < LEAST_JUDGED:
        return None
    ordered = sorted(judged, key=lambda one: one.evidence)
    for i, one in enumerate(ordered):
        if i and one.evidence == ordered[i - 1].evidence:
            continue
        rest = ordered[i:]
        if len(rest) < LEAST_JUDGED // 2:
            return None
        if sum(each.is_right for each in rest) >= min_accuracy * len(rest):
            return one.evidence
    return None


def samples_for(share: float) -> int:
    """The fewest answers whose interval would not be too wide, were this share of them right."""
    total = 1
    while True:
        low, high = wilson(round(share * total), total)
        if high - low <= MOST_WIDTH:
            return total
        total += 1
