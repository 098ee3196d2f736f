"""How the text of a parsed file is kept in a blob, and read again. Knows no file's state."""

import zlib
from collections import OrderedDict

import msgspec

from ingest.blobs import BlobMissing, BlobStore
from ingest.parsing.parsed import Heading

COMPRESSION_LEVEL = 3


class KeptText(msgspec.Struct, frozen=True, kw_only=True):
    """`generation` says which run of the pipeline made the text; see `Parsed` for the rest."""

    generation: str
    text: str
    page_starts: list[int]
    outline: list[Heading]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(KeptText)


class TextStore:
    """One blob per file: zlib over msgpack."""

    def __init__(self, blobs: BlobStore) -> None:
        self._blobs = blobs

    async def put(self, file_id: str, kept: KeptText) -> None:
        packed = zlib.compress(_encoder.encode(kept), COMPRESSION_LEVEL)
        await self._blobs.put(text_key(file_id), packed)

    async def get(self, file_id: str) -> KeptText:
        """Raises BlobMissing."""
        packed = await self._blobs.get_whole(text_key(file_id))
        return _decoder.decode(zlib.decompress(packed))

    async def delete(self, file_id: str) -> None:
        """Idempotent."""
        await self._blobs.delete(text_key(file_id))


class CachedTexts:
    """A `retrieval.api.TextSource` over the kept texts, the last used ones in memory.

    A text is read again when it is not there yet; a deleted file's is dropped by `forget`.
    """

    def __init__(self, texts: TextStore, *, capacity_chars: int = 64_000_000) -> None:
        self._texts = texts
        self._capacity_chars = capacity_chars
        self._num_chars = 0
        self._cached: OrderedDict[str, str] = OrderedDict()

    async def text(self, document_id: str) -> str | None:
        cached = self._cached.get(document_id)
        if cached is not None:
            self._cached.move_to_end(document_id)
            return cached
        try:
            kept = await self._texts.get(document_id)
        except BlobMissing:
            return None
        self._remember(document_id, kept.text)
        return kept.text

    def forget(self, document_id: str) -> None:
        """Call whenever the kept text changed or went."""
        dropped = self._cached.pop(document_id, None)
        if dropped is not None:
            self._num_chars -= len(dropped)

    def _remember(self, document_id: str, text: str) -> None:
        self.forget(document_id)
        self._cached[document_id] = text
        self._num_chars += len(text)
        while self._num_chars > self._capacity_chars and len(self._cached) > 1:
            _, dropped = self._cached.popitem(last=False)
            self._num_chars -= len(dropped)


def upload_key(file_id: str) -> str:
    return f"uploads/{file_id}"


def text_key(file_id: str) -> str:
    return f"text/{file_id}"


def vectors_prefix(file_id: str) -> str:
    """Vectors that are kept for a file's chunks in vector stores lie under this."""
    return f"vectors/{file_id}/"
