"""An embedder that remembers on disk, by digest, what it has embedded in earlier runs."""

import hashlib
import sqlite3
from array import array
from collections.abc import Sequence
from pathlib import Path

from retrieval.api import Embedder


class KeptVectors:
    """An `Embedder`. Another model is another file."""

    def __init__(self, inner: Embedder, database: sqlite3.Connection) -> None:
        self._inner = inner
        self._database = database
        database.execute("create table if not exists vectors (digest blob primary key, raw blob)")

    @classmethod
    def in_folder(cls, folder: Path, inner: Embedder) -> "KeptVectors":
        folder.mkdir(parents=True, exist_ok=True)
        name = hashlib.sha256(inner.identity.encode()).hexdigest()[:16]
        return cls(inner, sqlite3.connect(folder / f"{name}.db"))

    @property
    def identity(self) -> str:
        return self._inner.identity

    @property
    def window_tokens(self) -> int:
        return self._inner.window_tokens

    @property
    def dimension(self) -> int:
        return self._inner.dimension

    async def embed(self, texts: Sequence[str]) -> Sequence[Sequence[float]]:
        digests = [hashlib.sha256(text.encode()).digest() for text in texts]
        texts_by_digest = dict(zip(digests, texts, strict=True))
        found: dict[bytes, Sequence[float]] = {
            digest: kept for digest in texts_by_digest if (kept := self._read(digest)) is not None
        }
        missing = [digest for digest in texts_by_digest if digest not in found]
        vectors = await self._inner.embed([texts_by_digest[digest] for digest in missing])
        for digest, vector in zip(missing, vectors, strict=True):
            found[digest] = vector
            self._database.execute(
                "insert into vectors values (?, ?)", (digest, array("f", vector).tobytes())
            )
        self._database.commit()
        return [found[digest] for digest in digests]

    def _read(self, digest: bytes) -> "array[float] | None":
        row = self._database.execute(
            "select raw from vectors where digest = ?", (digest,)
        ).fetchone()
        return array("f", row[0]) if row else None
