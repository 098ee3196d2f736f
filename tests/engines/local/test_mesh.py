"""Who stands where on the two axes of a gang."""

from pathlib import Path

import pytest

from engines.config import EngineConfig
from engines.local.mesh import MeshPlace


def test_neighbours_share_a_place_on_the_ring() -> None:
    places = [MeshPlace(rank=rank, size=6, tensor_parallel=2) for rank in range(6)]
    assert [place.ring_rank for place in places] == [0, 0, 1, 1, 2, 2]
    assert {place.ring_size for place in places} == {3}


@pytest.mark.parametrize("tensor_parallel", [0, 4])
def test_ranks_that_cannot_be_cut_in_places_are_refused(tensor_parallel: int) -> None:
    with pytest.raises(ValueError, match=f"6 ranks cannot be cut in groups of {tensor_parallel}"):
        MeshPlace(rank=0, size=6, tensor_parallel=tensor_parallel)


def test_a_config_whose_ranks_cannot_be_cut_in_places_is_refused() -> None:
    with pytest.raises(ValueError, match=r"ranks \(3\) must be a multiple of tensor_parallel"):
        EngineConfig(model_dir=Path(), model_name="x", ranks=3, tensor_parallel=2)


def test_a_chunk_need_only_be_cut_for_the_places_of_the_ring() -> None:
    config = EngineConfig(
        model_dir=Path(), model_name="x", ranks=8, tensor_parallel=4, prefill_chunk_tokens=4
    )
    assert config.ring_size == 2
