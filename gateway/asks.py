"""A chat request as the gateway understands it: values only, free of any wire format."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from engines.api import Sampling
from gateway.api import Fidelity
from ingest.api import InlineDocument


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One message. `file_ids` were attached to it; `text` joins its text parts by newlines."""

    role: str
    text: str
    file_ids: tuple[str, ...] = ()
    name: str | None = None


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

    @property
    def num_text_bytes(self) -> int:
        """Bytes of all text that came in the body; attached files are not in it."""
        texts = [turn.text for turn in self.turns] + [doc.text for doc in self.documents]
        return sum(len(text) if text.isascii() else len(text.encode()) for text in texts)
