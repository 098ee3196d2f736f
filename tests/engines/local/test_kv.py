"""The room that is made for a sequence when it is opened."""

from hypothesis import given
from hypothesis import strategies as st

from engines.local.kv import ShardedKv, shard_capacity
from engines.local.placement import deal, paged, zigzag

CHUNK = 64


@given(
    num_ranks=st.integers(1, 6),
    num_prompt=st.integers(1, 900),
    num_new=st.integers(1, 120),
    num_streams=st.integers(0, 8),
    num_replayed=st.integers(0, 60),
)
def test_no_shard_outgrows_the_room_made_for_prompt_and_answer(
    num_ranks: int, num_prompt: int, num_new: int, num_streams: int, num_replayed: int
) -> None:
    """So nothing is copied while a sequence grows, whoever else is served beside it."""
    least = 2 * num_ranks
    chunk = CHUNK if num_streams == 0 else max(least, (CHUNK - num_streams) // least * least)
    num_read = num_prompt + min(num_replayed, num_new)
    total = num_prompt + num_new
    capacity = shard_capacity(total, num_ranks, num_read // CHUNK + 1)
    kv = ShardedKv(rank=0, num_ranks=num_ranks, capacity=capacity)
    while kv.stop < num_prompt:
        stop = min(kv.stop + chunk, num_prompt)
        place = deal if stop - kv.stop < least else zigzag
        kv.commit(place(kv.stop, stop, num_ranks))
    while kv.stop < total:
        kv.commit(paged(kv.stop, num_ranks))
    assert max(sum(run.length for run in runs) for runs in kv.shares) <= capacity


def test_a_kv_seen_ahead_shares_its_memory_and_leaves_the_present_as_it_is() -> None:
    kv = ShardedKv(rank=0, num_ranks=2, capacity=40)
    kv.commit(zigzag(0, 10, 2))
    later = kv.ahead(paged(10, 2))
    assert (kv.stop, later.stop) == (10, 11)
    assert later.store is kv.store
    assert later.num_held == kv.num_held + 1
