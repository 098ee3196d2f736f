"""Which replica reads a prompt: pure functions over loads and keys; no clock, no I/O.

A session stays with one replica, whose cache knows its prefix, by rendezvous hashing: no state,
and a replica that goes away moves only its own sessions. A replica that is much busier than the
least busy one is passed over.
"""

import hashlib
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PREFIX_TOKENS = 1024
"""Prompts that agree this far share a replica; shorter ones go where least is to be done."""

PINNED_SLACK_TOKENS = 16_384
"""How much busier than the least busy a pinned replica may be; twice the prompt if that is more."""


@dataclass(frozen=True, slots=True)
class Affinity:
    """What ties a prompt to a replica, and how much busier than others it may be, in tokens."""

    key: bytes
    slack_tokens: int


def affinity(request_id: str, cache_key: str, prompt_ids: "array[int]") -> Affinity:
    """`cache_key` is tenant and session, divided by a slash."""
    tenant, _, session = cache_key.partition("/")
    slack = max(PINNED_SLACK_TOKENS, 2 * len(prompt_ids))
    if session:
        return Affinity(_digest(b"session", cache_key.encode()), slack)
    if len(prompt_ids) >= PREFIX_TOKENS:
        prefix = prompt_ids[:PREFIX_TOKENS].tobytes()
        return Affinity(_digest(b"prefix", tenant.encode(), prefix), slack)
    return Affinity(_digest(b"request", request_id.encode()), 0)


def order(key: bytes, names: Sequence[str]) -> list[str]:
    """All names, the key's own first; without one of them the others keep their order."""
    return sorted(names, key=lambda name: _digest(key, name.encode()))


def choose(waiting: Mapping[str, int], tie: Affinity) -> str:
    """`waiting` holds the prefill tokens that each replica has still to read."""
    least = min(waiting.values())
    names = order(tie.key, list(waiting))
    return next(name for name in names if waiting[name] <= least + tie.slack_tokens)


def _digest(*parts: bytes) -> bytes:
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        digest.update(len(part).to_bytes(8, "big"))
        digest.update(part)
    return digest.digest()
