import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engines.api import Grammar, GrammarKind, Sampling
from engines.gang.messages import (
    Close,
    Closed,
    FromRank,
    Hello,
    Join,
    Open,
    Ready,
    StepFailed,
    ToRank,
    decode_from_rank,
    decode_to_rank,
    encode,
    pack_ids,
    unpack_ids,
)
from engines.gang.sequence import sampling_spec


@pytest.mark.parametrize(
    "message",
    [
        Hello(rank=1, epoch=-1, pid=7, token="t", offer="tcp://10.0.0.1:4000"),
        Ready(rank=0, peak_rss_bytes=5, offer="tcp://a:1", model_digest="d"),
        Closed(rank=1, sequence_id=9),
        StepFailed(step_id=3, rank=1, error="out of memory", too_large=True),
    ],
)
def test_what_a_rank_says_arrives_as_it_was(message: FromRank) -> None:
    assert decode_from_rank(encode(message)) == message


@pytest.mark.parametrize(
    "message",
    [
        Join(rendezvous="file:///x", config=b"{}"),
        Close(sequence_id=4),
        Open(
            sequence_id=1,
            hierarchical=False,
            prompt_ids=pack_ids([1, 2]),
            replay_ids=b"",
            max_new_tokens=3,
            question_start=0,
            document_starts=[],
            sampling=sampling_spec(Sampling(), 5),
            grammar=Grammar(GrammarKind.JSON_SCHEMA, "{}"),
        ),
    ],
)
def test_what_a_supervisor_says_arrives_as_it_was(message: ToRank) -> None:
    assert decode_to_rank(encode(message)) == message


def test_neither_side_takes_the_others_words() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_to_rank(encode(Closed(rank=0, sequence_id=1)))
    with pytest.raises(msgspec.DecodeError):
        decode_from_rank(encode(Join(rendezvous="tcp://a:1")))


@given(st.lists(st.integers(-(2**31), 2**31 - 1)))
def test_token_ids_survive_packing(ids: list[int]) -> None:
    assert unpack_ids(pack_ids(ids)).tolist() == ids
    assert len(pack_ids(ids)) == 4 * len(ids)
