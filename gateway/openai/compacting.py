"""The body and the answer of POST /v1/responses/compact as OpenAI defines them."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, TypedDict

from pydantic import Field, model_validator

from gateway.api import UnsupportedParameter
from gateway.long_json import ObjectReader
from gateway.openai.chat import FidelityName, Tier
from gateway.openai.compaction import CompactionObject, pack
from gateway.openai.objects import RingwayObject, ringway_object
from gateway.openai.parse import decode_object, validated
from gateway.openai.responses_bodies import ResponseBody, refuse_unsupported
from gateway.openai.responses_items import InputItem, MessageItem, listed
from gateway.openai.responses_objects import ResponseUsage, response_usage
from gateway.openai.wire import Wire
from gateway.speech import Heard, Signature

REFUSED = ("image", "prompt_cache_options", "prompt_cache_retention")
"""Known to OpenAI, not served here: any value but null is refused."""

INSTRUCTION = (
    "Write a summary of this conversation, from which it can be continued by somebody who sees the "
    "user's messages but not the answers. Keep every fact, decision, name, number, date and open "
    "question that the answers and tool results hold. Do not answer and do not address anybody."
)


class CompactBody(Wire):
    """Null means "not given"."""

    model: str = Field(min_length=1)
    input: (
        Annotated[str, Field(min_length=1)] | Annotated[list[InputItem], Field(min_length=1)] | None
    ) = None
    instructions: str | None = None
    previous_response_id: Annotated[str, Field(min_length=1, max_length=128)] | None = None
    prompt_cache_key: str | None = None
    service_tier: Tier | None = None
    fidelity: FidelityName | None = None
    allow_fallback: bool | None = None

    @model_validator(mode="after")
    def _has_a_conversation(self) -> "CompactBody":
        if self.input is None and self.previous_response_id is None:
            raise ValueError(
                "input|or 'previous_response_id' must be given|missing_required_parameter"
            )
        return self

    @property
    def items(self) -> list[InputItem]:
        if isinstance(self.input, str):
            return [MessageItem(role="user", content=self.input)]
        return self.input or []

    def asking(self) -> ResponseBody:
        """The request that a model answers with the summary."""
        last = MessageItem(role="user", content=INSTRUCTION)
        return ResponseBody(
            model=self.model,
            input=[*self.items, last],
            instructions=self.instructions,
            previous_response_id=self.previous_response_id,
            store=False,
            prompt_cache_key=self.prompt_cache_key,
            service_tier=self.service_tier,
            fidelity=self.fidelity,
            allow_fallback=self.allow_fallback,
        )


class CompactedResponse(TypedDict):
    """`output` has the user's messages, then one compaction item."""

    id: str
    object: Literal["response.compaction"]
    created_at: int
    output: list[dict[str, object] | CompactionObject]
    usage: ResponseUsage
    ringway: RingwayObject


def parse_compact(raw: bytes | ObjectReader) -> CompactBody:
    """Raises InvalidRequest or UnsupportedParameter, naming the first thing that is wrong."""
    body = decode_object(raw)
    for name in REFUSED:
        if body.get(name) is not None:
            raise UnsupportedParameter(name)
    refuse_unsupported({name: body[name] for name in ("input",) if name in body})
    known: Mapping[str, object] = {k: v for k, v in body.items() if k not in REFUSED}
    return validated(known, CompactBody)


def compacted(items: Sequence[InputItem], heard: Heard, signature: Signature) -> CompactedResponse:
    """`items` are the whole conversation, oldest first."""
    suffix = signature.id.removeprefix("resp_")
    asked = [one for one in items if isinstance(one, MessageItem) and one.role == "user"]
    summary = CompactionObject(
        type="compaction",
        id=f"cmp_{suffix}",
        encrypted_content=pack(heard.choices[0].text.strip()),
    )
    return CompactedResponse(
        id=signature.id,
        object="response.compaction",
        created_at=signature.created,
        output=[*listed(asked, suffix), summary],
        usage=response_usage(heard.end.usage),
        ringway=ringway_object(heard.end.facts, signature.policy_version),
    )
