"""Which route answers a prompt: pure functions over counts, facts and policy; no clock, no I/O."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from engines.api import Attention
from gateway.api import ContextRequired, Fidelity, NoEngineFits, Route, RouteForbidden
from gateway.policy import Policy

LEAST_ANSWER_TOKENS = 16
"""Room an answer must have when its request names no maximum."""

PACKING_TOKENS = 160
"""Instruction, source names and markers around retrieved passages."""

CHUNK_ROOM_TOKENS = 1024
"""What hierarchical attention keeps free in the model's window for anchor and context."""

CHEAPER: Mapping[Route, tuple[Route, ...]] = {
    Route.FULL: (Route.FULL, Route.HIERARCHICAL, Route.RETRIEVAL),
    Route.HIERARCHICAL: (Route.HIERARCHICAL, Route.RETRIEVAL),
    Route.RETRIEVAL: (Route.RETRIEVAL,),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """`context_tokens` of the `prompt_tokens` can be searched: files, documents, long texts.

    `question_tokens` are those from the question's start on; earlier turns are before it.
    `has_stores`: vector stores are searched too, whose tokens nobody counts.
    """

    prompt_tokens: int
    context_tokens: int
    question_tokens: int
    max_new_tokens: int | None = None
    has_stores: bool = False

    @property
    def has_context(self) -> bool:
        return self.context_tokens > 0 or self.has_stores

    @property
    def least_new_tokens(self) -> int:
        return LEAST_ANSWER_TOKENS if self.max_new_tokens is None else self.max_new_tokens


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """Largest prompt + answer per attention mode; a mode that is missing is not served."""

    context_tokens: Mapping[Attention, int]

    def but(self, attention: Attention, limit: int) -> "EngineFacts":
        return EngineFacts({**self.context_tokens, attention: limit})


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`reason` is a sentence for people. `max_new_tokens` fits beside what the route reads."""

    route: Route
    requested: Fidelity
    reason: str
    max_new_tokens: int
    fallback_from: Route | None = None
    escalated_from: Route | None = None


def choose(
    counts: Counts, fidelity: Fidelity, facts: EngineFacts, policy: Policy, *, allow_fallback: bool
) -> Plan:
    """The first route that fits, from the wanted one towards cheaper ones.

    Raises NoEngineFits, ContextRequired or RouteForbidden; for any counts it does one or the
    other. Under `auto` a longer context never gets a costlier route.
    """
    wanted, why = _wanted(counts, fidelity, policy)
    if fidelity is not Fidelity.AUTO and not allow_fallback and wanted not in policy.allow:
        raise RouteForbidden(wanted)
    if wanted is Route.RETRIEVAL and not counts.has_context:
        raise ContextRequired
    for route in CHEAPER[wanted] if allow_fallback else (wanted,):
        if _fits(route, counts, facts, policy):
            plan = _plan(route, counts, fidelity, facts, policy, why)
            return plan if route is wanted else _fallen(plan, wanted, counts, facts, policy)
    raise _nothing_fits(wanted, counts, fidelity, facts, policy)


def escalate(plan: Plan, counts: Counts, facts: EngineFacts, policy: Policy) -> Plan | None:
    """Where an `auto` retrieval with weak evidence goes; None when nothing that reads all fits."""
    for route in (Route.HIERARCHICAL, Route.FULL):
        if _fits(route, counts, facts, policy):
            why = "the passages found are weak evidence"
            found = _plan(route, counts, plan.requested, facts, policy, why)
            return replace(found, escalated_from=plan.route, fallback_from=plan.fallback_from)
    return None


def limit_of(route: Route, facts: EngineFacts, policy: Policy) -> int:
    """Largest prompt that the route takes, answer included for the engine's part; 0: none."""
    own = policy.limits.by_route()[route]
    if route is Route.RETRIEVAL:
        return 2**31 if own is None else own
    held = facts.context_tokens.get(Attention(route.value), 0)
    return held if own is None else min(held, own)


def largest_limit(facts: EngineFacts, policy: Policy) -> int:
    """No prompt above this is answered by any route."""
    return max(limit_of(route, facts, policy) for route in policy.allow)


def _wanted(counts: Counts, fidelity: Fidelity, policy: Policy) -> tuple[Route, str]:
    if fidelity is not Fidelity.AUTO:
        return Route(fidelity.value), f"fidelity {fidelity} was asked for"
    if counts.has_stores:
        return Route.RETRIEVAL, "vector stores can only be searched"
    num = counts.prompt_tokens
    auto = policy.auto
    if num <= auto.full_max_tokens:
        return Route.FULL, f"{num} tokens are within {auto.full_max_tokens}"
    if counts.question_tokens > auto.full_max_tokens:
        return Route.FULL, f"{counts.question_tokens} of {num} tokens are the question"
    if num <= auto.hierarchical_max_tokens:
        return Route.HIERARCHICAL, f"{num} tokens are within {auto.hierarchical_max_tokens}"
    if not counts.has_context:
        return Route.HIERARCHICAL, f"{num} tokens hold nothing to search"
    return Route.RETRIEVAL, f"{num} tokens are more than {auto.hierarchical_max_tokens}"


def read_tokens(route: Route, counts: Counts, policy: Policy) -> int:
    """What the model reads by this route, at most."""
    if route is not Route.RETRIEVAL:
        return counts.prompt_tokens
    most = policy.retrieval.total_tokens
    packed = most if counts.has_stores else min(counts.context_tokens, most)
    return counts.prompt_tokens - counts.context_tokens + packed + PACKING_TOKENS


def _room(route: Route, counts: Counts, facts: EngineFacts, policy: Policy) -> int:
    """Tokens that the route leaves for the answer."""
    engine_route = Route.FULL if route is Route.RETRIEVAL else route
    room = limit_of(engine_route, facts, policy) - read_tokens(route, counts, policy)
    if route is not Route.HIERARCHICAL:
        return room
    # Question and answer attend to each other in full, beside a chunk of context at least.
    chunk = min(counts.prompt_tokens - counts.question_tokens, CHUNK_ROOM_TOKENS)
    window = facts.context_tokens.get(Attention.FULL, 0)
    return min(room, window - counts.question_tokens - chunk)


def _fits(route: Route, counts: Counts, facts: EngineFacts, policy: Policy) -> bool:
    if route not in policy.allow:
        return False
    if route is Route.RETRIEVAL:
        searchable = counts.prompt_tokens <= limit_of(route, facts, policy)
        if not (counts.has_context and searchable):
            return False
    return _room(route, counts, facts, policy) >= counts.least_new_tokens


def _plan(
    route: Route,
    counts: Counts,
    fidelity: Fidelity,
    facts: EngineFacts,
    policy: Policy,
    why: str,
) -> Plan:
    room = _room(route, counts, facts, policy)
    default = min(policy.answer.default_max_tokens, room)
    asked = counts.max_new_tokens
    return Plan(
        route=route,
        requested=fidelity,
        reason=f"{route}: {why}",
        max_new_tokens=default if asked is None else asked,
    )


def _fallen(plan: Plan, wanted: Route, counts: Counts, facts: EngineFacts, policy: Policy) -> Plan:
    if wanted not in policy.allow:
        why = f"the policy does not allow {wanted}"
    else:
        room = max(0, _room(wanted, counts, facts, policy))
        why = f"{wanted} leaves {room} tokens for an answer of {counts.least_new_tokens}"
    return replace(plan, reason=f"{plan.route}: {why}", fallback_from=wanted)


def _nothing_fits(
    wanted: Route, counts: Counts, fidelity: Fidelity, facts: EngineFacts, policy: Policy
) -> NoEngineFits:
    limits = [limit_of(route, facts, policy) for route in _considered(wanted, fidelity)]
    return NoEngineFits(
        wanted=fidelity.value,
        num_tokens=counts.prompt_tokens + counts.least_new_tokens,
        limit=max(limits),
        fits=next((route for route in Route if _fits(route, counts, facts, policy)), None),
    )


def _considered(wanted: Route, fidelity: Fidelity) -> Iterator[Route]:
    yield from (CHEAPER[wanted] if fidelity is Fidelity.AUTO else (wanted,))
