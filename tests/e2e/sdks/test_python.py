"""Python's SDKs against the gateway: openai here, others in an environment of their own."""

import json
import os
import shutil
import subprocess
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path

import openai
import pytest
from pydantic import BaseModel

from tests.e2e.sdks.conftest import KEY, SAID
from tests.gateway.fakes import Running

QUESTION = "How is it in Lisbon?"
LONG = "word " * 6000
WEATHER_TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
        },
    },
}


class Weather(BaseModel):
    city: str
    degrees: int


LISBON = Weather(city="Lisbon", degrees=18)


class TestOpenAI:
    @pytest.fixture
    def client(self, gateway: Running) -> Iterator[openai.OpenAI]:
        with openai.OpenAI(base_url=f"{gateway.url}/v1", api_key=KEY, max_retries=0) as client:
            yield client

    def test_chat_and_stream(self, client: openai.OpenAI) -> None:
        messages = [{"role": "user", "content": QUESTION}]
        whole = client.chat.completions.create(model="fake", messages=messages)  # type: ignore[arg-type]
        assert whole.choices[0].message.content == SAID
        with client.chat.completions.stream(model="fake", messages=messages) as stream:  # type: ignore[arg-type]
            assert stream.get_final_completion().choices[0].message.content == SAID

    def test_tools_there_and_back(self, client: openai.OpenAI) -> None:
        messages = [{"role": "user", "content": QUESTION}]
        first = client.chat.completions.create(
            model="fake",
            messages=messages,  # type: ignore[arg-type]
            tools=[WEATHER_TOOL],  # type: ignore[list-item]
        )
        message = first.choices[0].message
        assert message.tool_calls is not None
        [call] = message.tool_calls
        assert json.loads(call.function.arguments) == {"city": "Lisbon"}  # type: ignore[union-attr]
        answer = {"role": "tool", "tool_call_id": call.id, "content": "18 degrees"}
        second = client.chat.completions.create(
            model="fake",
            messages=[*messages, message, answer],  # type: ignore[list-item]
            tools=[WEATHER_TOOL],  # type: ignore[list-item]
        )
        assert second.choices[0].message.content == SAID

    def test_structured_output_in_both_apis(self, client: openai.OpenAI) -> None:
        chat = client.chat.completions.parse(
            model="fake",
            messages=[{"role": "user", "content": QUESTION}],
            response_format=Weather,
        )
        assert chat.choices[0].message.parsed == LISBON
        response = client.responses.parse(model="fake", input=QUESTION, text_format=Weather)
        assert response.output_parsed == LISBON

    def test_responses_with_tools_and_as_a_stream(self, client: openai.OpenAI) -> None:
        function = {"type": "function", "strict": False, **WEATHER_TOOL["function"]}  # type: ignore[dict-item]
        first = client.responses.create(
            model="fake",
            input=QUESTION,
            tools=[function],  # type: ignore[list-item]
        )
        [call] = first.output
        assert call.type == "function_call"
        assert json.loads(call.arguments) == {"city": "Lisbon"}
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "18 degrees"}
        with client.responses.stream(
            model="fake",
            input=[result],  # type: ignore[list-item]
            previous_response_id=first.id,
            tools=[function],  # type: ignore[list-item]
        ) as stream:
            kinds = [event.type for event in stream]
            assert stream.get_final_response().output_text == SAID
        assert kinds[0] == "response.created"

    def test_errors(self, client: openai.OpenAI) -> None:
        with pytest.raises(openai.AuthenticationError):
            client.with_options(api_key="wrong").models.list()
        for call in (
            lambda: client.chat.completions.create(
                model="fake", messages=[{"role": "user", "content": LONG}]
            ),
            lambda: client.responses.create(model="fake", input=LONG),
        ):
            with pytest.raises(openai.BadRequestError) as refused:
                call()
            assert refused.value.code == "context_length_exceeded"


OTHERS = Path(os.environ.get("RINGWAY_TEST_SDKS", ".venv-sdks")) / "bin/python"
SUITE = Path(__file__).parent / "python/smoke.py"
RUN_S = 100


@pytest.fixture(scope="module")
def cases(gateway: Running, tmp_path_factory: pytest.TempPathFactory) -> list[ElementTree.Element]:
    """What the other SDKs' suite said, one element for a case."""
    if not OTHERS.exists():
        pytest.skip(f"{OTHERS} is not there: deploy/setup makes it")
    folder = tmp_path_factory.mktemp("sdks")
    report = folder / "report.xml"
    shutil.copy(SUITE, folder)  # away from the conftest files, which need Ringway
    told = subprocess.run(
        [
            *(str(OTHERS.absolute()), "-m", "pytest", "-q", "-p", "no:cacheprovider"),
            *("-o", "asyncio_mode=auto", "--rootdir", str(folder), f"--junit-xml={report}"),
            SUITE.name,
        ],
        cwd=folder,
        env={
            **os.environ,
            "RINGWAY_SMOKE_URL": f"{gateway.url}/v1",
            "RINGWAY_SMOKE_KEY": KEY,
            "RINGWAY_SMOKE_SAID": SAID,
        },
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert report.exists(), told.stdout + told.stderr
    return list(ElementTree.parse(report).iter("testcase"))


@pytest.mark.timeout(RUN_S + 20)
@pytest.mark.parametrize("sdk", ["LangChain", "LlamaIndex", "PydanticAI"])
def test_another_sdk_gets_what_it_expects(cases: list[ElementTree.Element], sdk: str) -> None:
    own = [one for one in cases if str(one.get("classname")).endswith(f"Test{sdk}")]
    assert len(own) >= 2
    failed = [ElementTree.tostring(one, encoding="unicode") for one in own if len(one)]
    assert not failed, "\n".join(failed)
