"""Peak memory of a rank against the estimate: `python -m tests.bench.peak [PROMPT_TOKENS]`.

The bundled model in bfloat16 on two ranks; the last line is one JSON object.
"""

import json
import sys

from tests.engines.memory.measuring import Measured, measured_ranks

PROMPT_TOKENS = 16 << 10


def peak_vs_model(prompt_tokens: int) -> float:
    """Measured / estimated private memory of the rank that is furthest off.

    Starts a gang of its own and blocks until it is gone; not to be called where an event loop
    runs.
    """
    return furthest_off(measured_ranks(prompt_tokens)).ratio


def furthest_off(ranks: list[Measured]) -> Measured:
    return max(ranks, key=lambda rank: abs(rank.ratio - 1))


def main(arguments: list[str]) -> None:
    prompt_tokens = int(arguments[0]) if arguments else PROMPT_TOKENS
    ranks = measured_ranks(prompt_tokens)
    for number, rank in enumerate(ranks):
        print(f"rank {number}: {rank.private >> 20} MiB of {rank.need.private >> 20} MiB")
    print(json.dumps({"peak_vs_model": round(furthest_off(ranks).ratio, 4)}))


if __name__ == "__main__":
    main(sys.argv[1:])
