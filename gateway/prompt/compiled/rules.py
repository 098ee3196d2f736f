"""Which splitting expressions the compiled encoder knows; knows neither characters nor tokens."""

from dataclasses import dataclass
from enum import IntEnum

from gateway.prompt.expressions import AFTER_DIGITS, BYTE_LEVEL


class Family(IntEnum):
    """GPT2 is ByteLevel's own expression, with or without digits split off before; GPT4 that of
    cl100k, which Llama 3 and Qwen have too but for the length of numbers."""

    GPT2 = 0
    GPT4 = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """`max_digits` is the longest number in one piece, 0 for any. `numbers_first`: numbers are
    split off before everything else, so that no space joins them."""

    family: Family
    max_digits: int
    numbers_first: bool

    @classmethod
    def of(cls, pattern: str) -> "Rules | None":
        """None for an expression that the kernel does not know."""
        return KNOWN.get(pattern)


def _gpt4(contractions: str, numbers: str) -> str:
    return (
        rf"{contractions}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{numbers}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*"
        r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    )


CONTRACTIONS = (
    "'(?i:[sdmt]|ll|ve|re)",
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)",
    "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])",
)
NUMBERS = {r"\p{N}{1,3}": 3, r"\p{N}": 1}

KNOWN = {
    BYTE_LEVEL: Rules(family=Family.GPT2, max_digits=0, numbers_first=False),
    AFTER_DIGITS % r"\p{N}": Rules(family=Family.GPT2, max_digits=1, numbers_first=True),
    AFTER_DIGITS % r"\p{N}+": Rules(family=Family.GPT2, max_digits=0, numbers_first=True),
    **{
        _gpt4(contractions, numbers): Rules(
            family=Family.GPT4, max_digits=longest, numbers_first=False
        )
        for contractions in CONTRACTIONS
        for numbers, longest in NUMBERS.items()
    },
}
