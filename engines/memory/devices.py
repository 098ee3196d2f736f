"""How much memory a device offers a process, by name; plans nothing."""

from collections.abc import Mapping
from dataclasses import dataclass

GIB = 1 << 30

CONTEXT_BYTES = 512 << 20
"""CUDA's context and the kernels that a decoder loads; 300 to 600 MiB are reported."""

COMMUNICATOR_BYTES = 704 << 20
"""Buffers of one NCCL communicator: 544 MiB for two ranks, 688 for more (NVIDIA/nccl#964)."""

SLACK_SHARE = 0.02
"""Share of a GPU's memory that the allocator's rounding and fragments may take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """`num_bytes` is what CUDA tells a process, which is less than the data sheet says.

    `rows` is how many rows of a prompt one rank is given at once. A host is one memory that all
    its ranks share.
    """

    name: str
    num_bytes: int
    rows: int = 2048
    is_host: bool = False

    def runtime_bytes(self, *, ring: int, tp: int) -> int:
        """What a GPU spends before the first weight is there."""
        communicators = (ring > 1) + (tp > 1)
        slack = int(self.num_bytes * SLACK_SHARE)
        return CONTEXT_BYTES + communicators * COMMUNICATOR_BYTES + slack


# The smallest "total capacity" that PyTorch's out-of-memory messages report for each, in GiB.
GPUS: Mapping[str, Device] = {
    name: Device(name=name, num_bytes=int(gib * GIB))
    for name, gib in (
        ("a100-40", 39.38),
        ("l40s", 44.34),
        ("h100", 79.10),
        ("a100-80", 79.14),
        ("h200", 139.72),
        ("b200", 178.35),
    )
}

ALIASES = {"g6e": "l40s", "a100-40gb": "a100-40", "a100-80gb": "a100-80", "h100-80": "h100"}

CPU = "cpu"
HOST_ROWS = 256


def gpu_named(name: str) -> Device:
    """Raises ValueError with the names there are."""
    wanted = name.strip().lower()
    device = GPUS.get(ALIASES.get(wanted, wanted))
    if device is None:
        raise ValueError(f"unknown GPU {name!r}; known: {', '.join((*GPUS, 'g6e', CPU))}")
    return device


def this_host(available_bytes: int) -> Device:
    return Device(name=CPU, num_bytes=available_bytes, rows=HOST_ROWS, is_host=True)


def larger_than(device: Device) -> list[Device]:
    """GPUs with more memory, the smallest first."""
    larger = (gpu for gpu in GPUS.values() if gpu.num_bytes > device.num_bytes)
    return sorted(larger, key=lambda gpu: gpu.num_bytes)
