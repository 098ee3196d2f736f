"""One gateway with a key, in front of a fake engine that plays the same scene for every SDK."""

from collections.abc import Iterator

import pytest
from pydantic import SecretStr

from engines.api import GenerateRequest
from engines.fake import FakeSettings
from gateway.auth import KeyRing
from gateway.policy import AutoPolicy, LimitPolicy, Policy
from ingest.fake_embeddings import fake_embeddings
from tests.gateway.fakes import (
    BpeEngine,
    Running,
    ids_of,
    make_parts,
    running,
    tokenizer_files,
    trained,
)

KEY = "sk-smoke"
SAID = "It is 18 degrees in Lisbon."
WEATHER = '{"city": "Lisbon", "degrees": 18}'
CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "Lisbon"}}</tool_call>'

SMALL = Policy(
    auto=AutoPolicy(full_max_tokens=6000, hierarchical_max_tokens=6000),
    limits=LimitPolicy(full=6000, hierarchical=6000, retrieval=6000),
)


def scene(request: GenerateRequest) -> list[int]:
    """Calls the weather's function where there is one, speaks JSON where that is demanded."""
    prompt = trained().decode(list(request.prompt_ids))
    if "get_weather" in prompt and "18 degrees" not in prompt:
        text = CALL
    elif request.grammar is not None and "get_weather" not in prompt:
        text = WEATHER
    else:
        text = SAID
    return [*ids_of(text), *tokenizer_files().stop_ids]


@pytest.fixture(scope="module")
def gateway() -> Iterator[Running]:
    parts = make_parts(
        BpeEngine(scene, FakeSettings()),
        policy=SMALL,
        keys=KeyRing([SecretStr(KEY)]),
        embeddings=fake_embeddings(),
    )
    with running(parts) as served:
        yield served
