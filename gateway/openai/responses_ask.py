"""A response's body and the conversation before it, as an Ask: through the body of a chat.

Chat completions know what may be asked for; here only the spelling differs.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

from pydantic import ValidationError

from gateway.api import InvalidRequest, UnsupportedParameter
from gateway.asks import Ask, StoreScope
from gateway.openai.chat import CacheOptions, ChatBody, to_ask
from gateway.openai.compaction import CompactionItem
from gateway.openai.fields import refuse_unsupported
from gateway.openai.parse import invalid
from gateway.openai.responses_bodies import (
    LOGPROBS,
    FileSearchTool,
    FunctionTool,
    JsonSchema,
    NamedFunction,
    ResponseBody,
)
from gateway.openai.responses_items import (
    FunctionCallItem,
    FunctionOutputItem,
    InputFile,
    InputImage,
    InputItem,
    InputText,
    MessageItem,
    OutputText,
)
from gateway.openai.vector_stores_filters import to_filter

Json = dict[str, object]

RECALLED = "Summary of the conversation so far:\n\n"

NAMES = {
    "messages": "input",
    "response_format": "text.format",
    "max_completion_tokens": "max_output_tokens",
    "vector_store_ids": "tools",
    "reasoning_effort": "reasoning.effort",
    "verbosity": "text.verbosity",
}
"""Chat's names of what a response calls otherwise."""


def response_ask(body: ResponseBody, history: Sequence[InputItem], *, seed: int) -> Ask:
    """`history` is what came before. Raises InvalidRequest or UnsupportedParameter."""
    chat = _chat_body(body, history)
    with own_names():
        refuse_unsupported(chat)
        try:
            parsed = ChatBody.model_validate(chat)
        except ValidationError as error:
            raise invalid(error, chat) from None
        ask = to_ask(parsed, seed=seed)
    ask = replace(ask, store_scope=_scope(body.file_search))
    return _with_places(ask, [*history_places(history), *image_places(body.items, "input")])


def _chat_body(body: ResponseBody, history: Sequence[InputItem]) -> Json:
    search = body.file_search
    wants_logprobs = LOGPROBS in (body.include or ()) or body.top_logprobs
    given = {
        "model": body.model,
        "messages": _messages(body.instructions, [*history, *body.items]),
        "temperature": body.temperature,
        "top_p": body.top_p,
        "max_completion_tokens": body.max_output_tokens,
        "logprobs": True if wants_logprobs else None,
        "top_logprobs": body.top_logprobs,
        "stream": body.stream,
        "service_tier": body.service_tier,
        "prompt_cache_key": body.prompt_cache_key,
        "user": body.user,
        "safety_identifier": body.safety_identifier,
        "metadata": body.metadata,
        "tools": [_tool(one) for one in body.functions] or None,
        "tool_choice": _tool_choice(body),
        "parallel_tool_calls": body.parallel_tool_calls if body.functions else None,
        "response_format": _response_format(body),
        "reasoning_effort": body.reasoning.effort if body.reasoning else None,
        "verbosity": body.text.verbosity if body.text else None,
        "prompt_cache_retention": body.prompt_cache_retention,
        "prompt_cache_options": _dumped(body.prompt_cache_options),
        "fidelity": body.fidelity,
        "allow_fallback": body.allow_fallback,
        "documents": [one.model_dump() for one in body.documents or ()] or None,
        "vector_store_ids": search.vector_store_ids if search else None,
    }
    return {name: value for name, value in given.items() if value is not None}


def _messages(instructions: str | None, items: Sequence[InputItem]) -> list[Json]:
    """Calls of one answer, and the text before them, are one message of the assistant."""
    messages: list[Json] = []
    if instructions:
        messages.append({"role": "system", "content": instructions})
    for item in items:
        match item:
            case MessageItem():
                messages.append({"role": item.role, "content": _content(item)})
            case CompactionItem():
                messages.append({"role": "assistant", "content": f"{RECALLED}{item.summary}"})
            case FunctionCallItem():
                _calls_of_last(messages).append(_call(item))
            case FunctionOutputItem():
                messages.append(
                    {"role": "tool", "tool_call_id": item.call_id, "content": _output(item)}
                )
    return messages


def _content(item: MessageItem) -> str | list[Json]:
    if isinstance(item.content, str):
        return item.content
    return [_part(part) for part in item.content]


def _part(part: InputText | OutputText | InputFile | InputImage) -> Json:
    match part:
        case InputFile():
            return {"type": "file", "file": {"file_id": part.file_id}}
        case InputImage():
            image = {"url": part.image_url, "detail": part.detail}
            return {"type": "image_url", "image_url": image}
        case _:
            return {"type": "text", "text": part.text}


def _with_places(ask: Ask, places: Sequence[str]) -> Ask:
    """The images named as they are in the response's own body."""
    if not ask.images:
        return ask
    names = iter(places)
    turns = tuple(
        replace(turn, images=tuple(replace(one, where=next(names)) for one in turn.images))
        for turn in ask.turns
    )
    return replace(ask, turns=turns)


def image_places(items: Sequence[InputItem], where: str) -> list[str]:
    return [
        f"{where}[{i}].content[{j}]"
        for i, item in enumerate(items)
        if isinstance(item, MessageItem) and not isinstance(item.content, str)
        for j, part in enumerate(item.content)
        if isinstance(part, InputImage)
    ]


def history_places(history: Sequence[InputItem]) -> list[str]:
    return ["previous_response_id" for _ in image_places(history, "")]


def _dumped(options: CacheOptions | None) -> Json | None:
    return None if options is None else options.model_dump(exclude_none=True)


def _calls_of_last(messages: list[Json]) -> list[Json]:
    if not messages or messages[-1]["role"] != "assistant":
        messages.append({"role": "assistant", "content": None})
    calls = messages[-1].setdefault("tool_calls", [])
    assert isinstance(calls, list), "built here"
    return calls


def _call(item: FunctionCallItem) -> Json:
    function = {"name": item.name, "arguments": item.arguments}
    return {"id": item.call_id, "type": "function", "function": function}


def _output(item: FunctionOutputItem) -> str:
    if isinstance(item.output, str):
        return item.output
    return "\n".join(part.text for part in item.output)


def _tool(tool: FunctionTool) -> Json:
    return {"type": "function", "function": tool.model_dump(exclude={"type"}, exclude_none=True)}


def _tool_choice(body: ResponseBody) -> object:
    """A search is always run, so of the choices only those about functions are left."""
    choice = body.tool_choice
    if not body.functions:
        if choice == "required" and body.file_search is None:
            return choice
        return choice if choice == "none" else None
    if isinstance(choice, NamedFunction):
        return {"type": "function", "function": {"name": choice.name}}
    return choice if isinstance(choice, str) else None


def _response_format(body: ResponseBody) -> Json | None:
    wanted = body.text.format if body.text else None
    if wanted is None:
        return None
    if isinstance(wanted, JsonSchema):
        schema = wanted.model_dump(exclude={"type"}, exclude_none=True, by_alias=True)
        return {"type": "json_schema", "json_schema": schema}
    return {"type": wanted.type}


def _scope(search: FileSearchTool | None) -> StoreScope:
    if search is None:
        return StoreScope()
    ranking = search.ranking_options
    return StoreScope(
        filter=None if search.filters is None else to_filter(search.filters),
        top_k=search.max_num_results,
        score_threshold=(ranking.score_threshold if ranking else None) or 0.0,
    )


@contextmanager
def own_names() -> Iterator[None]:
    """Errors about the chat that stands behind it name the response's own fields."""
    try:
        yield
    except InvalidRequest as error:
        param = _renamed(error.param or "")
        message = str(error).replace(f"'{error.param}'", f"'{param}'")
        raise InvalidRequest(message, param=param or None, code=error.code) from None
    except UnsupportedParameter as error:
        raise UnsupportedParameter(_renamed(error.param), detail=error.detail) from None


def _renamed(param: str) -> str:
    for chats, ours in NAMES.items():
        if param.startswith(chats):
            return ours + param.removeprefix(chats)
    return param
