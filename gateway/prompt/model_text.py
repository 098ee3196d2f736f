"""All that turns a model's text into ids and back: template, encoder, detokenizer.

Built from what the engine serves; knows no requests.
"""

import json
from dataclasses import dataclass

from engines.api import TokenizerFiles
from gateway.prompt.detokenize import Detokenizer, TokenSpeller
from gateway.prompt.template import ChatTemplate
from gateway.prompt.tokens import TextEncoder


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelText:
    template: ChatTemplate
    encoder: TextEncoder
    speller: TokenSpeller
    stop_ids: tuple[int, ...]
    digest: str

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

    def detokenizer(self) -> Detokenizer:
        specials = frozenset(self.encoder.specials.values())
        return Detokenizer(self.encoder.tokenizer, specials)


def _is_byte_level(tokenizer_json: bytes) -> bool:
    decoder = json.loads(tokenizer_json).get("decoder") or {}
    kinds = [decoder, *decoder.get("decoders", [])]
    return any(kind.get("type") == "ByteLevel" for kind in kinds)
