"""What is kept, what makes way, and what is never mistaken for something else."""

from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from engines.local.segments.int8 import Int8Keys, relative_error, to_int8
from engines.local.segments.segment import SegmentName, pack_segment, unpack_segment
from engines.local.segments.store import SegmentStore, Tier

IDS = torch.arange(20, dtype=torch.int32)


def keys_of(seed: int = 0, num_keys: int = 20) -> Int8Keys:
    generator = torch.Generator().manual_seed(seed)
    return to_int8(torch.randn(3, 2, num_keys, 16, generator=generator))


def name_of(shelf: str, ids_T: Tensor = IDS) -> SegmentName:
    return SegmentName.of(shelf, ids_T)


SIZE = len(pack_segment(name_of("a"), IDS, keys_of()))


def store_of(tmp_path: Path, *budgets: int) -> SegmentStore:
    return SegmentStore.open([Tier(tmp_path / f"tier-{i}", b) for i, b in enumerate(budgets)])


def same(given: Int8Keys | None, wanted: Int8Keys) -> bool:
    return (
        given is not None
        and torch.equal(given.key_LGSD, wanted.key_LGSD)
        and torch.equal(given.scale_LGD, wanted.scale_LGD)
    )


@given(spread=st.floats(1e-3, 1e3), seed=st.integers(0, 99), num_keys=st.integers(1, 40))
def test_int8_loses_half_a_step_of_each_channel_at_most(
    spread: float, seed: int, num_keys: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    exact_LGSD = torch.randn(2, 3, num_keys, 8, generator=generator) * spread
    exact_LGSD[..., 0] *= 50  # as a few channels of real keys
    kept = to_int8(exact_LGSD)
    lost_LGSD = (kept.restored() - exact_LGSD).abs()
    assert bool((lost_LGSD <= 0.5001 * kept.scale_LGD[:, :, None]).all())
    assert relative_error(exact_LGSD, kept) < 0.01


def test_keys_come_back_and_outlive_the_store(tmp_path: Path) -> None:
    assert store_of(tmp_path, 10 * SIZE).put(name_of("a"), IDS, keys_of())
    assert same(store_of(tmp_path, 10 * SIZE).get(name_of("a"), IDS), keys_of())


def test_memory_is_filled_first_and_then_disk(tmp_path: Path) -> None:
    store = store_of(tmp_path, SIZE, SIZE)
    for seed in (0, 1):
        assert store.put(name_of("a", IDS + seed), IDS + seed, keys_of(seed))
    assert [len(list((tmp_path / f"tier-{i}").glob("*/*.kv"))) for i in (0, 1)] == [1, 1]
    assert all(
        same(store.get(name_of("a", IDS + seed), IDS + seed), keys_of(seed)) for seed in (0, 1)
    )


def test_the_shelf_that_was_used_longest_ago_goes_as_a_whole(tmp_path: Path) -> None:
    store = store_of(tmp_path, 4 * SIZE)
    for shelf in ("a", "b"):
        for seed in (0, 1):
            store.put(name_of(shelf, IDS + seed), IDS + seed, keys_of(seed))
    assert store.get(name_of("a"), IDS) is not None
    assert store.put(name_of("c"), IDS, keys_of())
    assert [store.get(name_of(shelf), IDS) is not None for shelf in "abc"] == [True, False, True]
    assert store.get(name_of("b", IDS + 1), IDS + 1) is None
    assert store.used_bytes == 3 * SIZE


def test_what_does_not_fit_beside_its_own_shelf_is_not_kept(tmp_path: Path) -> None:
    store = store_of(tmp_path, SIZE)
    assert store.put(name_of("a"), IDS, keys_of())
    assert not store.put(name_of("a", IDS + 1), IDS + 1, keys_of(1))
    assert same(store.get(name_of("a"), IDS), keys_of())


def test_what_is_mapped_stays_readable_when_its_shelf_goes(tmp_path: Path) -> None:
    store = store_of(tmp_path, SIZE)
    store.put(name_of("a"), IDS, keys_of())
    mapped = store.get(name_of("a"), IDS)
    store.drop("a")
    assert same(mapped, keys_of())
    assert (store.get(name_of("a"), IDS), store.used_bytes) == (None, 0)


@pytest.mark.parametrize("at", ["magic", "header", "ids", "key", "end"])
def test_a_damaged_segment_is_a_miss(at: str) -> None:
    packed = bytearray(pack_segment(name_of("a"), IDS, keys_of()))
    where = {"magic": 0, "header": 16, "ids": len(packed) - 3 * 2 * 20 * 16 - 400, "key": -5}
    if at == "end":
        del packed[-1]
    else:
        packed[where[at]] ^= 1
    assert unpack_segment(bytes(packed), name_of("a"), IDS) is None


def test_a_segment_of_other_tokens_under_the_same_name_is_a_miss() -> None:
    forged = pack_segment(name_of("a"), IDS + 1, keys_of())
    assert unpack_segment(forged, name_of("a"), IDS) is None


@given(cut=st.integers(0, 200))
def test_the_beginning_of_a_segment_is_a_miss(cut: int) -> None:
    assert (
        unpack_segment(pack_segment(name_of("a"), IDS, keys_of())[:cut], name_of("a"), IDS) is None
    )


def test_a_folder_that_cannot_be_written_keeps_nothing(tmp_path: Path) -> None:
    store = store_of(tmp_path, 10 * SIZE)
    (tmp_path / "tier-0").rmdir()
    (tmp_path / "tier-0").write_text("a file where the folder was")
    assert not store.put(name_of("a"), IDS, keys_of())
    assert store.get(name_of("a"), IDS) is None
