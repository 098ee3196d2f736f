"""Prompts with planted facts: what is asked, what answers it; knows token ids, no engine.

Shapes of RULER's tasks in our own words. Facts overwrite the haystack's tokens, so that all samples
of one length share most of their text.
"""

import os
import random
from array import array
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from tokenizers import Tokenizer

DATA = Path(os.environ.get("RINGWAY_TEST_DATA", "../shared/data"))
OPENING = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face"
    "<|im_end|>\n<|im_start|>user\nSome facts are hidden in the following text. Memorize them: "
    "you will be asked about them afterwards.\n\n"
)
CLOSING = "\n\n{question}<|im_end|>\n<|im_start|>assistant\n{begun}"
THINGS = (
    "amber anchor apple arrow basket beacon bottle branch bridge button candle canyon carpet "
    "castle cherry circle clover copper cotton crystal desert dragon eagle ember falcon feather "
    "forest garden ginger granite hammer harbor helmet honey island ivory jacket jungle kettle "
    "ladder lantern lemon lizard marble meadow mirror monkey mountain needle ocean orange oyster "
    "paper pearl pepper pillow planet pocket prairie pumpkin puzzle rabbit ribbon river rocket "
    "saddle salmon shadow silver spider sunset thunder tiger timber tulip tunnel turtle valley"
)
NAMES = (
    "Martha Bell,Oscar Finch,Priya Nair,Hugo Lang,Nadia Weiss,Tomas Rey,Ingrid Dahl,Samir Khan,"
    "Clara Voss,Felix Moreau,Lena Ortiz,Boris Petrov,Amara Obi,Jonas Frey,Yuki Tanaka,Elsa Lind"
)
WORDS, PEOPLE = THINGS.split(), NAMES.split(",")


class Task(StrEnum):
    SINGLE = "single"
    """One number in the text."""
    MULTIKEY = "multikey"
    """One of four numbers that differ by name."""
    TWO_HOP = "two_hop"
    """A person's locker in one place, the locker's code in another; one more of each."""


@dataclass(frozen=True, slots=True)
class Planted:
    facts: list[str]
    question: str
    begun: str
    """How the answer begins: a small model then says the number, not something about it."""
    wanted: str


@dataclass(frozen=True, slots=True)
class Sample:
    prompt_ids: "array[int]"
    question_start: int
    wanted: str
    told_at: int = 0
    """Where the fact that holds the answer begins."""


def plant(task: Task, rng: random.Random) -> Planted:
    numbers = [str(rng.randint(10000, 99999)) for _ in range(4)]
    if task is Task.TWO_HOP:
        people, lockers = rng.sample(PEOPLE, 2), rng.sample(WORDS, 2)
        facts = [
            fact
            for who, locker, code in zip(people, lockers, numbers, strict=False)
            for fact in (
                f" The parcel for {who} is in the {locker} locker.",
                f" The code of the {locker} locker is {code}.",
            )
        ]
        question = f"What is the code of the locker in which the parcel for {people[0]} is?"
        return Planted(facts, question, f"The parcel for {people[0]} is in the", numbers[0])
    names = [f"{rng.choice(WORDS)}-{rng.choice(WORDS)}" for _ in numbers]
    facts = [
        f" One of the special magic numbers for {name} is: {number}."
        for name, number in zip(names, numbers, strict=True)
    ]
    question = f"What is the special magic number for {names[0]} mentioned in the provided text?"
    begun = f"The special magic number for {names[0]} mentioned in the provided text is"
    return Planted(facts[:1] if task is Task.SINGLE else facts, question, begun, numbers[0])


class Haystack:
    """Real text, as long as one likes."""

    def __init__(self, tokenizer: Tokenizer, num_tokens: int) -> None:
        self._tokenizer = tokenizer
        self._text = self._read(num_tokens)

    def sample(self, task: Task, num_tokens: int, seed: int) -> Sample:
        """A prompt of `num_tokens`; the same for the same arguments."""
        rng = random.Random(f"{task} {num_tokens} {seed}")
        planted = plant(task, rng)
        opening = self._ids(OPENING)
        closing = self._ids(CLOSING.format(question=planted.question, begun=planted.begun))
        context = self._text[: num_tokens - len(opening) - len(closing)]
        facts = [self._ids(fact) for fact in planted.facts]
        room, told_at = len(context) // len(facts), 0
        slots = rng.sample(range(len(facts)), len(facts))
        for slot, fact, text in zip(slots, facts, planted.facts, strict=True):
            at = slot * room + rng.randrange(room - len(fact))
            context[at : at + len(fact)] = fact
            if planted.wanted in text:
                told_at = len(opening) + at
        return Sample(
            array("i", opening + context + closing),
            len(opening) + len(context),
            planted.wanted,
            told_at,
        )

    def _read(self, num_tokens: int) -> list[int]:
        paths = sorted((DATA / "retrieval" / "chunking").glob("**/*.md"))
        if not paths:
            raise SystemExit(f"no text to hide facts in: {DATA} has no retrieval/chunking")
        ids: list[int] = []
        for path in paths:
            # Five characters are more than a token in all of these.
            ids += self._ids(path.read_text()[: 5 * num_tokens])
        while len(ids) < num_tokens:
            ids += ids
        return ids[:num_tokens]

    def _ids(self, text: str) -> list[int]:
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False).ids
        return ids
