"""Prompts of a wanted length: how near they come, where facts stand, what is left out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.evaluation.haystack import Haystack, synthetic_haystack
from gateway.evaluation.needles import Task
from gateway.evaluation.plan import SampleKey
from gateway.evaluation.prompts import DoesNotFit, PromptBuilder, fit
from tests.gateway.evaluation.scripted import count

CHUNK = 64


@pytest.fixture(scope="module")
def haystack() -> Haystack:
    return synthetic_haystack(8_000, seed=3)


async def counted(content: str) -> int:
    return count(content)


def builder(haystack: Haystack, num_depths: int = 5, tries: int = 6) -> PromptBuilder:
    return PromptBuilder(
        haystack=haystack,
        seed=0,
        num_depths=num_depths,
        chunk_tokens=CHUNK,
        count=counted,
        tries=tries,
    )


@pytest.mark.parametrize("task", Task)
@pytest.mark.parametrize("length", [512, 5000])
async def test_a_prompt_is_as_long_as_wanted_and_holds_its_facts(
    haystack: Haystack, task: Task, length: int
) -> None:
    for depth in range(5):
        key = SampleKey(task=task, length=length, depth=depth, number=0)
        prompt = await builder(haystack).build(key)
        assert length - length // 50 - 8 <= count(prompt.content) == prompt.num_tokens <= length
        assert all(fact.text in prompt.context for fact in prompt.planted.facts)
        assert prompt == await builder(haystack).build(key)


@pytest.mark.parametrize("depth", [0, 2, 4])
async def test_a_fact_stands_at_its_depth_between_two_sentences(
    haystack: Haystack, depth: int
) -> None:
    key = SampleKey(task=Task.SINGLE, length=4000, depth=depth, number=1)
    prompt = await builder(haystack).build(key)
    at = prompt.context.index(prompt.planted.facts[0].text)
    assert at / len(prompt.context) == pytest.approx(depth / 4, abs=0.04)
    assert at == 0 or prompt.context[:at].rstrip(" ")[-1] in ".\n"


async def test_a_straddling_fact_lies_on_both_sides_of_a_border(haystack: Haystack) -> None:
    for depth in range(5):
        key = SampleKey(task=Task.STRADDLING, length=2000, depth=depth, number=0)
        prompt = await builder(haystack).build(key)
        (fact,) = prompt.planted.facts
        joint = prompt.content.index(fact.text) + (fact.joint or 0)
        to_border = count(prompt.content[:joint]) % CHUNK
        assert min(to_border, CHUNK - to_border) <= 20


async def test_no_two_samples_begin_alike(haystack: Haystack) -> None:
    keys = [SampleKey(task=Task.MULTIKEY, length=800, depth=2, number=i) for i in range(4)]
    starts = {(await builder(haystack).build(key)).context[:60] for key in keys}
    assert len(starts) == len(keys)


async def test_truncation_leaves_the_middle_out_and_keeps_the_question(haystack: Haystack) -> None:
    key = SampleKey(task=Task.SINGLE, length=4000, depth=2, number=0)
    whole = await builder(haystack).build(key)
    short = await builder(haystack).truncated(whole, 300)
    assert 285 <= count(short.content) <= 300
    assert short.content.endswith(whole.planted.question)
    assert short.context[:200] == whole.context[:200]
    assert short.context[-200:] == whole.context[-200:]
    assert whole.planted.facts[0].text not in short.context


async def test_a_budget_is_filled_where_every_character_is_a_token() -> None:
    async def dense(num_chars: int) -> int:
        return 150 + num_chars

    size, tokens = await fit(199, dense, 5_000, tries=6)
    assert tokens == 150 + size
    assert 190 <= tokens <= 199


@given(
    start=st.integers(0, 100),
    per_char=st.lists(st.floats(0.05, 1.5), min_size=1, max_size=8),
    target=st.integers(101, 5_000),
)
async def test_any_text_is_fitted_within_a_few_per_cent(
    start: int, per_char: list[float], target: int
) -> None:
    """Runs of 500 characters, each of its own density."""

    async def uneven(num_chars: int) -> int:
        runs = (per_char[i // 500 % len(per_char)] for i in range(0, num_chars, 500))
        tokens = sum(500 * one for one in runs)
        return start + round(tokens - (-num_chars % 500) * last(num_chars))

    def last(num_chars: int) -> float:
        return per_char[(num_chars - 1) // 500 % len(per_char)] if num_chars else 0.0

    size, tokens = await fit(target, uneven, 12 * target, tries=12)
    assert tokens <= target
    assert size == 12 * target or tokens >= 0.95 * target - 4


async def test_a_length_below_question_and_facts_is_refused_with_the_least(
    haystack: Haystack,
) -> None:
    key = SampleKey(task=Task.MULTIQUERY, length=40, depth=2, number=0)
    with pytest.raises(DoesNotFit, match=r"needs at least \d+ tokens; 40 are given") as refused:
        await builder(haystack).build(key)
    assert refused.value.least > 40
