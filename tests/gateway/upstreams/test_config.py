"""The upstreams file: what it may say, and how it is refused."""

import re
from pathlib import Path

import pytest

from gateway.settings import GatewaySettings
from gateway.upstreams.config import Kind, load_upstreams

GOOD = """
models:
  big:
    context_tokens: 131072
    tokenizer: tok
    replicas:
      - {url: "http://a:8000", kind: vllm, model: meta/big, api_key_env: BIG_KEY}
      - {url: "http://b:8000", kind: vllm}
  own:
    replicas: [{url: "http://c:8081", kind: ringway}]
"""


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "upstreams.yaml"
    path.write_text(text)
    return path


def test_a_file_names_models_and_their_servers(tmp_path: Path) -> None:
    path = written(tmp_path, GOOD)
    environ = {"RINGWAY_UPSTREAMS": str(path), "BIG_KEY": "k-1"}
    upstreams = GatewaySettings.from_environ(environ).upstreams
    assert upstreams is not None
    big, own = upstreams.config.models.values()
    assert (big.kind, own.kind) == (Kind.VLLM, Kind.RINGWAY)
    assert big.tokenizer == tmp_path / "tok"
    assert upstreams.keys["BIG_KEY"].get_secret_value() == "k-1"
    assert "k-1" not in repr(upstreams)


REPLICA = "replicas: [{url: 'http://a', kind: openai}]"

REFUSALS = {
    "[]": "valid dictionary",
    "models: {}": "models",
    "modles: {}": "modles: unknown key",
    "models: {m: {replicas: [], context_tokens: 512}}": "models.m.replicas",
    f"models: {{m: {{{REPLICA}}}}}": "context_tokens is missing",
    f"models: {{m: {{{REPLICA}, context_tokens: 9}}}}": "models.m.context_tokens",
    f"models: {{m: {{{REPLICA}, context_tokens: 512, contxt: 1}}}}": "m.contxt: unknown key",
    "models: {m: {context_tokens: 512, replicas: [{url: a, kind: vllm}]}}": "replicas.0.url",
    "models: {m: {context_tokens: 512, replicas: [{url: 'http://a', kind: tgi}]}}": "kind",
    "models: {m: {context_tokens: 512, replicas: [{url: 'http://a', kind: vllm}, "
    "{url: 'http://b', kind: openai}]}}": "one kind",
    "models: {m: {context_tokens: 512, replicas: [{url: 'http://a', kind: vllm}, "
    "{url: 'http://a/', kind: vllm}]}}": "one url",
    "models: {m: {context_tokens: 512, replicas: [{url: 'http://a', kind: ringway}]}}": "its own",
    "models: {m: {context_tokens: 512, replicas: [{url: 'http://a', kind: openai, "
    "api_key_env: NOT_SET}]}}": "NOT_SET, which is not set",
    "models: {": "not valid YAML",
}


@pytest.mark.parametrize(("text", "said"), REFUSALS.items())
def test_a_bad_file_refuses_to_load_and_says_where(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        load_upstreams(written(tmp_path, text), {})
