"""All that turns a model's text into ids and back: template, encoder, detokenizer.

Built from what the engine serves; knows no requests.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from engines.api import TokenizerFiles
from gateway.api import CountKind
from gateway.prompt.detokenize import Detokenizer, TokenSpeller
from gateway.prompt.template import ChatTemplate
from gateway.prompt.tokens import TextEncoder

ESTIMATED = "estimated"
"""How the digest of a tokenizer begins that is not the model's own: its counts are estimates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelText:
    template: ChatTemplate
    encoder: TextEncoder
    speller: TokenSpeller
    stop_ids: tuple[int, ...]
    digest: str

    @property
    def count_kind(self) -> CountKind:
        return CountKind.ESTIMATED if self.digest.startswith(ESTIMATED) else CountKind.EXACT

    @classmethod
    def build(cls, files: TokenizerFiles) -> "ModelText":
        """Slow: use `to_thread`."""
        encoder = TextEncoder.build(files.tokenizer_json)
        return cls(
            template=ChatTemplate.build(files.chat_template, files.special_tokens),
            encoder=encoder,
            speller=TokenSpeller(
                encoder.tokenizer, byte_level=_is_byte_level(files.tokenizer_json)
            ),
            stop_ids=files.stop_ids,
            digest=files.digest,
        )

    def detokenizer(self, audible: Iterable[str] = ()) -> Detokenizer:
        """Special tokens are silent, but for those of `audible`."""
        specials = self.encoder.specials
        heard = {specials[mark]: mark for mark in audible if mark in specials}
        return Detokenizer(self.encoder.tokenizer, frozenset(specials.values()), heard)


def _is_byte_level(tokenizer_json: bytes) -> bool:
    decoder = json.loads(tokenizer_json).get("decoder") or {}
    kinds = [decoder, *decoder.get("decoders", [])]
    return any(kind.get("type") == "ByteLevel" for kind in kinds)
