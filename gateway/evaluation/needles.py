"""What is hidden in a text, what is asked and what answers it; knows words, no tokens and no wire.

The shapes of RULER's tasks in our own words, and three that chunked reading is prone to fail.
"""

import random
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

EDITION = 2
"""Of the words below and of how they are laid into a text: one evaluation has one edition."""
NUM_KEYS = 4
CHAIN_LENGTH = 4
FIRSTS = (
    "amber ancient autumn bitter bright broken calm copper crimson curious distant early eastern "
    "faded gentle golden hidden hollow icy ivory lonely lucky mellow misty narrow noble northern "
    "olive patient pale quiet rapid rustic scarlet secret silent silver slender steady velvet wild"
)
LASTS = (
    "anchor arbor badger barley basin beacon bridge canyon cedar comet compass cottage cricket "
    "dolphin ember falcon ferry garden glacier hamlet harbor heron island juniper kettle lagoon "
    "lantern maple meadow mill orchard otter pebble pier quarry raven saddle sparrow thicket tower"
)
PERSONS = (
    "Agnes Calloway,Bruno Hartwell,Celia Marchetti,Dmitri Solano,Edith Okonkwo,Farid Lindqvist,"
    "Greta Almeida,Hamish Ferrante,Imogen Takeda,Julius Brandt,Katya Monroe,Leander Whitcombe"
)
FIRST_WORDS, LAST_WORDS, PEOPLE = FIRSTS.split(), LASTS.split(), PERSONS.split(",")


class Task(StrEnum):
    SINGLE = "single"
    """One number in the text."""
    MULTIKEY = "multikey"
    """One of four numbers that differ by name."""
    MULTIVALUE = "multivalue"
    """Four numbers under one name, all asked for."""
    MULTIQUERY = "multiquery"
    """Four names with a number each, all asked for."""
    VARIABLES = "variables"
    """Every name that a value was handed on to, beside a second chain."""
    KEY_VALUE = "key_value"
    """One line of a text that is nothing but keys and values."""
    STRADDLING = "straddling"
    """A fact in two sentences, with the border of a chunk between them."""
    TWO_HOP = "two_hop"
    """A person's locker in one place, the locker's code far away in another; and a decoy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """`depth` is the share of the text before it. `joint` characters of it stand before the
    border of a chunk, where that matters."""

    text: str
    depth: float
    joint: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Planted:
    """All `wanted` must be said; `decoys` answer another question."""

    facts: tuple[Fact, ...]
    question: str
    wanted: tuple[str, ...]
    decoys: tuple[str, ...] = ()


def plant(task: Task, depth: float, rng: random.Random) -> Planted:
    """The wanted fact at `depth`; where there are several, one of them, the rest spread evenly."""
    return MAKERS[task](depth, rng)


def _single(depth: float, rng: random.Random) -> Planted:
    (name,), (number,) = _names(rng, 1), _numbers(rng, 1)
    fact = Fact(text=_told(name, number), depth=depth)
    return Planted(facts=(fact,), question=_ask_number(name), wanted=(number,))


def _multikey(depth: float, rng: random.Random) -> Planted:
    names, numbers = _names(rng, NUM_KEYS), _numbers(rng, NUM_KEYS)
    facts = _spread([_told(*pair) for pair in zip(names, numbers, strict=True)], depth)
    return Planted(
        facts=facts,
        question=_ask_number(names[0]),
        wanted=(numbers[0],),
        decoys=tuple(numbers[1:]),
    )


def _multivalue(depth: float, rng: random.Random) -> Planted:
    (name,), numbers = _names(rng, 1), _numbers(rng, NUM_KEYS)
    question = f"What are all {NUM_KEYS} special magic numbers for {name}?"
    facts = _spread([_one_of_several(name, number) for number in numbers], depth)
    return Planted(facts=facts, question=question, wanted=tuple(numbers))


def _multiquery(depth: float, rng: random.Random) -> Planted:
    names, numbers = _names(rng, NUM_KEYS), _numbers(rng, NUM_KEYS)
    asked = ", ".join(names[:-1]) + f" and {names[-1]}"
    question = f"What are the {NUM_KEYS} special magic numbers for {asked}?"
    facts = _spread([_told(*pair) for pair in zip(names, numbers, strict=True)], depth)
    return Planted(facts=facts, question=question, wanted=tuple(numbers))


def _variables(depth: float, rng: random.Random) -> Planted:
    letters = rng.sample(string.ascii_uppercase, 2 * CHAIN_LENGTH)
    # The first letter is the name's own, so no two are equal.
    names = [first + "".join(rng.choices(string.ascii_uppercase, k=4)) for first in letters]
    numbers = _numbers(rng, 2)
    chain, other = names[:CHAIN_LENGTH], names[CHAIN_LENGTH:]
    depths = sorted((depth + i / CHAIN_LENGTH) % 1 for i in range(CHAIN_LENGTH))
    facts = [
        Fact(text=text, depth=at)
        for part, number in zip((chain, other), numbers, strict=True)
        for text, at in zip(_assignments(part, number), depths, strict=True)
    ]
    question = (
        f"Some variables are assigned in the text. Which {CHAIN_LENGTH} of them hold the value "
        f"{numbers[0]}, directly or through another variable? List their names."
    )
    return Planted(facts=tuple(facts), question=question, wanted=tuple(chain), decoys=tuple(other))


def _assignments(names: Sequence[str], number: str) -> list[str]:
    values = [number, *(f"VAR {name}" for name in names[:-1])]
    return [f"VAR {name} = {value}." for name, value in zip(names, values, strict=True)]


def _key_value(depth: float, rng: random.Random) -> Planted:
    line = pair_line(rng)
    key, value = line.split(": ")
    question = f"What is the value of the key {key} in the list above?"
    return Planted(facts=(Fact(text=line, depth=depth),), question=question, wanted=(value,))


def _straddling(depth: float, rng: random.Random) -> Planted:
    (name,), (number,) = _names(rng, 1), _numbers(rng, 1)
    before = f"The keeper of {name} wrote a last note before the office was closed for the winter."
    after = f" The number that this keeper left there, for whoever opens it again, is {number}."
    fact = Fact(text=before + after, depth=depth, joint=len(before))
    question = f"What is the number that the keeper of {name} left?"
    return Planted(facts=(fact,), question=question, wanted=(number,))


def _two_hop(depth: float, rng: random.Random) -> Planted:
    people, lockers, codes = rng.sample(PEOPLE, 2), _names(rng, 2), _numbers(rng, 2)
    far = (depth + 0.5) % 1
    facts = [
        fact
        for who, locker, code in zip(people, lockers, codes, strict=True)
        for fact in (
            Fact(text=f"The parcel for {who} lies in the {locker} locker.", depth=far),
            Fact(text=f"The code of the {locker} locker is {code}.", depth=depth),
        )
    ]
    question = f"What is the code of the locker in which the parcel for {people[0]} lies?"
    return Planted(facts=tuple(facts), question=question, wanted=(codes[0],), decoys=(codes[1],))


MAKERS: Mapping[Task, Callable[[float, random.Random], Planted]] = {
    Task.SINGLE: _single,
    Task.MULTIKEY: _multikey,
    Task.MULTIVALUE: _multivalue,
    Task.MULTIQUERY: _multiquery,
    Task.VARIABLES: _variables,
    Task.KEY_VALUE: _key_value,
    Task.STRADDLING: _straddling,
    Task.TWO_HOP: _two_hop,
}


def pair_line(rng: random.Random) -> str:
    return f"{rng.getrandbits(40):010x}: {rng.randrange(10_000_000, 100_000_000)}"


def _spread(texts: Sequence[str], depth: float) -> tuple[Fact, ...]:
    return tuple(
        Fact(text=text, depth=depth if i == 0 else (depth + i / len(texts)) % 1)
        for i, text in enumerate(texts)
    )


def _told(name: str, number: str) -> str:
    """Plain words: a fact in others ("registered for") was told by SmolLM2-135M once out of 8
    times at 600 tokens, in these 7 times."""
    return f"The special magic number for {name} is {number}."


def _one_of_several(name: str, number: str) -> str:
    return f"One of the special magic numbers for {name} is {number}."


def _ask_number(name: str) -> str:
    return f"What is the special magic number for {name}?"


def _names(rng: random.Random, count: int) -> list[str]:
    firsts, lasts = rng.sample(FIRST_WORDS, count), rng.sample(LAST_WORDS, count)
    return [f"{first}-{last}" for first, last in zip(firsts, lasts, strict=True)]


def _numbers(rng: random.Random, count: int) -> list[str]:
    return [str(number) for number in rng.sample(range(100_000, 1_000_000), count)]
