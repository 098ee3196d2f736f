"""No row sees a later token, to the last bit, where windows and sinks decide who sees what."""

from functools import cache
from pathlib import Path

import pytest
import torch

from engines.local.kv import ShardedKv
from engines.local.loading import load_model
from engines.local.placement import positions_of, zigzag
from engines.local.ring import RingGroup
from engines.local.ring_pass import RingPass
from engines.local.travel import TravelRule
from tests.engines.local.families import plain_model, prompt_of
from tests.engines.local.ranks import on_ranks

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(240)]

FAMILIES = ("llama", "mistral", "gemma3_text", "gpt_oss")
LENGTH = 192
CHANGED_AT = 100
WAYS = {"keys travel": TravelRule(keys_from=0.0), "queries travel": TravelRule(keys_from=1e9)}
CUTS = {"one shot": LENGTH, "in chunks": 64}

Rows = dict[int, list[float]]
Case = tuple[str, str, str, bool]


def prompt(changed: bool) -> list[int]:
    ids = prompt_of(LENGTH)
    if changed:
        ids[CHANGED_AT] = 3 if ids[CHANGED_AT] != 3 else 4
    return ids


def rows_of_all(group: RingGroup, folders: dict[str, Path]) -> dict[Case, Rows]:
    """Per case the logits of this rank's rows, by position."""
    rows: dict[Case, Rows] = {}
    for family in FAMILIES:
        decoder = load_model(folders[family], "float32")
        for way, rule in WAYS.items():
            for cut, chunk in CUTS.items():
                for changed in (False, True):
                    ids_T = torch.tensor(prompt(changed))
                    kv = ShardedKv(rank=group.rank, num_ranks=group.size, capacity=LENGTH)
                    seen = rows.setdefault((family, way, cut, changed), {})
                    for start in range(0, LENGTH, chunk):
                        new = zigzag(start, start + chunk, group.size)
                        mine = positions_of(new[group.rank])
                        ring = RingPass(kv, new, group, lambda: False, rule)
                        with torch.inference_mode():
                            mine_T = torch.tensor(mine)
                            logits = decoder.forward(ids_T[mine], mine_T, ring, range(len(mine)))
                        kv.commit(new)
                        seen.update(zip(mine, logits.tolist(), strict=True))
    return rows


def plain_rows(_: RingGroup, folders: dict[str, Path]) -> dict[str, list[list[float]]]:
    ids = torch.tensor([prompt(False)])
    with torch.inference_mode():
        return {
            name: plain_model(folders[name], "eager")(input_ids=ids).logits[0].tolist()
            for name in FAMILIES
        }


@cache
def logits(folders: tuple[tuple[str, Path], ...]) -> dict[Case, Rows]:
    by_rank = on_ranks(3, rows_of_all, dict(folders))
    return {
        case: {position: row for rows in by_rank for position, row in rows[case].items()}
        for case in by_rank[0]
    }


@pytest.mark.parametrize("cut", CUTS)
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("family", FAMILIES)
def test_a_changed_token_changes_no_earlier_logit(
    family: str, way: str, cut: str, families: dict[str, Path]
) -> None:
    before, after = (logits(tuple(families.items()))[family, way, cut, c] for c in (False, True))
    assert sorted(before) == sorted(after) == list(range(LENGTH))
    assert all(before[p] == after[p] for p in range(CHANGED_AT))
    assert all(before[p] != after[p] for p in range(CHANGED_AT, CHANGED_AT + 50))


def test_the_logits_of_every_position_are_those_of_plain_transformers(
    families: dict[str, Path],
) -> None:
    wanted = on_ranks(1, plain_rows, families)[0]
    for (family, way, cut, changed), rows in logits(tuple(families.items())).items():
        if not changed:
            given = torch.tensor([rows[p] for p in range(LENGTH)])
            error = float((given - torch.tensor(wanted[family])).abs().max())
            assert error < 1e-5, (family, way, cut)
