"""Python's SDKs against the gateway: openai, langchain-openai, llama-index, pydantic-ai."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import httpx
import openai
import pytest
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from llama_index.core.llms import ChatMessage
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike  # type: ignore[import-untyped]
from pydantic import BaseModel, SecretStr
from pydantic_ai import Agent, ModelHTTPError, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

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


@tool
def get_weather(city: str) -> str:
    """The weather of a city."""
    return "18 degrees"


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    """SDKs that make a client of their own leave its sockets to the garbage collector."""
    with httpx.Client() as client:
        yield client


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


def langchain(gateway: Running, http: httpx.Client, key: str = KEY, **options: bool) -> ChatOpenAI:
    return ChatOpenAI(
        model="fake",
        base_url=f"{gateway.url}/v1",
        api_key=SecretStr(key),
        max_retries=0,
        http_client=http,
        **options,  # type: ignore[arg-type]
    )


class TestLangChain:
    @pytest.fixture
    def chat(self, gateway: Running, http: httpx.Client) -> ChatOpenAI:
        return langchain(gateway, http)

    def test_chat_and_stream(self, chat: ChatOpenAI) -> None:
        answer = chat.invoke(QUESTION)
        assert answer.content == SAID
        assert answer.usage_metadata is not None
        assert "".join(str(piece.content) for piece in chat.stream(QUESTION)) == SAID

    def test_tools_there_and_back(self, chat: ChatOpenAI) -> None:
        bound = chat.bind_tools([get_weather])
        first = bound.invoke(QUESTION)
        [call] = first.tool_calls
        assert (call["name"], call["args"]) == ("get_weather", {"city": "Lisbon"})
        told = ToolMessage("18 degrees", tool_call_id=str(call["id"]))
        assert bound.invoke([HumanMessage(QUESTION), first, told]).content == SAID

    def test_structured_output(self, chat: ChatOpenAI) -> None:
        assert chat.with_structured_output(Weather).invoke(QUESTION) == LISBON

    def test_the_responses_api(self, gateway: Running, http: httpx.Client) -> None:
        chat = langchain(gateway, http, use_responses_api=True)
        assert chat.invoke(QUESTION).text == SAID
        assert "".join(piece.text for piece in chat.stream(QUESTION)) == SAID

    def test_embeddings(self, gateway: Running, http: httpx.Client) -> None:
        embeddings = OpenAIEmbeddings(
            model="fake-embedder",
            base_url=f"{gateway.url}/v1",
            api_key=SecretStr(KEY),
            check_embedding_ctx_length=False,
            http_client=http,
        )
        assert [len(one) for one in embeddings.embed_documents(["a", "b"])] == [64, 64]

    def test_errors(self, chat: ChatOpenAI, gateway: Running, http: httpx.Client) -> None:
        with pytest.raises(openai.BadRequestError) as refused:
            chat.invoke(LONG)
        assert refused.value.code == "context_length_exceeded"
        with pytest.raises(openai.AuthenticationError):
            langchain(gateway, http, "wrong").invoke(QUESTION)


def llama_index(gateway: Running, http: httpx.Client, key: str = KEY) -> OpenAILike:
    return OpenAILike(
        model="fake",
        api_base=f"{gateway.url}/v1",
        api_key=key,
        is_chat_model=True,
        is_function_calling_model=True,
        context_window=6000,
        max_retries=0,
        http_client=http,
    )


class TestLlamaIndex:
    def test_chat_stream_and_errors(self, gateway: Running, http: httpx.Client) -> None:
        llm = llama_index(gateway, http)
        asked = [ChatMessage(role="user", content=QUESTION)]
        assert llm.chat(asked).message.content == SAID
        assert "".join(piece.delta or "" for piece in llm.stream_chat(asked)) == SAID
        assert llm.complete(QUESTION).text == SAID
        with pytest.raises(openai.BadRequestError) as refused:
            llm.chat([ChatMessage(role="user", content=LONG)])
        assert refused.value.code == "context_length_exceeded"
        with pytest.raises(openai.AuthenticationError):
            llama_index(gateway, http, "wrong").chat(asked)

    def test_tools(self, gateway: Running, http: httpx.Client) -> None:
        def weather_of(city: str) -> str:
            return "18 degrees"

        offered = FunctionTool.from_defaults(fn=weather_of, name="get_weather")
        llm = llama_index(gateway, http)
        answer = llm.chat_with_tools([offered], user_msg=QUESTION)
        [call] = llm.get_tool_calls_from_response(answer)
        assert (call.tool_name, call.tool_kwargs) == ("get_weather", {"city": "Lisbon"})


@asynccontextmanager
async def provided(gateway: Running, key: str = KEY) -> AsyncIterator[OpenAIProvider]:
    async with openai.AsyncOpenAI(
        base_url=f"{gateway.url}/v1", api_key=key, max_retries=0
    ) as client:
        yield OpenAIProvider(openai_client=client)


class TestPydanticAI:
    async def test_chat_stream_and_tools(self, gateway: Running) -> None:
        async with provided(gateway) as provider:
            model = OpenAIChatModel("fake", provider=provider)
            plain = Agent(model)
            assert (await plain.run(QUESTION)).output == SAID
            async with plain.run_stream(QUESTION) as streamed:
                assert await streamed.get_output() == SAID
            asked: list[str] = []
            able = Agent(model)

            @able.tool_plain
            def get_weather(city: str) -> str:
                asked.append(city)
                return "18 degrees"

            assert (await able.run(QUESTION)).output == SAID
            assert asked == ["Lisbon"]

    async def test_structured_output_and_the_responses_api(self, gateway: Running) -> None:
        async with provided(gateway) as provider:
            model = OpenAIChatModel("fake", provider=provider)
            typed = Agent(model, output_type=NativeOutput(Weather))
            assert (await typed.run(QUESTION)).output == LISBON
            responses = OpenAIResponsesModel("fake", provider=provider)
            assert (await Agent(responses).run(QUESTION)).output == SAID

    async def test_errors(self, gateway: Running) -> None:
        async with provided(gateway) as provider:
            with pytest.raises(ModelHTTPError) as refused:
                await Agent(OpenAIChatModel("fake", provider=provider)).run(LONG)
        assert refused.value.status_code == 400
        assert isinstance(refused.value.body, dict)
        assert refused.value.body["code"] == "context_length_exceeded"
        async with provided(gateway, "wrong") as provider:
            with pytest.raises(ModelHTTPError) as unknown:
                await Agent(OpenAIChatModel("fake", provider=provider)).run(QUESTION)
        assert unknown.value.status_code == 401
