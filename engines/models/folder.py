"""Reads a Hugging Face folder's small files: sizes, tokenizer, template, stop ids. No weights."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from engines.api import ModelMissing, TokenizerFiles
from engines.memory import ModelShape, shape_of

END_MARKERS = ("<|im_end|>", "<|eot_id|>", "<|end|>", "<|endoftext|>", "<end_of_turn>", "</s>")
"""Texts that end a turn in common chat templates; an answer never contains them."""

NAMED_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token", "sep_token", "cls_token")

JsonObject = Mapping[str, object]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFolder:
    """What a supervisor knows of its model without loading it."""

    path: Path
    model_type: str
    shape: ModelShape
    tokenizer: TokenizerFiles


def read_folder(path: Path) -> ModelFolder:
    """Raises ModelMissing, with the file that is missing or unusable."""
    config = _read_json(path / "config.json")
    try:
        shape = shape_of(config)
    except ValueError as error:
        raise ModelMissing(f"{path}: {error}") from error
    if not any(path.glob("*.safetensors")):
        raise ModelMissing(f"{path} holds no .safetensors file")
    return ModelFolder(
        path=path,
        model_type=str(config.get("model_type", "")),
        shape=shape,
        tokenizer=read_tokenizer(path, config),
    )


def read_tokenizer(path: Path, config: JsonObject) -> TokenizerFiles:
    """Raises ModelMissing when there is no tokenizer.json."""
    tokenizer_path = path / "tokenizer.json"
    if not tokenizer_path.is_file():
        raise ModelMissing(f"{path} holds no tokenizer.json")
    tokenizer_json = tokenizer_path.read_bytes()
    settings = _read_json_if_any(path / "tokenizer_config.json")
    named = {**_read_json_if_any(path / "special_tokens_map.json"), **settings}
    template = _chat_template(path, settings)
    stop_ids = tuple(sorted(_stop_ids(path, config, tokenizer_json)))
    return TokenizerFiles(
        tokenizer_json=tokenizer_json,
        chat_template=template,
        special_tokens={
            name: text for name in NAMED_TOKENS if (text := _token_text(named.get(name)))
        },
        stop_ids=stop_ids,
        digest=_digest(tokenizer_json, template.encode(), json.dumps(stop_ids).encode()),
    )


def _chat_template(path: Path, settings: JsonObject) -> str:
    """The template's text, empty for a model without one."""
    file = path / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    template = settings.get("chat_template")
    if isinstance(template, list):
        named = {entry["name"]: entry["template"] for entry in template}
        template = named.get("default")
    return template if isinstance(template, str) else ""


def _stop_ids(path: Path, config: JsonObject, tokenizer_json: bytes) -> set[int]:
    generation = _read_json_if_any(path / "generation_config.json")
    found = {*_ids(config.get("eos_token_id")), *_ids(generation.get("eos_token_id"))}
    added = json.loads(tokenizer_json).get("added_tokens", [])
    return found | {token["id"] for token in added if token["content"] in END_MARKERS}


def _ids(value: object) -> Iterator[int]:
    if isinstance(value, int):
        yield value
    elif isinstance(value, list):
        yield from (id_ for id_ in value if isinstance(id_, int))


def _token_text(value: object) -> str | None:
    """A token's entry is its text, or an object that holds it."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) else None


def _digest(*parts: bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.hexdigest()


def _read_json_if_any(path: Path) -> JsonObject:
    return _read_json(path) if path.is_file() else {}


def _read_json(path: Path) -> JsonObject:
    try:
        value = json.loads(path.read_bytes())
    except OSError as error:
        raise ModelMissing(f"{path} cannot be read") from error
    except ValueError as error:
        raise ModelMissing(f"{path} is not valid JSON") from error
    if not isinstance(value, dict):
        raise ModelMissing(f"{path} holds no JSON object")
    return value
