"""Where a rank computes: on its host's CPU, or on a GPU of its own.

Knows torch's devices and which backend carries their tensors between ranks; does not know models
or attention. CPU tensors (sampled tokens, wishes to stop) travel by gloo on either.
"""

import torch

from engines.api import EngineRefused

CPU = torch.device("cpu")

BACKENDS = {"cpu": "gloo", "cuda": "cpu:gloo,cuda:nccl"}


def device_of(kind: str, local_rank: int) -> torch.device:
    """The device of this host's rank number `local_rank`, made the process's own.

    Raises EngineRefused where there is no such GPU: NCCL lets no two ranks share one.
    """
    if kind == "cpu":
        return CPU
    num_gpus = torch.cuda.device_count()
    if local_rank >= num_gpus:
        raise EngineRefused(
            f"rank {local_rank} of this host needs a GPU of its own; PyTorch sees {num_gpus} here "
            f"({'CUDA' if torch.version.cuda else 'no CUDA'} in this build)"
        )
    device = torch.device(kind, local_rank)
    torch.cuda.set_device(device)
    return device


def backend_of(device: torch.device) -> str:
    return BACKENDS[device.type]
