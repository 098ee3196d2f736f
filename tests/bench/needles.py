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

from engines.api import Grammar, GrammarKind

EDITION = 2
"""Of the words below: figures of different editions have nothing to do with each other."""
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
    """A person's locker in one place, the locker's code in another; both must be said."""


TWO_HOP_ANSWER = Grammar(
    GrammarKind.REGEX, r" [a-z]+-[a-z]+\. The code of locker [a-z]+-[a-z]+ is [0-9]{5}\."
)
"""SmolLM2-135M stops after the first hop or talks about something else, so `full` alone said both
in none of eight answers. Held to this form, any route must still name locker and code itself."""


@dataclass(frozen=True, slots=True)
class Planted:
    facts: list[str]
    question: str
    begun: str
    """How the answer begins: a small model then says the number, not something about it."""
    wanted: tuple[str, ...]
    grammar: Grammar | None = None


@dataclass(frozen=True, slots=True)
class Sample:
    """`told_at`: where the facts that the answer needs begin."""

    prompt_ids: "array[int]"
    question_start: int
    wanted: tuple[str, ...] = ()
    told_at: tuple[int, ...] = ()
    grammar: Grammar | None = None

    def is_answered_by(self, text: str) -> bool:
        return all(one in text for one in self.wanted)


def plant(task: Task, rng: random.Random) -> Planted:
    """The facts that the answer needs come first."""
    numbers = [str(rng.randint(10000, 99999)) for _ in range(4)]
    names = [f"{rng.choice(WORDS)}-{rng.choice(WORDS)}" for _ in numbers]
    if task is Task.TWO_HOP:
        return _two_hop(rng.choice(PEOPLE), names[0], numbers[0])
    facts = [
        f" One of the special magic numbers for {name} is: {number}."
        for name, number in zip(names, numbers, strict=True)
    ]
    question = f"What is the special magic number for {names[0]} mentioned in the provided text?"
    begun = f"The special magic number for {names[0]} mentioned in the provided text is"
    return Planted(facts[:1] if task is Task.SINGLE else facts, question, begun, (numbers[0],))


def _two_hop(who: str, locker: str, code: str) -> Planted:
    """Each fact is said twice in its place: of facts said once, `full` put 4 of 11 together."""
    held = f" The parcel for {who} is in locker {locker}."
    opened = f" The code of locker {locker} is {code}."
    return Planted(
        facts=[held + held, opened + opened],
        question=f"In which locker is the parcel for {who}, and what is the code of that locker?",
        begun=f"The parcel for {who} is in locker",
        wanted=(locker, code),
        grammar=TWO_HOP_ANSWER,
    )


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
        room = len(context) // len(facts)
        places: list[int] = []
        for slot, fact in zip(rng.sample(range(len(facts)), len(facts)), facts, strict=True):
            at = slot * room + rng.randrange(room - len(fact))
            context[at : at + len(fact)] = fact
            places.append(len(opening) + at)
        num_needed = 2 if task is Task.TWO_HOP else 1
        return Sample(
            array("i", opening + context + closing),
            len(opening) + len(context),
            planted.wanted,
            tuple(places[:num_needed]),
            planted.grammar,
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
