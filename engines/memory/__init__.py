"""Bytes of a model, its ranks and their KV, from config.json alone; touches no tensor."""

from engines.memory.gpus import free_gpu_bytes
from engines.memory.kv import kv_bytes_per_token
from engines.memory.planning import gpu_kv_budget_tokens
from engines.memory.quantization import Quantization
from engines.memory.ranks import (
    FORKER_BYTES,
    Layout,
    MemoryNeed,
    RankNeed,
    activation_bytes,
    fits,
    kv_budget_tokens,
    memory_need,
    process_bytes,
    rank_need,
    ring_bytes,
    weight_bytes,
)
from engines.memory.shape import ModelShape, shape_of
from engines.memory.weights import DTYPE_BYTES, model_bytes, num_parameters

__all__ = [
    "DTYPE_BYTES",
    "FORKER_BYTES",
    "Layout",
    "MemoryNeed",
    "ModelShape",
    "Quantization",
    "RankNeed",
    "activation_bytes",
    "fits",
    "free_gpu_bytes",
    "gpu_kv_budget_tokens",
    "kv_budget_tokens",
    "kv_bytes_per_token",
    "memory_need",
    "model_bytes",
    "num_parameters",
    "process_bytes",
    "rank_need",
    "ring_bytes",
    "shape_of",
    "weight_bytes",
]
