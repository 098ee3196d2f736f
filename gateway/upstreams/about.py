"""What is told of a model whose servers tell nothing: configured limits, a tokenizer to count by.

Blocking: use `to_thread`. Knows no server.
"""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

from engines.api import Attention, EngineInfo, EngineStatus, TokenizerFiles
from engines.models.folder import read_tokenizer
from gateway.prompt.model_text import ESTIMATED
from gateway.prompt.openai_encodings import ENCODINGS
from gateway.upstreams.config import ModelConfig
from gateway.upstreams.dialect import Dialect

PLAIN_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}<|im_sep|>{{ message.content }}"
    "<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant<|im_sep|>{% endif %}"
)
"""What OpenAI counts around messages: three tokens and the role each, three before the answer."""

FIRST_CONTROL = 300_000
"""Above every id of OpenAI's encodings."""

CONTROLS = ("<|im_start|>", "<|im_sep|>", "<|im_end|>")

ESTIMATED_PIECES = r" ?[A-Za-z]{1,5}|[0-9]{1,3}|\s{1,8}|[^\x00-\x7f]|[\s\S]"
"""A piece a token: on the safe side for words, digits and code, and for scripts of one token a
character or less."""

LONGEST_PIECE = "x" * 8


def declared_info(
    model: str, config: ModelConfig, tokenizer: TokenizerFiles, dialect: Dialect
) -> EngineInfo:
    """An engine whose KV nobody sees has a KV budget of 0."""
    context_tokens = config.context_tokens
    assert context_tokens is not None, "checked with the file"
    return EngineInfo(
        model=model,
        status=EngineStatus.READY,
        ranks=0,
        epoch=0,
        dtype="",
        window_tokens=context_tokens,
        context_tokens={Attention.FULL: context_tokens},
        kv_bytes_per_token=0,
        kv_budget_tokens=0,
        tokenizer_digest=tokenizer.digest,
        reads=dialect.reads,
        image_tokens=config.image_tokens if config.images else 0,
        passes=dialect.passes,
    )


class Declared:
    def __init__(self, info: EngineInfo, tokenizer: TokenizerFiles) -> None:
        self._info = info
        self._tokenizer = tokenizer

    async def info(self) -> EngineInfo:
        return self._info

    async def tokenizer(self) -> TokenizerFiles:
        return self._tokenizer


def folder_tokenizer(folder: Path) -> TokenizerFiles:
    """Raises ModelMissing. A folder without a chat template gets the plain one."""
    config_path = folder / "config.json"
    config = json.loads(config_path.read_bytes()) if config_path.is_file() else {}
    files = read_tokenizer(folder, config)
    return files if files.chat_template else replace(files, chat_template=PLAIN_TEMPLATE)


def encoding_tokenizer(name: str, folder: Path) -> TokenizerFiles:
    """One of OpenAI's encodings. Raises ValueError with a sentence for people."""
    if name not in ENCODINGS:
        raise ValueError(f"unknown encoding {name}; known are {', '.join(ENCODINGS)}")
    controls = {text: FIRST_CONTROL + i for i, text in enumerate(CONTROLS)}
    body = ENCODINGS[name].tokenizer_json(folder, controls)
    return TokenizerFiles(
        tokenizer_json=body,
        chat_template=PLAIN_TEMPLATE,
        special_tokens={},
        stop_ids=(),
        digest=hashlib.sha256(body + PLAIN_TEMPLATE.encode()).hexdigest(),
    )


def estimated_tokenizer() -> TokenizerFiles:
    """Its ids mean nothing; their number is an estimate."""
    body = json.dumps(
        {
            "version": "1.0",
            "added_tokens": [_control(i + 2, text) for i, text in enumerate(CONTROLS)],
            "normalizer": None,
            "pre_tokenizer": {
                "type": "Split",
                "pattern": {"Regex": ESTIMATED_PIECES},
                "behavior": "Isolated",
                "invert": False,
            },
            "post_processor": None,
            "decoder": None,
            "model": {
                "type": "WordLevel",
                "vocab": {"?": 0, LONGEST_PIECE: 1},
                "unk_token": "?",
            },
        }
    ).encode()
    return TokenizerFiles(
        tokenizer_json=body,
        chat_template=PLAIN_TEMPLATE,
        special_tokens={},
        stop_ids=(),
        digest=f"{ESTIMATED}-{hashlib.sha256(body + PLAIN_TEMPLATE.encode()).hexdigest()}",
    )


def _control(index: int, text: str) -> dict[str, object]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": index, "content": text, **flags, "special": True}
