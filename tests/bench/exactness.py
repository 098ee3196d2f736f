"""The complete exactness matrix in float32: `python -m tests.bench.exactness [family ...]`.

Every proven family, 1 to 4 gloo ranks, prompts of 1, 2N-1, 203 and 4,001 tokens, chunks of 64 and
one shot, then 8 decoded tokens, against transformers in one process. Prints progress, then one
JSON object on the last line; exits with 1 if a logit is off by 1e-5 or a token differs.
"""

import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.engines.local.exactness.matrix import (
    ALL,
    RANKS,
    Combination,
    Trace,
    compared,
    plain_traces,
    ring_traces,
)
from tests.engines.local.families import NAMES, save_family
from tests.engines.local.ranks import on_ranks_within

LIMIT = 1e-5
LIMIT_S = 7200.0


def main(families: Sequence[str]) -> int:
    started_s = time.monotonic()
    combinations = [one for one in ALL if one.family in families]
    errors: list[float] = []
    mismatches = 0
    with tempfile.TemporaryDirectory() as folder:
        folders = {name: save_family(name, Path(folder) / name) for name in families}
        wanted = plain(folders, combinations)
        for num_ranks in RANKS:
            chosen = [one for one in combinations if one.num_ranks == num_ranks]
            by_rank = on_ranks_within(LIMIT_S, num_ranks, ring_traces, folders, chosen, announce)
            for traces in by_rank:
                for one, trace in traces.items():
                    error, same_tokens = compared(trace, wanted[one.family, one.length])
                    errors.append(error)
                    mismatches += not same_tokens
                    if error >= LIMIT or not same_tokens:
                        print(f"OFF {one}: {error:.2e}, same tokens: {same_tokens}", flush=True)
            print(
                f"{num_ranks} ranks: {len(chosen)} combinations, max error so far "
                f"{max(errors):.2e}, {time.monotonic() - started_s:.0f} s",
                flush=True,
            )
    figures = {
        "families": len(families),
        "combinations": len(combinations),
        "max_logit_error": max(errors),
        "token_mismatches": mismatches,
    }
    print(json.dumps(figures))
    return int(mismatches > 0 or max(errors) >= LIMIT)


def plain(
    folders: dict[str, Path], combinations: Sequence[Combination]
) -> dict[tuple[str, int], Trace]:
    wanted = sorted({(one.family, one.length) for one in combinations})
    traces = on_ranks_within(LIMIT_S, 1, plain_traces, folders, wanted)[0]
    print(f"transformers answered {len(wanted)} prompts", flush=True)
    return traces


def announce(one: Combination) -> None:
    chunk = "one shot" if one.length <= one.chunk else f"chunk {one.chunk}"
    print(f"{one.num_ranks} ranks: {one.family}, {one.length} tokens, {chunk}", flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or NAMES))
