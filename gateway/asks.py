"""A chat request as the gateway understands it: values only, free of any wire format."""

from array import array
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from engines.api import Sampling
from gateway.api import Fidelity
from gateway.tenancy.api import Tab
from ingest.api import InlineDocument
from retrieval.api import Filter


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    """A call that an earlier answer made. `arguments` is its text, usually a JSON object."""

    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A picture by its URL, which may hold its bytes; `detail` is how closely to look.

    It stands before the last `tail_chars` characters of its message. `where` names its part in
    the caller's body.
    """

    url: str
    where: str
    detail: str | None = None
    tail_chars: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One message. `file_ids` were attached to it; `text` joins its text parts by newlines."""

    role: str
    text: str
    file_ids: tuple[str, ...] = ()
    images: tuple[Image, ...] = ()
    name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A function that the model may call. `spec` is OpenAI's object of it, as the caller sent it;
    `strict` calls hold to the schema of the parameters."""

    name: str
    parameters: Mapping[str, object]
    spec: Mapping[str, object]
    strict: bool = False


class ToolMode(StrEnum):
    NONE = "none"
    AUTO = "auto"
    REQUIRED = "required"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """The functions on offer, and whether one must be called; `forced` names which."""

    offered: tuple[Tool, ...] = ()
    mode: ToolMode = ToolMode.AUTO
    forced: str | None = None
    parallel: bool = True

    @property
    def callable(self) -> tuple[Tool, ...]:
        """Those that the answer may call."""
        if self.mode is ToolMode.NONE:
            return ()
        return tuple(tool for tool in self.offered if self.forced in (None, tool.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonFormat:
    """The answer is JSON: any object, or what `schema` describes. `spec` is OpenAI's object."""

    spec: Mapping[str, object]
    schema: Mapping[str, object] | None = None


@dataclass(frozen=True, slots=True)
class RawPrompt:
    """A prompt that is no conversation: read as it stands, without the chat template.

    Special tokens in a text are control, since its author wrote the template's part too.
    """

    content: "str | array[int]"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreScope:
    """What of the vector stores is searched; a `top_k` of None is the policy's."""

    filter: Filter | None = None
    top_k: int | None = None
    score_threshold: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """`allow_fallback` is already resolved: true for `auto` unless the caller said otherwise.

    `vector_store_ids` are searched beside what came with the request. `cache_key` is the
    caller's name for a session whose KV is reused; it means nothing outside `tenant`.
    """

    model: str
    turns: tuple[Turn, ...]
    documents: tuple[InlineDocument, ...] = ()
    vector_store_ids: tuple[str, ...] = ()
    fidelity: Fidelity = Fidelity.AUTO
    allow_fallback: bool = True
    max_new_tokens: int | None = None
    sampling: Sampling = field(default_factory=Sampling)
    stop: tuple[str, ...] = ()
    service_tier: str = "default"
    stream: bool = False
    include_usage: bool = False
    metadata: Mapping[str, str] = field(default_factory=dict)
    tenant: str = "local"
    cache_key: str = ""
    store_scope: StoreScope = field(default_factory=StoreScope)
    n: int = 1
    tools: Tools = field(default_factory=Tools)
    json_format: JsonFormat | None = None
    raw: RawPrompt | None = None
    """Instead of `turns`, which are then empty."""
    passed: Mapping[str, object] = field(default_factory=dict)
    """OpenAI's fields that only some engines know, by name; the others refuse them."""
    end_user: str = ""
    """Whom the caller asks for, by the caller's name for them."""
    tab: Tab | None = field(default=None, compare=False, repr=False)
    """On whose limits it goes; None: on nobody's."""

    @property
    def images(self) -> tuple[Image, ...]:
        return tuple(image for turn in self.turns for image in turn.images)

    @property
    def texts(self) -> list[str]:
        """All text that came in the body; attached files are not in it."""
        texts = [turn.text for turn in self.turns] + [doc.text for doc in self.documents]
        if self.raw is not None and isinstance(self.raw.content, str):
            texts.append(self.raw.content)
        return texts
