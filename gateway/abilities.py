"""What only some engines can do, images and a few fields of OpenAI's: refused by name elsewhere.

Knows what engines tell of themselves; no wire format.
"""

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from engines.api import EngineInfo
from gateway.api import UnsupportedParameter
from gateway.asks import Ask

LOW_DETAIL_TOKENS = 85
"""What OpenAI counts for an image of low detail, whatever its size."""

END_USER = "safety_identifier"

NEUTRAL: Mapping[str, object] = {
    "reasoning_effort": "none",
    "verbosity": "medium",
    "prompt_cache_retention": "in_memory",
}
"""Values that ask for what an engine does anyway that does not know the field."""

Names = Callable[[Callable[[EngineInfo], bool]], Awaitable[Sequence[str]]]
"""The models whose engines pass a test."""


async def within_abilities(ask: Ask, info: EngineInfo, names: Names) -> Ask:
    """The ask as this engine shall read it. Raises UnsupportedParameter with what would do."""
    if ask.images and not info.image_tokens:
        able = await names(lambda one: one.image_tokens > 0)
        raise UnsupportedParameter(
            ask.images[0].where,
            detail=f"an image; the model '{ask.model}' reads text only. {_way_out('do', able)}",
        )
    for name, value in ask.passed.items():
        if name not in info.passes and value != NEUTRAL.get(name):
            able = await names(lambda one, name=name: name in one.passes)  # type: ignore[misc]
            raise UnsupportedParameter(
                name, detail=f"the model '{ask.model}' has no use for it. {_way_out('have', able)}"
            )
    told = {name: value for name, value in ask.passed.items() if name in info.passes}
    if ask.end_user and END_USER in info.passes:
        told[END_USER] = _disguised(ask.tenant, ask.end_user)
    return ask if told == ask.passed else replace(ask, passed=told)


def image_tokens(ask: Ask, info: EngineInfo) -> int:
    """An estimate: what an image takes is known to the model alone."""
    return sum(
        min(LOW_DETAIL_TOKENS, info.image_tokens) if image.detail == "low" else info.image_tokens
        for image in ask.images
    )


def _way_out(verb: str, able: Sequence[str]) -> str:
    if not able:
        return f"None of this gateway's models {verb}"
    return f"Those that {verb}: {', '.join(able)}"


def _disguised(tenant: str, end_user: str) -> str:
    """The same for the same person, and no name of anybody's."""
    return hashlib.sha256(f"{tenant}/{end_user}".encode()).hexdigest()[:32]
