"""What another policy would have done with the requests recorded: pure, over their shapes."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from gateway.admin.shapes import Shape
from gateway.answers import Usage
from gateway.api import ContextRequired, GatewayError, NoEngineFits, RouteForbidden
from gateway.lengths import length_bucket
from gateway.policy import Policy
from gateway.routing import choose, read_tokens
from gateway.tenancy.prices import cost_micros, price_of

MOST_CHANGED = 100
REFUSED = "refused"

REFUSALS: tuple[type[GatewayError], ...] = (NoEngineFits, ContextRequired, RouteForbidden)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """`route` is `refused` when the policy has none. `micros` is the price of what is read."""

    route: str
    reason: str
    tokens_read: int
    max_new_tokens: int
    micros: int


@dataclass(slots=True)
class Totals:
    routes: Counter[str] = field(default_factory=Counter)
    tokens_read: int = 0
    micros: int = 0

    def add(self, choice: Choice) -> None:
        self.routes[choice.route] += 1
        self.tokens_read += choice.tokens_read
        self.micros += choice.micros


@dataclass(frozen=True, slots=True)
class LengthTotals:
    length: str
    before: Totals
    after: Totals


@dataclass(frozen=True, slots=True, kw_only=True)
class Changed:
    prompt_tokens: int
    context_tokens: int
    question_tokens: int
    max_new_tokens: int | None
    fidelity: str
    before: Choice
    after: Choice


@dataclass(frozen=True, slots=True, kw_only=True)
class DryRun:
    """Escalation on weak evidence is not in it: that depends on text, which nobody kept."""

    num_shapes: int
    num_changed: int
    before: Totals
    after: Totals
    by_length: Sequence[LengthTotals]
    changed: Sequence[Changed]


def dry_run(shapes: Iterable[Shape], before: Policy, after: Policy) -> DryRun:
    totals = Totals(), Totals()
    by_length: dict[str, LengthTotals] = {}
    changed: list[Changed] = []
    num_shapes = num_changed = 0
    for shape in shapes:
        num_shapes += 1
        old, new = chosen(shape, before), chosen(shape, after)
        length = length_bucket(shape.counts.prompt_tokens)
        share = by_length.setdefault(length, LengthTotals(length, Totals(), Totals()))
        for choice, sums in ((old, (totals[0], share.before)), (new, (totals[1], share.after))):
            for one in sums:
                one.add(choice)
        if (old.route, old.tokens_read) != (new.route, new.tokens_read):
            num_changed += 1
            if len(changed) < MOST_CHANGED:
                changed.append(_changed(shape, old, new))
    return DryRun(
        num_shapes=num_shapes,
        num_changed=num_changed,
        before=totals[0],
        after=totals[1],
        by_length=sorted(by_length.values(), key=_place_of),
        changed=changed,
    )


def chosen(shape: Shape, policy: Policy) -> Choice:
    try:
        plan = choose(
            shape.counts,
            shape.fidelity,
            shape.facts,
            policy,
            allow_fallback=shape.allow_fallback,
        )
    except REFUSALS as error:
        return Choice(route=REFUSED, reason=str(error), tokens_read=0, max_new_tokens=0, micros=0)
    reads = read_tokens(plan.route, shape.counts, policy)
    price = price_of(plan.route, shape.counts.prompt_tokens, policy)
    read = Usage(prompt_tokens=reads, cached_tokens=0, completion_tokens=0)
    return Choice(
        route=plan.route.value,
        reason=plan.reason,
        tokens_read=reads,
        max_new_tokens=plan.max_new_tokens,
        micros=cost_micros(price, read),
    )


def _place_of(one: LengthTotals) -> tuple[int, bool]:
    return int(one.length.strip("<=>")), one.length.startswith(">")


def _changed(shape: Shape, before: Choice, after: Choice) -> Changed:
    counts = shape.counts
    return Changed(
        prompt_tokens=counts.prompt_tokens,
        context_tokens=counts.context_tokens,
        question_tokens=counts.question_tokens,
        max_new_tokens=counts.max_new_tokens,
        fidelity=shape.fidelity.value,
        before=before,
        after=after,
    )
