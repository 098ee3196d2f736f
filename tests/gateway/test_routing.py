from dataclasses import replace

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engines.api import Attention
from gateway.api import ContextRequired, Fidelity, GatewayError, NoEngineFits, Route, RouteForbidden
from gateway.policy import AutoPolicy, LimitPolicy, Policy
from gateway.routing import CHUNK_ROOM_TOKENS, Counts, EngineFacts, Plan, choose, escalate, limit_of

FACTS = EngineFacts({Attention.FULL: 8192, Attention.HIERARCHICAL: 100_000})
COST = {Route.RETRIEVAL: 0, Route.HIERARCHICAL: 1, Route.FULL: 2}

limits = st.one_of(st.none(), st.integers(1, 50_000))
policies = st.builds(
    Policy,
    auto=st.tuples(st.integers(0, 10_000), st.integers(0, 50_000)).map(
        lambda pair: AutoPolicy(full_max_tokens=pair[0], hierarchical_max_tokens=sum(pair))
    ),
    limits=st.builds(LimitPolicy, full=limits, hierarchical=limits, retrieval=limits),
    allow=st.lists(st.sampled_from(Route), min_size=1, max_size=3, unique=True).map(tuple),
)
facts = st.dictionaries(st.sampled_from(Attention), st.integers(0, 60_000)).map(EngineFacts)


@st.composite
def counts(draw: st.DrawFn) -> Counts:
    context = draw(st.integers(0, 60_000))
    question = draw(st.integers(1, 5_000))
    history = draw(st.integers(0, 20_000))
    return Counts(
        prompt_tokens=context + question + history,
        context_tokens=context,
        question_tokens=question,
        max_new_tokens=draw(st.one_of(st.none(), st.integers(1, 5_000))),
    )


@given(counts(), st.sampled_from(Fidelity), facts, policies, st.booleans())
def test_choosing_is_total_and_never_over_a_limit(
    given_counts: Counts,
    fidelity: Fidelity,
    engine: EngineFacts,
    policy: Policy,
    allow_fallback: bool,
) -> None:
    try:
        plan = choose(given_counts, fidelity, engine, policy, allow_fallback=allow_fallback)
    except (NoEngineFits, ContextRequired, RouteForbidden):
        return
    assert plan.route in policy.allow
    assert plan.max_new_tokens >= 1
    if plan.route is Route.RETRIEVAL:
        assert given_counts.has_context
        assert given_counts.prompt_tokens <= limit_of(plan.route, engine, policy)
    else:
        total = given_counts.prompt_tokens + plan.max_new_tokens
        assert total <= limit_of(plan.route, engine, policy)
    if given_counts.max_new_tokens is not None:
        assert plan.max_new_tokens == given_counts.max_new_tokens
    if not allow_fallback:
        assert plan.fallback_from is None
        assert fidelity is Fidelity.AUTO or plan.route.value == fidelity.value


def cost(given_counts: Counts, engine: EngineFacts, policy: Policy) -> int:
    try:
        plan = choose(given_counts, Fidelity.AUTO, engine, policy, allow_fallback=True)
    except GatewayError:
        return -1
    return COST[plan.route]


@given(counts(), st.integers(0, 60_000), facts, policies)
def test_a_longer_context_never_gets_a_costlier_route(
    short: Counts, more: int, engine: EngineFacts, policy: Policy
) -> None:
    assume(short.has_context)  # without any, a policy that only searches refuses
    longer = replace(
        short,
        prompt_tokens=short.prompt_tokens + more,
        context_tokens=short.context_tokens + more,
    )
    assert cost(longer, engine, policy) <= cost(short, engine, policy)


def plan_of(num_context: int, fidelity: str = "auto", *, fallback: bool = True) -> Plan:
    made = Counts(prompt_tokens=num_context + 40, context_tokens=num_context, question_tokens=20)
    return choose(made, Fidelity(fidelity), FACTS, Policy(), allow_fallback=fallback)


def test_auto_goes_by_length_and_says_so() -> None:
    assert plan_of(1000).reason == "full: 1040 tokens are within 4096"
    assert plan_of(10_000).reason == "hierarchical: 10040 tokens are within 32768"
    assert plan_of(60_000).reason == "retrieval: 60040 tokens are more than 32768"


def test_full_falls_back_to_what_fits_and_says_from_where() -> None:
    plan = plan_of(10_000, "full")
    assert (plan.route, plan.fallback_from) == (Route.HIERARCHICAL, Route.FULL)
    assert plan_of(200_000, "full").route is Route.RETRIEVAL


def test_an_over_long_prompt_names_count_limit_and_the_cheapest_way_out() -> None:
    with pytest.raises(NoEngineFits) as caught:
        plan_of(10_000, "full", fallback=False)
    error = caught.value
    assert (error.num_tokens, error.limit, error.fits) == (10_056, 8192, Route.RETRIEVAL)


def test_nothing_fits_a_prompt_over_every_limit() -> None:
    with pytest.raises(NoEngineFits) as caught:
        plan_of(5_000_000)
    assert caught.value.fits is None
    assert caught.value.limit == 4_000_000


def test_retrieval_needs_something_to_search() -> None:
    with pytest.raises(ContextRequired):
        plan_of(0, "retrieval")


def test_a_forbidden_route_is_refused_and_fallen_back_from() -> None:
    policy = Policy(allow=(Route.RETRIEVAL,))
    made = Counts(prompt_tokens=1000, context_tokens=900, question_tokens=50)
    with pytest.raises(RouteForbidden):
        choose(made, Fidelity.FULL, FACTS, policy, allow_fallback=False)
    plan = choose(made, Fidelity.FULL, FACTS, policy, allow_fallback=True)
    assert plan.reason == "retrieval: the policy does not allow full"


def test_a_long_history_before_a_short_question_is_read_in_chunks() -> None:
    made = Counts(prompt_tokens=50_000, context_tokens=0, question_tokens=50)
    plan = choose(made, Fidelity.AUTO, FACTS, Policy(), allow_fallback=True)
    assert plan.route is Route.HIERARCHICAL
    assert plan.max_new_tokens <= 8192 - 50 - CHUNK_ROOM_TOKENS


def test_weak_evidence_goes_to_the_cheapest_route_that_reads_all() -> None:
    made = Counts(prompt_tokens=50_000, context_tokens=49_000, question_tokens=50)
    plan = choose(made, Fidelity.AUTO, FACTS, Policy(), allow_fallback=True)
    risen = escalate(plan, made, FACTS, Policy())
    assert risen is not None
    assert (risen.route, risen.escalated_from) == (Route.HIERARCHICAL, Route.RETRIEVAL)
    short = EngineFacts({Attention.FULL: 8192, Attention.HIERARCHICAL: 9000})
    assert escalate(plan, made, short, Policy()) is None
