"""Prompts of a wanted length around planted facts; knows how to count by asking, no HTTP."""

import hashlib
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from gateway.evaluation.haystack import Haystack, border_before, pairs
from gateway.evaluation.needles import Fact, Planted, Task, plant
from gateway.evaluation.plan import SampleKey

LEAD = "Facts are hidden in the text below. Read all of it, then answer the question behind it:"
MOST_CHARS_PER_TOKEN = 12
CUT_MARK = "\n[...]\n"

CountTokens = Callable[[str], Awaitable[int]]
"""Tokens of a prompt whose only message is this, template included."""


class DoesNotFit(Exception):
    """Even without any of the text around it, the prompt is longer than it may be."""

    def __init__(self, *, least: int, limit: int) -> None:
        super().__init__(f"needs at least {least} tokens; {limit} are given")
        self.least = least
        self.limit = limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    context: str
    planted: Planted
    num_tokens: int

    @property
    def content(self) -> str:
        return message(self.context, self.planted.question)

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.content.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptBuilder:
    """The same key, seed, haystack and counts give the same prompt.

    `tries` bounds how often the server is asked for a length.
    """

    haystack: Haystack
    seed: int
    num_depths: int
    chunk_tokens: int
    count: CountTokens
    tries: int

    async def build(self, key: SampleKey) -> Prompt:
        """At most `key.length` tokens, and hardly less. Raises DoesNotFit."""
        rng = random.Random(f"{self.seed} {key.task} {key.length} {key.depth} {key.number}")
        planted = plant(key.task, depth_of(key.depth, self.num_depths), rng)
        most_chars = key.length * MOST_CHARS_PER_TOKEN
        is_list = key.task is Task.KEY_VALUE
        text = pairs(most_chars, rng) if is_list else self.haystack.cut(most_chars, rng)
        straddle = await self._straddle(key, planted.facts[0], text)

        def context_of(num_chars: int) -> str:
            return lay(text[:num_chars], planted.facts, straddle)

        async def count(num_chars: int) -> int:
            return await self.count(message(context_of(num_chars), planted.question))

        size, num_tokens = await fit(key.length, count, len(text), self.tries)
        return Prompt(context=context_of(size), planted=planted, num_tokens=num_tokens)

    async def truncated(self, prompt: Prompt, num_tokens: int) -> Prompt:
        """The same question with the middle of its text left out. Raises DoesNotFit."""

        def context_of(num_chars: int) -> str:
            return without_middle(prompt.context, num_chars)

        async def count(num_chars: int) -> int:
            return await self.count(message(context_of(num_chars), prompt.planted.question))

        size, counted = await fit(num_tokens, count, len(prompt.context), self.tries)
        return replace(prompt, context=context_of(size), num_tokens=counted)

    async def _straddle(self, key: SampleKey, fact: Fact, text: str) -> int | None:
        """Where in the text a fact must begin to be cut by the chunk border next to its depth."""
        if fact.joint is None:
            return None
        last = max(1, key.length // self.chunk_tokens - 1)
        nearest = round(fact.depth * key.length / self.chunk_tokens)
        border = min(max(1, nearest), last) * self.chunk_tokens
        before = fact.text[: fact.joint]

        async def count(num_chars: int) -> int:
            return await self.count(f"{LEAD}\n\n{text[:num_chars]}{before}")

        size, _ = await fit(border, count, len(text), self.tries)
        return size


def message(context: str, question: str) -> str:
    return f"{LEAD}\n\n{context}\n\n{question}"


def depth_of(index: int, num_depths: int) -> float:
    return 0.5 if num_depths == 1 else index / (num_depths - 1)


def lay(text: str, facts: Sequence[Fact], straddle: int | None = None) -> str:
    """The facts between the text's sentences; the one that straddles at exactly its place."""
    places = [
        min(straddle, len(text))
        if straddle is not None and fact.joint is not None
        else border_before(text, round(fact.depth * len(text)))
        for fact in facts
    ]
    parts: list[str] = []
    done = 0
    for place, fact in sorted(zip(places, facts, strict=True), key=lambda pair: pair[0]):
        parts += [text[done:place], _gap(text, place), fact.text, _gap_after(text)]
        done = place
    return "".join([*parts, text[done:]])


def _gap(text: str, place: int) -> str:
    return "" if place == 0 or text[place - 1].isspace() else " "


def _gap_after(text: str) -> str:
    """A list of keys and values stays a list."""
    return " " if ". " in text[:2000] else "\n"


def without_middle(text: str, num_chars: int) -> str:
    if num_chars >= len(text):
        return text
    head = (num_chars + 1) // 2
    tail = num_chars - head
    return text[:head] + CUT_MARK + (text[-tail:] if tail else "")


async def fit(
    target: int, count: Callable[[int], Awaitable[int]], most_chars: int, tries: int
) -> tuple[int, int]:
    """Characters, and their tokens, for at most `target` tokens and not much less.

    Each guess is drawn through the two best known lengths; what is there without any characters
    is known first. Raises DoesNotFit when that is too much already.
    """
    low, low_tokens = 0, await count(0)
    if low_tokens > target:
        raise DoesNotFit(least=low_tokens, limit=target)
    slack = max(4, target // 100)
    high, high_tokens = most_chars, -1
    guess = min(most_chars, 3 * (target - low_tokens))
    slope = 1 / 3
    for _ in range(tries):
        if target - low_tokens <= slack or guess <= low:
            break
        tokens = await count(guess)
        if tokens > target:
            high, high_tokens = guess, tokens
        else:
            slope = max(0.05, (tokens - low_tokens) / (guess - low))
            low, low_tokens = guess, tokens
        if high_tokens >= 0:
            slope = (high_tokens - low_tokens) / (high - low)
        drawn = low + round((target - slack // 2 - low_tokens) / slope)
        guess = min(max(low + 1, drawn), high - (high_tokens >= 0))
    return low, low_tokens
