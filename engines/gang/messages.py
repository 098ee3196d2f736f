"""Every message between a gang's supervisor and its ranks, and their encoding.

Tagged msgpack, never pickle: a rank on another host must not be able to run code here.
Frames on the socket are a 4-byte big-endian length and one encoded message.
The supervisor sends the same messages in the same order to every rank; only it decides.
"""

import sys
from array import array
from collections.abc import Iterable

import msgspec

from engines.api import Grammar

NO_TOKEN = -1
"""Sampled where the grammar of an answer lets nothing follow what it holds."""


def pack_ids(ids: "Iterable[int]") -> bytes:
    """Token ids as little-endian int32."""
    packed = array("i", ids)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def unpack_ids(packed: bytes) -> "array[int]":
    """Raises ValueError when the bytes are no whole number of int32."""
    ids = array("i")
    ids.frombytes(packed)
    if sys.byteorder == "big":
        ids.byteswap()
    return ids


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Base of all messages; the class name is the tag."""


# Rank to supervisor, once.


class Hello(Message, frozen=True, kw_only=True, tag=True):
    """A rank's first words. `token` is the gang's secret; a wrong one is hung up on.

    `offer` is a place where this rank could receive the others, such as tcp://host:port; ranks
    that share a host with their supervisor leave it empty.
    """

    rank: int
    epoch: int
    pid: int
    token: str
    offer: str = ""


class Ready(Message, frozen=True, kw_only=True, tag=True):
    """The answer to Join: the model is loaded and the process group is up.

    `offer` is a place for the next meeting. `model_digest` is equal on ranks with equal models.
    """

    rank: int
    peak_rss_bytes: int
    offer: str = ""
    model_digest: str = ""


# Supervisor to ranks, in order.


class Join(Message, frozen=True, kw_only=True, tag=True):
    """Meet the other ranks at `rendezvous`, torch.distributed's init_method; answered by Ready.

    The first message of all. Sent again after a step that was too large for one rank: then every
    rank leaves the old process group, forgets what that step did, and keeps model and KV.
    `config` is the supervisor's EngineConfig, for ranks that were started without one.
    """

    rendezvous: str
    config: bytes = b""


class SamplingSpec(msgspec.Struct, frozen=True, kw_only=True):
    temperature: float
    top_p: float
    top_k: int
    seed: int
    presence_penalty: float
    frequency_penalty: float
    logit_bias: dict[int, float]
    top_logprobs: int | None


class Open(Message, frozen=True, kw_only=True, tag=True):
    """Make room for a sequence: KV for its prompt and `max_new_tokens`, known at admission.

    `prompt_ids` are little-endian int32. `replay_ids` are tokens already sent to the client by
    an earlier epoch (same encoding); they are prefilled after the prompt and never sampled.
    `max_new_tokens` counts the replayed tokens too. `grammar` is one that the supervisor has seen
    compiled; replayed tokens obey it. Finished chunks may be taken from earlier sequences of the
    same `cache_key`, and stay for later ones; without one they go with the sequence.
    """

    sequence_id: int
    hierarchical: bool
    prompt_ids: bytes
    replay_ids: bytes
    max_new_tokens: int
    question_start: int
    document_starts: list[int]
    sampling: SamplingSpec
    grammar: Grammar | None = None
    cache_key: str = ""


class Prefill(Message, frozen=True, kw_only=True, tag=True):
    """Full attention: read tokens [start, stop) of the sequence on the ring.

    The sequence is prompt + replay; or, of a hierarchical one that was asked, shortlist + replay.
    When `stop` is its end, one token is sampled and returned.
    """

    step_id: int
    sequence_id: int
    start: int
    stop: int


class Encode(Message, frozen=True, kw_only=True, tag=True):
    """Hierarchical level 1: encode chunks [first, last) of the sequence's chunk plan."""

    step_id: int
    sequence_id: int
    first: int
    last: int


class Ask(Message, frozen=True, kw_only=True, tag=True):
    """Hierarchical level 2: the question chooses chunks, returned as `spans`.

    Anchor, spans in text order and question are the shortlist, which Prefill then reads anew.
    """

    step_id: int
    sequence_id: int


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    sequence_id: int
    seed: int


class Fork(Message, frozen=True, kw_only=True, tag=True):
    """Copies of a sequence that has just read its prompt, each with a seed of its own.

    The first token of every branch is sampled and returned. Sent before the sequence decodes.
    """

    step_id: int
    sequence_id: int
    branches: list[Branch]


class Decode(Message, frozen=True, kw_only=True, tag=True):
    """One more token for each sequence, in one forward pass."""

    step_id: int
    sequence_ids: list[int]


class Cancel(Message, frozen=True, kw_only=True, tag=True):
    """Sent out of order: the running step of this sequence ends at the next layer boundary."""

    sequence_id: int


class Close(Message, frozen=True, kw_only=True, tag=True):
    """Free the sequence's KV; answered by Closed. Unknown ids have nothing to free."""

    sequence_id: int


class Stop(Message, frozen=True, kw_only=True, tag=True):
    """Leave the process group and exit 0."""


# Rank to supervisor.


class Closed(Message, frozen=True, kw_only=True, tag=True):
    """This rank has let go of the sequence."""

    rank: int
    sequence_id: int


# Rank to supervisor, one per step.


class Logprob(msgspec.Struct, frozen=True, array_like=True):
    id: int
    logprob: float


class Sampled(msgspec.Struct, frozen=True, kw_only=True):
    """`token_id` may be NO_TOKEN, which ends the request."""

    sequence_id: int
    token_id: int
    logprob: float | None = None
    top: list[Logprob] = []


class Span(msgspec.Struct, frozen=True, array_like=True):
    start: int
    stop: int
    mass: float


class StepDone(Message, frozen=True, kw_only=True, tag=True):
    """The step ran. All ranks report the same `sampled`; a difference ends the gang.

    `aborted`: a Cancel arrived during the step; its sequence must be closed.
    `spans` and `recall` are set by Ask on every rank. `cached_tokens` is set by Encode: those of
    this rank's chunks that were not read for it. `turns_s` is set by a Prefill on a ring: how long
    each turn took this rank, summed over layers.
    """

    step_id: int
    rank: int
    seconds: float
    sampled: list[Sampled] = []
    aborted: bool = False
    spans: list[Span] = []
    recall: float | None = None
    cached_tokens: int = 0
    turns_s: list[float] = []


class StepFailed(Message, frozen=True, kw_only=True, tag=True):
    """The step raised, and this rank has left the process group so that no other waits for it.

    `too_large`: memory for the step could not be had. Then, and only then, the ranks are asked to
    Join again; else the gang is replaced. `step_id` is 0 when the rank failed before its first
    step, while it loaded.
    """

    step_id: int
    rank: int
    error: str
    too_large: bool = False


Step = Prefill | Encode | Ask | Fork | Decode
ToRank = Join | Open | Prefill | Encode | Ask | Fork | Decode | Cancel | Close | Stop
FromRank = Hello | Ready | Closed | StepDone | StepFailed

_encoder = msgspec.msgpack.Encoder()
_to_rank = msgspec.msgpack.Decoder(ToRank)
_from_rank = msgspec.msgpack.Decoder(FromRank)


def encode(message: ToRank | FromRank) -> bytes:
    return _encoder.encode(message)


def decode_to_rank(body: bytes) -> ToRank:
    """Raises msgspec.DecodeError for anything that is not a supervisor's message."""
    return _to_rank.decode(body)


def decode_from_rank(body: bytes) -> FromRank:
    """Raises msgspec.DecodeError for anything that is not a rank's message."""
    return _from_rank.decode(body)
