"""Bytes of keys and values; knows dtypes and scales, not ranks.

All positions of all layers are kept, those outside a sliding window too: `engines.local.kv` has
one buffer per layer for the whole sequence.
"""

from engines.memory.shape import ModelShape
from engines.memory.weights import DTYPE_BYTES

KV_BYTES = {**DTYPE_BYTES, "int8": 1, "fp8": 1}

SCALE_BYTES = 2
KEY_GROUP_TOKENS = 256
"""int8 keys have a scale per channel and group of tokens, int8 values one per token and head."""


def kv_bytes_per_token(shape: ModelShape, dtype: str) -> int:
    """Keys and values of one token in all layers, un-repeated heads, scales included.

    fp8 (e4m3) is stored without scales.
    """
    elements = 2 * shape.num_layers * shape.key_size
    return elements * KV_BYTES[dtype] + (_scale_bytes(shape) if dtype == "int8" else 0)


def windowed_kv_bytes(shape: ModelShape, dtype: str, num_tokens: int) -> int:
    """What would be enough if sliding layers dropped what no later token can see."""
    per_layer = kv_bytes_per_token(shape, dtype) // shape.num_layers
    sliding = shape.num_sliding_layers * min(num_tokens, shape.sliding_window)
    return per_layer * (sliding + (shape.num_layers - shape.num_sliding_layers) * num_tokens)


def _scale_bytes(shape: ModelShape) -> int:
    values = shape.num_layers * shape.num_kv_heads * SCALE_BYTES
    keys = shape.num_layers * shape.key_size * SCALE_BYTES
    return values + -(-keys // KEY_GROUP_TOKENS)
