"""Makes a compiled encoder in a thread, proves it and hands it over; until then gives nothing.

Imports numba only there: the gateway starts at once, and without numba it goes on as it is.
"""

import logging
from array import array
from collections.abc import Callable, Iterator, Mapping
from threading import Thread
from typing import TYPE_CHECKING

from gateway.prompt.borders import CANARIES
from gateway.prompt.compiled.rules import KNOWN, Rules

if TYPE_CHECKING:
    from gateway.prompt.compiled.tables import CompiledBpe

logger = logging.getLogger(__name__)

Oracle = Callable[[str], "array[int] | None"]
"""The same ids by another way; None for a text that must have none."""

PROOF_CHARS = 4096


class Compiling:
    """`start` it once. `ranks` are the tokens with their ids; the lower id is merged first."""

    def __init__(self, expression: str, ranks: Mapping[bytes, int]) -> None:
        self._rules = Rules.of(expression)
        self._ranks = ranks
        self._encoder: CompiledBpe | None = None
        self._thread: Thread | None = None

    @property
    def is_ready(self) -> bool:
        return self._encoder is not None

    def encode(self, raw: bytes) -> "array[int] | None":
        """None while it is not ready, and for what the kernel leaves to others."""
        encoder = self._encoder
        return None if encoder is None else encoder.encode(raw)

    def start(self, oracle: Oracle) -> None:
        if self._rules is None or self._thread is not None:
            return
        self._thread = Thread(target=self._compile, args=(self._rules, oracle), name="compile")
        self._thread.start()

    def wait(self, limit_s: float | None = None) -> None:
        """Until it is ready or never will be, or for so long."""
        if self._thread is not None:
            self._thread.join(limit_s)

    def _compile(self, rules: Rules, oracle: Oracle) -> None:
        try:
            from gateway.prompt.compiled.tables import CompiledBpe
        except ImportError:
            logger.info("prompts are counted without compiled code: numba is not installed")
            return
        encoder = CompiledBpe.build(rules, self._ranks)
        if encoder is None:
            logger.warning("prompts are counted without compiled code: the vocabulary is too long")
        elif not all(_agree(encoder, oracle, text) for text in proofs(self._ranks)):
            logger.error("prompts are counted without compiled code: its ids are others")
        else:
            self._encoder = encoder


def preload() -> Thread:
    """Read the kernel from disk, or compile it, in a thread, before there is a vocabulary."""
    thread = Thread(target=_preload, name="preload")
    thread.start()
    return thread


def _preload() -> None:
    try:
        from gateway.prompt.compiled.tables import CompiledBpe
    except ImportError:
        return
    encoder = CompiledBpe.build(next(iter(KNOWN.values())), {b"a": 0})
    assert encoder is not None, "a vocabulary of one byte is not too long"
    encoder.encode(b"a")


def proofs(tokens: Mapping[bytes, int]) -> Iterator[str]:
    """The canaries, and all the vocabulary one token after the other."""
    yield from CANARIES
    spelled = b"".join(tokens).decode(errors="ignore")
    for start in range(0, len(spelled), PROOF_CHARS):
        yield spelled[start : start + PROOF_CHARS]


def _agree(encoder: "CompiledBpe", oracle: Oracle, text: str) -> bool:
    ids, others = encoder.encode(text.encode()), oracle(text)
    return ids is None or ids == others
