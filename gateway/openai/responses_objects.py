"""OpenAI's response object and its output items as they go over the wire."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NotRequired, TypedDict

from engines.api import FinishReason
from gateway.answers import Answered, FoundPassage, SpelledToken, Usage
from gateway.openai.objects import (
    Annotation,
    RingwayObject,
    TokenLogprob,
    annotations_of,
    logprobs_object,
    ringway_object,
)
from gateway.openai.responses_bodies import (
    RESULTS,
    FileSearchTool,
    FunctionTool,
    JsonSchema,
    ResponseBody,
)
from gateway.speech import HeardCall, Signature


class OutputTextObject(TypedDict):
    type: Literal["output_text"]
    text: str
    annotations: list[Annotation]
    logprobs: list[TokenLogprob]


class MessageObject(TypedDict):
    type: Literal["message"]
    id: str
    status: str
    role: Literal["assistant"]
    content: list[OutputTextObject]


class CallObject(TypedDict):
    type: Literal["function_call"]
    id: str
    call_id: str
    name: str
    arguments: str
    status: str


class SearchResultObject(TypedDict):
    file_id: str
    filename: str
    score: float
    text: str
    attributes: None


class SearchCallObject(TypedDict):
    type: Literal["file_search_call"]
    id: str
    status: str
    queries: list[str]
    results: list[SearchResultObject] | None


OutputObject = MessageObject | CallObject | SearchCallObject


class CachedDetails(TypedDict):
    cached_tokens: int


class ReasoningDetails(TypedDict):
    reasoning_tokens: int


class ResponseUsage(TypedDict):
    input_tokens: int
    input_tokens_details: CachedDetails
    output_tokens: int
    output_tokens_details: ReasoningDetails
    total_tokens: int


class IncompleteDetails(TypedDict):
    reason: str


class ResponseError(TypedDict):
    code: str
    message: str


class ReasoningObject(TypedDict):
    effort: str | None
    summary: None


class ResponseObject(TypedDict):
    id: str
    object: Literal["response"]
    created_at: int
    completed_at: int | None
    status: str
    background: bool
    error: ResponseError | None
    incomplete_details: IncompleteDetails | None
    instructions: str | None
    max_output_tokens: int | None
    max_tool_calls: None
    model: str
    output: list[OutputObject]
    parallel_tool_calls: bool
    previous_response_id: str | None
    prompt_cache_key: str | None
    reasoning: ReasoningObject
    safety_identifier: str | None
    service_tier: str
    store: bool
    temperature: float
    top_p: float
    presence_penalty: float
    frequency_penalty: float
    top_logprobs: int
    text: dict[str, object]
    tool_choice: str | dict[str, object]
    tools: list[dict[str, object]]
    truncation: Literal["disabled"]
    usage: ResponseUsage | None
    user: str | None
    metadata: dict[str, str]
    ringway: NotRequired[RingwayObject]


class ResponseDeleted(TypedDict):
    id: str
    object: Literal["response"]
    deleted: bool


class InputItemList(TypedDict):
    object: Literal["list"]
    data: list[dict[str, object]]
    first_id: str | None
    last_id: str | None
    has_more: bool


INCOMPLETE = {
    FinishReason.LENGTH: "max_output_tokens",
    FinishReason.CONTENT_FILTER: "content_filter",
}
"""Why an answer ended that is not complete."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResponseWriter:
    """Spells the parts of one response. Ids of items follow from the response's own."""

    body: ResponseBody
    signature: Signature

    @property
    def suffix(self) -> str:
        return self.signature.id.removeprefix("resp_")

    def begun(self) -> ResponseObject:
        """The response before anything was said."""
        body, signature = self.body, self.signature
        return ResponseObject(
            id=signature.id,
            object="response",
            created_at=signature.created,
            completed_at=None,
            status="in_progress",
            background=False,
            error=None,
            incomplete_details=None,
            instructions=body.instructions,
            max_output_tokens=body.max_output_tokens,
            max_tool_calls=None,
            model=signature.model,
            output=[],
            parallel_tool_calls=body.parallel_tool_calls is not False,
            previous_response_id=body.previous_response_id,
            prompt_cache_key=body.prompt_cache_key,
            reasoning=ReasoningObject(
                effort=body.reasoning.effort if body.reasoning else None, summary=None
            ),
            safety_identifier=body.safety_identifier,
            service_tier=signature.service_tier,
            store=body.store is not False,
            temperature=1.0 if body.temperature is None else body.temperature,
            top_p=1.0 if body.top_p is None else body.top_p,
            presence_penalty=0.0,
            frequency_penalty=0.0,
            top_logprobs=body.top_logprobs or 0,
            text=_text_object(body),
            tool_choice=_choice_object(body),
            tools=[_tool_object(tool) for tool in body.tools or ()],
            truncation="disabled",
            usage=None,
            user=body.user,
            metadata=dict(body.metadata or {}),
        )

    def ended(self, output: Sequence[OutputObject], end: Answered) -> ResponseObject:
        response = self.begun()
        cause = INCOMPLETE.get(end.reason)
        seconds = end.facts.timing_ms.get("total", 0.0) / 1000
        response["status"] = status_of(end.reason)
        response["completed_at"] = None if cause else int(self.signature.created + seconds)
        response["incomplete_details"] = IncompleteDetails(reason=cause) if cause else None
        response["output"] = list(output)
        response["usage"] = response_usage(end.usage)
        response["ringway"] = ringway_object(end.facts, self.signature.policy_version)
        return response

    def failed(self, output: Sequence[OutputObject], error: ResponseError) -> ResponseObject:
        response = self.begun()
        response["status"] = "failed"
        response["error"] = error
        response["output"] = list(output)
        return response

    def search_call(
        self, query: str, found: Sequence[FoundPassage], status: str = "completed"
    ) -> SearchCallObject:
        shows = RESULTS in (self.body.include or ())
        return SearchCallObject(
            type="file_search_call",
            id=f"fs_{self.suffix}",
            status=status,
            queries=[query],
            results=[_result_object(one) for one in found] if shows else None,
        )

    def message(
        self, text: str, tokens: Sequence[SpelledToken], end: Answered | None
    ) -> MessageObject:
        """Without its end it is one that has just begun."""
        content = self.text_part(text, tokens, end)
        return MessageObject(
            type="message",
            id=f"msg_{self.suffix}",
            status="in_progress" if end is None else status_of(end.reason),
            role="assistant",
            content=[] if end is None else [content],
        )

    def text_part(
        self, text: str, tokens: Sequence[SpelledToken], end: Answered | None
    ) -> OutputTextObject:
        citations = () if end is None else end.facts.citations
        return OutputTextObject(
            type="output_text",
            text=text,
            annotations=annotations_of(text, citations),
            logprobs=logprob_list(tokens),
        )

    def call(self, index: int, call: HeardCall, end: Answered | None) -> CallObject:
        return CallObject(
            type="function_call",
            id=f"fc_{self.suffix}_{index}",
            call_id=call.id,
            name=call.name,
            arguments=call.arguments,
            status="in_progress" if end is None else status_of(end.reason),
        )


def status_of(reason: FinishReason) -> str:
    return "incomplete" if reason in INCOMPLETE else "completed"


def logprob_list(tokens: Sequence[SpelledToken]) -> list[TokenLogprob]:
    spelled = logprobs_object(tokens)
    return [] if spelled is None else spelled["content"]


def response_usage(usage: Usage) -> ResponseUsage:
    return ResponseUsage(
        input_tokens=usage.prompt_tokens,
        input_tokens_details=CachedDetails(cached_tokens=usage.cached_tokens),
        output_tokens=usage.completion_tokens,
        output_tokens_details=ReasoningDetails(reasoning_tokens=usage.reasoning_tokens),
        total_tokens=usage.prompt_tokens + usage.completion_tokens,
    )


def _result_object(found: FoundPassage) -> SearchResultObject:
    return SearchResultObject(
        file_id=found.file_id,
        filename=found.filename,
        score=round(found.score, 6),
        text=found.text,
        attributes=None,
    )


def _text_object(body: ResponseBody) -> dict[str, object]:
    told: dict[str, object] = {"format": _format_object(body)}
    if body.text is not None and body.text.verbosity is not None:
        told["verbosity"] = body.text.verbosity
    return told


def _format_object(body: ResponseBody) -> Mapping[str, object]:
    wanted = body.text.format if body.text else None
    if wanted is None:
        return {"type": "text"}
    if isinstance(wanted, JsonSchema):
        return {
            "type": "json_schema",
            "name": wanted.name,
            "description": wanted.description,
            "schema": wanted.schema_,
            "strict": bool(wanted.strict),
        }
    return {"type": wanted.type}


def _choice_object(body: ResponseBody) -> str | dict[str, object]:
    choice = body.tool_choice
    if choice is None or isinstance(choice, str):
        return choice or "auto"
    return choice.model_dump()


def _tool_object(tool: FunctionTool | FileSearchTool) -> dict[str, object]:
    """With what the caller left open, as OpenAI fills it in."""
    if isinstance(tool, FileSearchTool):
        ranking = tool.ranking_options
        return {
            "type": "file_search",
            "vector_store_ids": tool.vector_store_ids,
            "max_num_results": tool.max_num_results,
            "filters": tool.filters.model_dump() if tool.filters else None,
            "ranking_options": {
                "ranker": (ranking.ranker if ranking else None) or "auto",
                "score_threshold": (ranking.score_threshold if ranking else None) or 0.0,
            },
        }
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": bool(tool.strict),
    }
