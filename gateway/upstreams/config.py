"""Which models are served by which servers, as written in a YAML file; connects nothing.

The file is not the policy: a policy can be changed while running and is shown to callers, servers
and the names of their keys are fixed at start.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator


class Kind(StrEnum):
    """How a server is spoken to; `ringway` is a gang, `openai` anything that reads chat."""

    RINGWAY = "ringway"
    VLLM = "vllm"
    SGLANG = "sglang"
    LLAMACPP = "llamacpp"
    OPENAI = "openai"


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ReplicaConfig(_Strict):
    """`model` is the model's name at that server; None: the same. `api_key_env` names the
    environment's variable that holds the key."""

    url: Annotated[str, Field(pattern=r"^https?://[^/]+")]
    kind: Kind
    api_key_env: str | None = None
    model: str | None = None


IMAGE_TOKENS = 1445
"""The most that OpenAI counts for an image of high detail: 85, and 170 for each of 8 tiles."""


class ModelConfig(_Strict):
    """`tokenizer` is a folder with tokenizer.json and the chat template, `encoding` one of
    tiktoken's; with neither counts are estimated. `context_tokens` holds prompt and answer. With
    `images` the model takes them, each counted as `image_tokens`; it is then sent messages."""

    replicas: Annotated[tuple[ReplicaConfig, ...], Field(min_length=1)]
    context_tokens: Annotated[int, Field(ge=256)] | None = None
    tokenizer: Path | None = None
    encoding: str | None = None
    images: bool = False
    image_tokens: Annotated[int, Field(ge=1)] = IMAGE_TOKENS

    @model_validator(mode="after")
    def _agrees(self) -> "ModelConfig":
        kinds = {one.kind for one in self.replicas}
        if len(kinds) > 1:
            raise ValueError("replicas of one model must be of one kind")
        if Kind.RINGWAY in kinds:
            if self.context_tokens or self.tokenizer or self.encoding:
                raise ValueError("a ringway engine tells its own context_tokens and tokenizer")
            if self.images:
                raise ValueError("a ringway engine reads text; images need another kind of server")
        elif self.context_tokens is None:
            raise ValueError("context_tokens is missing")
        if "image_tokens" in self.model_fields_set and not self.images:
            raise ValueError("image_tokens needs 'images: true'")
        if self.tokenizer and self.encoding:
            raise ValueError("name a tokenizer or an encoding, not both")
        urls = [one.url.rstrip("/") for one in self.replicas]
        if len(set(urls)) != len(urls):
            raise ValueError("two replicas have one url")
        return self

    @property
    def kind(self) -> Kind:
        return self.replicas[0].kind


class UpstreamsConfig(_Strict):
    """The first model is the one that answers for the gateway as a whole. `encodings` is a folder
    of tiktoken's files, for models that name an encoding."""

    encodings: Path | None = None
    models: Annotated[dict[str, ModelConfig], Field(min_length=1)]

    @model_validator(mode="after")
    def _has_encodings(self) -> "UpstreamsConfig":
        for name, model in self.models.items():
            if model.encoding is not None and self.encodings is None:
                raise ValueError(f"models.{name}.encoding needs the folder 'encodings'")
        return self


@dataclass(frozen=True, slots=True)
class Upstreams:
    """`keys` are the servers' API keys by the names of their environment variables."""

    config: UpstreamsConfig
    keys: Mapping[str, SecretStr]


def load_upstreams(path: Path, environ: Mapping[str, str]) -> Upstreams:
    """Raises ValueError with a sentence for people, also for a key that is not set: no request
    shall go out without it. Relative folders are the file's."""
    config = _read(path)
    names = {
        one.api_key_env: one.url
        for model in config.models.values()
        for one in model.replicas
        if one.api_key_env is not None
    }
    for name, url in names.items():
        if not environ.get(name):
            raise ValueError(f"{url} needs its key in {name}, which is not set")
    return Upstreams(config, {name: SecretStr(environ[name]) for name in names})


def _read(path: Path) -> UpstreamsConfig:
    try:
        loaded: object = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ValueError(f"cannot read the upstreams {path}: {error.strerror}") from error
    except yaml.YAMLError as error:
        raise ValueError(f"the upstreams {path} are not valid YAML: {error}") from error
    try:
        config = UpstreamsConfig.model_validate(loaded)
    except ValidationError as error:
        raise ValueError(f"the upstreams {path} are refused: {_said(error)}") from error
    return _beside(config, path.parent)


def _beside(config: UpstreamsConfig, folder: Path) -> UpstreamsConfig:
    models = {
        name: model.model_copy(update={"tokenizer": folder / model.tokenizer})
        if model.tokenizer
        else model
        for name, model in config.models.items()
    }
    encodings = config.encodings and folder / config.encodings
    return UpstreamsConfig(models=models, encodings=encodings)


def _said(error: ValidationError) -> str:
    errors = error.errors()
    first = next((one for one in errors if one["type"] == "extra_forbidden"), errors[0])
    where = _path(first["loc"])
    said = "unknown key" if first["type"] == "extra_forbidden" else first["msg"]
    return f"{where}: {said.removeprefix('Value error, ')}" if where else said


def _path(loc: Sequence[int | str]) -> str:
    return ".".join(str(one) for one in loc)
