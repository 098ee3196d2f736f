"""How much memory this host's GPUs have left, as their driver tells; imports no torch."""

import os
import subprocess
from collections.abc import Mapping

MIB = 1 << 20
QUERY = ("nvidia-smi", "--query-gpu=memory.free", "--format=csv,noheader,nounits")
TIMEOUT_S = 20.0
VISIBLE = "CUDA_VISIBLE_DEVICES"


def free_gpu_bytes(num_gpus: int, env: Mapping[str, str] = os.environ) -> int:
    """The least that one of the first `num_gpus` visible GPUs has free.

    Raises ValueError where so many are not there or cannot be asked.
    """
    visible = env.get(VISIBLE)
    chosen = [] if visible is None else [f"--id={visible}"]
    try:
        out = subprocess.run(
            [*QUERY, *chosen], check=True, capture_output=True, text=True, timeout=TIMEOUT_S
        ).stdout
        free = [int(line) * MIB for line in out.split()]
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise ValueError(f"this host's GPUs cannot be asked for their memory: {error}") from error
    if len(free) < num_gpus:
        raise ValueError(f"{num_gpus} ranks need as many GPUs; this host shows {len(free)}")
    return min(free[:num_gpus])
