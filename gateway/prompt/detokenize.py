"""Token ids to text as they come: whole characters only, stop strings never half sent.

Knows one tokenizer; nothing of engines or of the wire.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from tokenizers import Tokenizer
from tokenizers.decoders import DecodeStream


class Detokenizer:
    """For one answer. `push` gives the text that a token completes, often empty.

    Special tokens are not said, but for those of `audible`, which have their texts.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        specials: frozenset[int],
        audible: Mapping[int, str] = MappingProxyType({}),
    ) -> None:
        self._tokenizer = tokenizer
        self._specials = specials
        self._audible = audible
        self._stream = DecodeStream(skip_special_tokens=True)
        self._pending: list[int] = []

    def push(self, token_id: int) -> str:
        if token_id in self._specials:
            return self._audible.get(token_id, "")
        text = self._stream.step(self._tokenizer, token_id)
        if text is None:
            self._pending.append(token_id)
            return ""
        self._pending.clear()
        return str(text)

    def flush(self) -> str:
        """What an answer that ends inside a character leaves: U+FFFD."""
        if not self._pending:
            return ""
        text: str = self._tokenizer.decode(self._pending, skip_special_tokens=True)
        self._pending.clear()
        return text


class StopScanner:
    """Cuts an answer before the first stop string, holding back what might begin one."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._stops = tuple(stops)
        self._held = ""
        self.stopped = False

    def push(self, text: str) -> str:
        """The part of all text so far that is safe to send and was not sent."""
        if not self._stops or self.stopped:
            return "" if self.stopped else text
        held = self._held + text
        cuts = [at for stop in self._stops if (at := held.find(stop)) >= 0]
        if cuts:
            self.stopped = True
            self._held = ""
            return held[: min(cuts)]
        keep = max(_overlap(held, stop) for stop in self._stops)
        self._held = held[len(held) - keep :]
        return held[: len(held) - keep]

    def flush(self) -> str:
        held, self._held = self._held, ""
        return held


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that begins `stop`."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if stop.startswith(text[-n:])), 0)


def byte_alphabet() -> dict[str, int]:
    """Byte-level BPE's printable stand-ins for bytes."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    alphabet = {chr(byte): byte for byte in printable}
    others = [byte for byte in range(0x100) if byte not in printable]
    alphabet.update({chr(0x100 + i): byte for i, byte in enumerate(others)})
    return alphabet


class TokenSpeller:
    """A single token's text and bytes, for logprobs."""

    def __init__(self, tokenizer: Tokenizer, *, byte_level: bool) -> None:
        self._tokenizer = tokenizer
        self._alphabet = byte_alphabet() if byte_level else {}

    def spell(self, token_id: int) -> tuple[str, list[int]]:
        text: str = self._tokenizer.decode([token_id], skip_special_tokens=False)
        name = self._tokenizer.id_to_token(token_id) or ""
        if self._alphabet and name and all(char in self._alphabet for char in name):
            return text, [self._alphabet[char] for char in name]
        return text, list(text.encode())
