"""The routing policy: thresholds, limits and budgets, read from YAML; decides nothing itself."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from importlib.resources import files
from pathlib import Path
from typing import get_args, get_origin, get_type_hints

import msgspec
import yaml

from gateway.api import Route


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoPolicy:
    """Up to which prompt length `auto` takes a route; longer prompts are searched."""

    full_max_tokens: int = 4096
    hierarchical_max_tokens: int = 32768

    def __post_init__(self) -> None:
        if not 0 <= self.full_max_tokens <= self.hierarchical_max_tokens:
            raise ValueError("auto: 0 <= full_max_tokens <= hierarchical_max_tokens must hold")


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitPolicy:
    """Largest prompt per route, in tokens; null leaves it to what the engine holds."""

    full: int | None = None
    hierarchical: int | None = None
    retrieval: int | None = 4_000_000

    def __post_init__(self) -> None:
        if any(limit is not None and limit < 1 for limit in self.by_route().values()):
            raise ValueError("limits: a limit must be at least 1 token")

    def by_route(self) -> Mapping[Route, int | None]:
        return {
            Route.FULL: self.full,
            Route.HIERARCHICAL: self.hierarchical,
            Route.RETRIEVAL: self.retrieval,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerPolicy:
    """`default_max_tokens` bounds an answer whose request does not; `deadline_s` its time."""

    default_max_tokens: int = 1024
    deadline_s: float = 1800.0

    def __post_init__(self) -> None:
        if self.default_max_tokens < 1 or self.deadline_s <= 0:
            raise ValueError("answer: default_max_tokens and deadline_s must be positive")


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalPolicy:
    """How much is read of what is found.

    Evidence under `min_evidence` sends an `auto` request to a route that reads everything.
    A text inside a message is searched when it has `inline_min_chars` before the question.
    `instruction` stands before the passages; a tiny model answers best without one.
    """

    total_tokens: int = 360
    passage_tokens: int = 120
    top_k: int = 3
    instruction: str = ""
    min_evidence: float = 0.2
    inline_min_chars: int = 2000
    search_deadline_s: float = 60.0

    def __post_init__(self) -> None:
        if not 32 <= self.passage_tokens <= self.total_tokens:
            raise ValueError("retrieval: 32 <= passage_tokens <= total_tokens must hold")
        if self.top_k < 1 or self.inline_min_chars < 1:
            raise ValueError("retrieval: top_k and inline_min_chars must be at least 1")
        if not 0 <= self.min_evidence <= 1 or self.search_deadline_s <= 0:
            raise ValueError("retrieval: 0 <= min_evidence <= 1 and search_deadline_s > 0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Per million tokens, in a unit of your own, for prompts of up to so many tokens; null: any.

    Cached tokens cost what others do unless `cached_input` is said.
    """

    up_to_tokens: int | None = None
    input: float = 0.0
    cached_input: float | None = None
    output: float = 0.0

    def __post_init__(self) -> None:
        if min(self.input, self.output, self.cached) < 0:
            raise ValueError("prices: a price must not be negative")
        if self.up_to_tokens is not None and self.up_to_tokens < 1:
            raise ValueError("prices: up_to_tokens must be at least 1, or null")

    @property
    def cached(self) -> float:
        return self.input if self.cached_input is None else self.cached_input


@dataclass(frozen=True, slots=True, kw_only=True)
class PricePolicy:
    """Tiers per route, by rising prompt length; a route without tiers is free."""

    full: tuple[Price, ...] = ()
    hierarchical: tuple[Price, ...] = ()
    retrieval: tuple[Price, ...] = ()

    def __post_init__(self) -> None:
        for route, tiers in self.by_route().items():
            lengths = [float("inf") if t.up_to_tokens is None else t.up_to_tokens for t in tiers]
            if lengths != sorted(set(lengths)) or (lengths and lengths[-1] != float("inf")):
                raise ValueError(
                    f"prices.{route}: up_to_tokens must rise, and only the last tier has none"
                )

    def by_route(self) -> Mapping[Route, tuple[Price, ...]]:
        return {
            Route.FULL: self.full,
            Route.HIERARCHICAL: self.hierarchical,
            Route.RETRIEVAL: self.retrieval,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class TenancyPolicy:
    """A prompt that reads `long_prompt_tokens` or more is a long one. Limits per minute count a
    cached token as `cached_token_weight` of another."""

    long_prompt_tokens: int = 32768
    cached_token_weight: float = 1.0

    def __post_init__(self) -> None:
        if self.long_prompt_tokens < 1 or not 0 <= self.cached_token_weight <= 1:
            raise ValueError(
                "tenancy: long_prompt_tokens >= 1 and 0 <= cached_token_weight <= 1 must hold"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    auto: AutoPolicy = field(default_factory=AutoPolicy)
    limits: LimitPolicy = field(default_factory=LimitPolicy)
    allow: tuple[Route, ...] = (Route.FULL, Route.HIERARCHICAL, Route.RETRIEVAL)
    answer: AnswerPolicy = field(default_factory=AnswerPolicy)
    retrieval: RetrievalPolicy = field(default_factory=RetrievalPolicy)
    prices: PricePolicy = field(default_factory=PricePolicy)
    tenancy: TenancyPolicy = field(default_factory=TenancyPolicy)

    def __post_init__(self) -> None:
        if not self.allow or len(set(self.allow)) != len(self.allow):
            raise ValueError("allow: name at least one route, each once")

    @property
    def version(self) -> str:
        """Twelve hex digits over the values: equal policies have equal versions."""
        return hashlib.sha256(msgspec.json.encode(self, order="sorted")).hexdigest()[:12]


def load_policy(path: Path | None) -> Policy:
    """The file's policy, or the one shipped. Raises ValueError with a sentence for people."""
    if path is None:
        return parse_policy(files("gateway").joinpath("default_policy.yaml").read_text())
    try:
        return parse_policy(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"cannot read the policy {path}: {error.strerror}") from error
    except ValueError as error:
        raise ValueError(f"the policy {path} is refused: {error}") from error


def parse_policy(text: str) -> Policy:
    try:
        loaded: object = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ValueError(f"not valid YAML: {error}") from error
    return policy_of({} if loaded is None else loaded)


def policy_of(values: object) -> Policy:
    """The policy of plain values; what they do not name has its default. Raises ValueError."""
    _refuse_unknown(values, Policy, "")
    try:
        return msgspec.convert(values, Policy)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error


def _refuse_unknown(values: object, kind: type, where: str) -> None:
    if not isinstance(values, dict):
        raise ValueError(f"{where or 'the file'} must be a mapping")
    hints = get_type_hints(kind)
    known = {one.name for one in fields(kind)}
    for key, value in values.items():
        name = f"{where}.{key}" if where else str(key)
        if key not in known:
            raise ValueError(f"unknown key '{name}'; known here: {', '.join(sorted(known))}")
        _refuse_unknown_inside(value, hints[key], name)


def _refuse_unknown_inside(value: object, hint: object, name: str) -> None:
    if isinstance(hint, type) and is_dataclass(hint):
        _refuse_unknown(value, hint, name)
        return
    of = get_args(hint)[:1] if get_origin(hint) is tuple else ()
    if of and is_dataclass(of[0]) and isinstance(value, list):
        for i, each in enumerate(value):
            _refuse_unknown_inside(each, of[0], f"{name}[{i}]")
