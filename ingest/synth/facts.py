"""Facts to plant and questions to ask: knows shapes, keys and values, not documents."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import cycle

from ingest.synth.dice import Dice
from ingest.synth.names import Cast
from ingest.synth.values import DRAWS, Ledger, ValueKind, spellings


class FactKind(StrEnum):
    SINGLE = "single"
    MULTI_KEY = "multi_key"
    """Other sentences say the same thing of other people, places or companies."""
    TWO_HOP = "two_hop"
    """One sentence names someone, a second one far away answers."""


class KeyKind(StrEnum):
    PERSON = "person"
    COMPANY = "company"
    PLACE = "place"
    THING = "thing"


class Role(StrEnum):
    ANSWER = "answer"
    BRIDGE = "bridge"
    DISTRACTOR = "distractor"


@dataclass(frozen=True, slots=True)
class Shape:
    """One thing that can be said. Filler never says it, of anybody (a test holds this)."""

    key: KeyKind
    value: ValueKind
    sentences: tuple[str, ...]
    question: str


@dataclass(frozen=True, slots=True)
class Chain:
    """A bridge sentence from `key` to a person, and a question that skips the person."""

    key: KeyKind
    bridge: str
    shape: Shape
    question: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Planting:
    """A sentence that must stand somewhere. `fact` is the index of the fact it serves."""

    fact: int
    role: Role
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """`is_demo`: one of the three plain questions that the demo asks."""

    kind: FactKind
    question: str
    answer: str
    accepted: tuple[str, ...]
    is_demo: bool
    plantings: tuple[Planting, ...]
    """The answer first, then the bridge, then distractors."""


SETTLEMENT = Shape(
    KeyKind.PERSON,
    ValueKind.SUM,
    ("The settlement sum for {key} is {value}.",),
    "What is the settlement sum for {key}?",
)
LEASE = Shape(
    KeyKind.PLACE,
    ValueKind.DATE,
    ("The end date of the {key} lease is {value}.",),
    "What is the end date of the {key} lease?",
)
INTERPRETER = Shape(
    KeyKind.PERSON,
    ValueKind.NAME,
    ("The court interpreter for {key} was {value}.",),
    "Who was the court interpreter for {key}?",
)
BONUS = Shape(
    KeyKind.PERSON,
    ValueKind.SUM,
    (
        "The retention bonus promised to {key} was {value}.",
        "{key} was promised a retention bonus of {value}.",
    ),
    "How large was the retention bonus of {key}?",
)
RESIGNATION = Shape(
    KeyKind.PERSON,
    ValueKind.DATE,
    (
        "The resignation of {key} was accepted on {value}.",
        "{key} handed in a resignation, which was accepted on {value}.",
    ),
    "On what date was the resignation of {key} accepted?",
)
BADGE = Shape(
    KeyKind.PERSON,
    ValueKind.CODE,
    ("The badge number of {key} is {value}.", "{key} carries badge number {value}."),
    "What is the badge number of {key}?",
)
DEMO_SHAPES = (SETTLEMENT, LEASE, INTERPRETER)
"""Their questions repeat the sentence's words: a model of 135M parameters copies best that way."""

SHAPES = (
    BONUS,
    RESIGNATION,
    BADGE,
    Shape(
        KeyKind.COMPANY,
        ValueKind.SUM,
        ("The escrow deposit of {key} was {value}.", "{key} paid {value} into escrow."),
        "How much did {key} pay into escrow?",
    ),
    Shape(
        KeyKind.COMPANY,
        ValueKind.SUM,
        (
            "The penalty fixed for late delivery by {key} was {value}.",
            "For delivering late, {key} owed a penalty of {value}.",
        ),
        "What penalty did {key} owe for late delivery?",
    ),
    Shape(
        KeyKind.PLACE,
        ValueKind.DATE,
        (
            "The fire inspection of the {key} took place on {value}.",
            "The {key} passed its fire inspection on {value}.",
        ),
        "When was the fire inspection of the {key}?",
    ),
    Shape(
        KeyKind.COMPANY,
        ValueKind.DATE,
        (
            "The amended agreement with {key} took effect on {value}.",
            "{key} has been bound by the amended agreement since {value}.",
        ),
        "When did the amended agreement with {key} take effect?",
    ),
    Shape(
        KeyKind.COMPANY,
        ValueKind.NAME,
        ("The auditor appointed by {key} was {value}.", "{key} appointed {value} as its auditor."),
        "Whom did {key} appoint as auditor?",
    ),
    Shape(
        KeyKind.PLACE,
        ValueKind.NAME,
        (
            "The spare keys to the {key} were held by {value}.",
            "{value} held the spare keys to the {key}.",
        ),
        "Who held the spare keys to the {key}?",
    ),
    Shape(
        KeyKind.PLACE,
        ValueKind.CODE,
        ("The vault code of the {key} is {value}.", "{value} is the vault code of the {key}."),
        "What is the vault code of the {key}?",
    ),
    Shape(
        KeyKind.THING,
        ValueKind.CLAUSE,
        (
            "The duty to insure the {key} is set out in clause {value}.",
            "Clause {value} sets out the duty to insure the {key}.",
        ),
        "Which clause sets out the duty to insure the {key}?",
    ),
)
CHAINS = (
    Chain(
        KeyKind.THING,
        "The custodian of the {key} is {person}.",
        BADGE,
        "What is the badge number of the custodian of the {key}?",
    ),
    Chain(
        KeyKind.COMPANY,
        "The complaint against {key} was lodged by {person}.",
        BONUS,
        "How large was the retention bonus of the person who lodged the complaint against {key}?",
    ),
    Chain(
        KeyKind.PLACE,
        "The night manager of the {key} was {person}.",
        RESIGNATION,
        "On what date was the resignation of the night manager of the {key} accepted?",
    ),
)
NUM_DISTRACTORS = 4
MAX_FACTS = 64


class FactMaker:
    """Invents facts whose keys and values occur nowhere else."""

    def __init__(self, *, dice: Dice, cast: Cast, ledger: Ledger) -> None:
        self._dice = dice
        self._cast = cast
        self._ledger = ledger
        self._shapes = cycle(dice.shuffled(SHAPES))
        self._chains = cycle(dice.shuffled(CHAINS))

    def make(self, num_facts: int) -> list[Fact]:
        """The demo's three facts first, then multi-key, two-hop and single in turn."""
        facts: list[Fact] = []
        kinds = cycle((FactKind.MULTI_KEY, FactKind.TWO_HOP, FactKind.SINGLE))
        for index in range(num_facts):
            if index < len(DEMO_SHAPES):
                shape = DEMO_SHAPES[index]
                facts.append(self._keyed(index, FactKind.SINGLE, shape, is_demo=True))
                continue
            kind = next(kinds)
            if kind is FactKind.TWO_HOP:
                facts.append(self._chained(index, next(self._chains)))
            else:
                facts.append(self._keyed(index, kind, next(self._shapes), is_demo=False))
        return facts

    def _keyed(self, index: int, kind: FactKind, shape: Shape, *, is_demo: bool) -> Fact:
        key = self._key(shape.key)
        answer = self._value(shape.value)
        plantings = [self._plant(index, Role.ANSWER, shape, (key, answer))]
        if kind is FactKind.MULTI_KEY:
            for _ in range(NUM_DISTRACTORS):
                other = self._rival(shape.key, key)
                pair = (other, self._value(shape.value))
                plantings.append(self._plant(index, Role.DISTRACTOR, shape, pair))
        return Fact(
            kind=kind,
            question=shape.question.format(key=key),
            answer=answer,
            accepted=spellings(shape.value, answer),
            is_demo=is_demo,
            plantings=tuple(plantings),
        )

    def _chained(self, index: int, chain: Chain) -> Fact:
        key = self._key(chain.key)
        person = self._key(KeyKind.PERSON)
        answer = self._value(chain.shape.value)
        bridge = Planting(
            fact=index,
            role=Role.BRIDGE,
            sentence=chain.bridge.format(key=key, person=person),
        )
        return Fact(
            kind=FactKind.TWO_HOP,
            question=chain.question.format(key=key),
            answer=answer,
            accepted=spellings(chain.shape.value, answer),
            is_demo=False,
            plantings=(self._plant(index, Role.ANSWER, chain.shape, (person, answer)), bridge),
        )

    def _plant(self, index: int, role: Role, shape: Shape, pair: tuple[str, str]) -> Planting:
        key, value = pair
        template: Sequence[str] = shape.sentences
        sentence = self._dice.pick(template).format(key=key, value=value)
        return Planting(fact=index, role=role, sentence=sentence)

    def _value(self, kind: ValueKind) -> str:
        if kind is ValueKind.NAME:
            return self._cast.new_answer_person()
        return self._ledger.reserve(lambda: DRAWS[kind](self._dice))

    def _key(self, kind: KeyKind) -> str:
        """A new key, which filler will speak of as well."""
        if kind is KeyKind.PERSON:
            self._cast.people.append(name := self._cast.new_person())
        elif kind is KeyKind.COMPANY:
            self._cast.companies.append(name := self._cast.new_company())
        elif kind is KeyKind.PLACE:
            self._cast.places.append(name := self._cast.new_place())
        else:
            name = self._cast.new_thing()
        return name

    def _rival(self, kind: KeyKind, key: str) -> str:
        return self._cast.namesake(key) if kind is KeyKind.PERSON else self._key(kind)
