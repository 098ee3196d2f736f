"""What was planted and what counts as found: knows the key's JSON and how answers are read."""

import re
from dataclasses import dataclass
from pathlib import Path

import msgspec

from ingest.synth.facts import FactKind

KEY_VERSION = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Characters [start, stop) of `file` are exactly `sentence` (of its source, in HTML).

    `depth` is start divided by the length of the file, in [0, 1).
    """

    file: str
    start: int
    stop: int
    depth: float
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """`place` holds the answer; `bridges` are sentences needed to get there (two-hop)."""

    id: str
    kind: FactKind
    is_demo: bool
    question: str
    answer: str
    accepted: tuple[str, ...]
    place: Place
    bridges: tuple[Place, ...] = ()
    distractors: tuple[Place, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenTotals:
    """`is_exact` is False when `counted` is only an estimate; `method` says how it was made."""

    target: int
    counted: int
    is_exact: bool
    method: str


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyFile:
    name: str
    num_chars: int
    num_tokens: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerKey:
    version: int
    seed: int
    tokens: TokenTotals
    files: tuple[KeyFile, ...]
    questions: tuple[Question, ...]

    @property
    def demo_questions(self) -> tuple[Question, ...]:
        return tuple(question for question in self.questions if question.is_demo)


def encode_key(key: AnswerKey) -> bytes:
    return msgspec.json.format(msgspec.json.encode(key), indent=2) + b"\n"


def load_key(path: Path) -> AnswerKey:
    """Raises OSError, or ValueError when the file is no answer key of this version."""
    try:
        key = msgspec.json.decode(path.read_bytes(), type=AnswerKey)
    except msgspec.DecodeError as error:
        raise ValueError(f"{path} is not an answer key: {error}") from error
    if key.version != KEY_VERSION:
        raise ValueError(f"{path} has version {key.version}; this is for version {KEY_VERSION}")
    return key


def states(text: str, question: Question) -> bool:
    """Whether `text` gives the answer in one of its accepted spellings.

    The spelling must not be part of a longer word or number: "$1,418,250" is not "$418,250",
    but "$418,250.00" is.
    """
    flat = " ".join(text.split())
    return any(
        re.search(rf"(?<!\w)(?<!\d[.,-]){re.escape(bare)}(?!\w|[.,-](?!00\b)\d)", flat, re.I)
        for bare in (spelling.removeprefix("$") for spelling in question.accepted)
    )
