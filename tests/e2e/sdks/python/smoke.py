"""SDKs over OpenAI's API against a running gateway; `test_python` runs it and judges.

In an environment of its own (`deploy/setup`): SDKs disagree about the version of `openai`.
"""

import os
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
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel, SecretStr
from pydantic_ai import Agent, ModelHTTPError, NativeOutput
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.openai import OpenAIProvider

BASE_URL, KEY, SAID = (os.environ[f"RINGWAY_SMOKE_{name}"] for name in ("URL", "KEY", "SAID"))
QUESTION = "How is it in Lisbon?"
LONG = "word " * 6000


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


def langchain(http: httpx.Client, key: str = KEY, **options: bool) -> ChatOpenAI:
    return ChatOpenAI(
        model="fake",
        base_url=BASE_URL,
        api_key=SecretStr(key),
        max_retries=0,
        http_client=http,
        **options,
    )


class TestLangChain:
    @pytest.fixture
    def chat(self, http: httpx.Client) -> ChatOpenAI:
        return langchain(http)

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

    def test_the_responses_api(self, http: httpx.Client) -> None:
        chat = langchain(http, use_responses_api=True)
        assert chat.invoke(QUESTION).text == SAID
        assert "".join(piece.text for piece in chat.stream(QUESTION)) == SAID

    def test_embeddings(self, http: httpx.Client) -> None:
        embeddings = OpenAIEmbeddings(
            model="fake-embedder",
            base_url=BASE_URL,
            api_key=SecretStr(KEY),
            check_embedding_ctx_length=False,
            http_client=http,
        )
        assert [len(one) for one in embeddings.embed_documents(["a", "b"])] == [64, 64]

    def test_errors(self, chat: ChatOpenAI, http: httpx.Client) -> None:
        with pytest.raises(openai.BadRequestError) as refused:
            chat.invoke(LONG)
        assert refused.value.code == "context_length_exceeded"
        with pytest.raises(openai.AuthenticationError):
            langchain(http, "wrong").invoke(QUESTION)


def llama_index(http: httpx.Client, key: str = KEY) -> OpenAILike:
    return OpenAILike(
        model="fake",
        api_base=BASE_URL,
        api_key=key,
        is_chat_model=True,
        is_function_calling_model=True,
        context_window=6000,
        max_retries=0,
        http_client=http,
    )


class TestLlamaIndex:
    def test_chat_stream_and_errors(self, http: httpx.Client) -> None:
        llm = llama_index(http)
        asked = [ChatMessage(role="user", content=QUESTION)]
        assert llm.chat(asked).message.content == SAID
        assert "".join(piece.delta or "" for piece in llm.stream_chat(asked)) == SAID
        assert llm.complete(QUESTION).text == SAID
        with pytest.raises(openai.BadRequestError) as refused:
            llm.chat([ChatMessage(role="user", content=LONG)])
        assert refused.value.code == "context_length_exceeded"
        with pytest.raises(openai.AuthenticationError):
            llama_index(http, "wrong").chat(asked)

    def test_tools(self, http: httpx.Client) -> None:
        def weather_of(city: str) -> str:
            return "18 degrees"

        offered = FunctionTool.from_defaults(fn=weather_of, name="get_weather")
        llm = llama_index(http)
        answer = llm.chat_with_tools([offered], user_msg=QUESTION)
        [call] = llm.get_tool_calls_from_response(answer)
        assert (call.tool_name, call.tool_kwargs) == ("get_weather", {"city": "Lisbon"})


@asynccontextmanager
async def provided(key: str = KEY) -> AsyncIterator[OpenAIProvider]:
    async with openai.AsyncOpenAI(base_url=BASE_URL, api_key=key, max_retries=0) as client:
        yield OpenAIProvider(openai_client=client)


class TestPydanticAI:
    async def test_chat_stream_and_tools(self) -> None:
        async with provided() as provider:
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

    async def test_structured_output_and_the_responses_api(self) -> None:
        async with provided() as provider:
            model = OpenAIChatModel("fake", provider=provider)
            typed = Agent(model, output_type=NativeOutput(Weather))
            assert (await typed.run(QUESTION)).output == LISBON
            responses = OpenAIResponsesModel("fake", provider=provider)
            assert (await Agent(responses).run(QUESTION)).output == SAID

    async def test_errors(self) -> None:
        async with provided() as provider:
            with pytest.raises(ModelHTTPError) as refused:
                await Agent(OpenAIChatModel("fake", provider=provider)).run(LONG)
        assert refused.value.status_code == 400
        assert isinstance(refused.value.body, dict)
        assert refused.value.body["code"] == "context_length_exceeded"
        async with provided("wrong") as provider:
            with pytest.raises(ModelHTTPError) as unknown:
                await Agent(OpenAIChatModel("fake", provider=provider)).run(QUESTION)
        assert unknown.value.status_code == 401
