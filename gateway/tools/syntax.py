"""How models write tool calls, and which way a chat template teaches; knows no parser.

Hermes and Qwen: `<tool_call>{"name": …, "arguments": {…}}</tool_call>`, one pair per call.
Llama 3.1: the answer is `{"name": …, "parameters": {…}}`, perhaps behind `<|python_tag|>`.
Mistral: `[TOOL_CALLS] [{"name": …, "arguments": {…}}, …]`.
A template that knows no tools is taught Hermes' way in the system message.
"""

import hashlib
import re
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

NINE: Final = re.compile(r"[A-Za-z0-9]{9}")


class CallFormat(StrEnum):
    HERMES = "hermes"
    LLAMA = "llama"
    MISTRAL = "mistral"


@dataclass(frozen=True, slots=True, kw_only=True)
class CallSyntax:
    """`opener` begins a group of calls, `closer` ends it; any of `between` stands before a call.

    With `bare` the answer itself may begin with the object, without the opener. `key` names the
    arguments.
    """

    format: CallFormat
    opener: str
    closer: str
    between: str
    key: str
    bare: bool = False

    @property
    def marks(self) -> tuple[str, ...]:
        """Texts that may be special tokens of the model and yet belong to what it says."""
        return tuple(mark for mark in (self.opener, self.closer) if len(mark) > 1)


HERMES: Final = CallSyntax(
    format=CallFormat.HERMES,
    opener="<tool_call>",
    closer="</tool_call>",
    between="",
    key="arguments",
)
LLAMA: Final = CallSyntax(
    format=CallFormat.LLAMA,
    opener="<|python_tag|>",
    closer="",
    between=";",
    key="parameters",
    bare=True,
)
MISTRAL: Final = CallSyntax(
    format=CallFormat.MISTRAL,
    opener="[TOOL_CALLS]",
    closer="]",
    between="[,",
    key="arguments",
)


def knows_tools(template: str) -> bool:
    return re.search(r"\btools\b", template) is not None


def syntax_of(template: str) -> CallSyntax:
    """Chosen by the template's own words; Hermes where they say nothing."""
    if not knows_tools(template):
        return HERMES
    if "[TOOL_CALLS]" in template:
        return MISTRAL
    if "<tool_call>" in template:
        return HERMES
    is_llama = "<|python_tag|>" in template or '"parameters"' in template
    return LLAMA if is_llama else HERMES


def spoken_id(call_id: str, syntax: CallSyntax) -> str:
    """The id of an earlier call as the template takes it: Mistral's insist on nine letters."""
    if syntax.format is not CallFormat.MISTRAL or NINE.fullmatch(call_id):
        return call_id
    return hashlib.sha256(call_id.encode()).hexdigest()[:9]


def new_call_id(answer_id: str, index: int, call: int, syntax: CallSyntax) -> str:
    """Different for every call of every answer, and the same when the answer is heard again."""
    digest = hashlib.sha256(f"{answer_id}/{index}/{call}".encode()).hexdigest()
    return digest[:9] if syntax.format is CallFormat.MISTRAL else f"call_{digest[:24]}"
