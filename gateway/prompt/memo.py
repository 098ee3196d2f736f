"""A bounded memory of token ids by text digest, shared by threads; least recently used goes."""

import hashlib
from array import array
from collections import OrderedDict
from threading import Lock


class TokenMemo:
    def __init__(self, max_tokens: int) -> None:
        self._max_tokens = max_tokens
        self._num_tokens = 0
        self._entries: OrderedDict[bytes, array[int]] = OrderedDict()
        self._lock = Lock()

    @staticmethod
    def key(raw: bytes) -> bytes:
        """SHA-256 because processors have instructions for it; lets the GIL go."""
        return hashlib.sha256(raw).digest()

    def get(self, key: bytes) -> "array[int] | None":
        with self._lock:
            ids = self._entries.get(key)
            if ids is not None:
                self._entries.move_to_end(key)
            return ids

    def put(self, key: bytes, ids: "array[int]") -> None:
        with self._lock:
            if key in self._entries or len(ids) > self._max_tokens:
                return
            self._entries[key] = ids
            self._num_tokens += len(ids)
            while self._num_tokens > self._max_tokens:
                _, dropped = self._entries.popitem(last=False)
                self._num_tokens -= len(dropped)

    def __len__(self) -> int:
        return len(self._entries)
