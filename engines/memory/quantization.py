"""Bytes of a weight matrix that is stored in fewer than 16 bits; knows how config.json says so.

What is never quantised: embeddings, norms, biases, routers and, unless a file says otherwise, the
output layer.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

JsonObject = Mapping[str, object]

SKIP_NAMES = ("modules_to_not_convert", "ignore", "llm_int8_skip_modules")
FULL_BITS = 16
PER_ROW = 0
"""A group size: one scale for a whole row of the matrix."""

WHOLE = 1 << 30
"""A group size: as many rows as there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """How the quantised matrices of one file are stored.

    Each group of `group_columns` columns by `group_rows` rows has `group_bits` of scale and zero
    point; `index_bytes` is what a column costs besides (GPTQ's group index).
    """

    method: str
    bits: float
    group_columns: int = PER_ROW
    group_rows: int = 1
    group_bits: float = 16
    index_bytes: int = 0
    skipped: tuple[str, ...] = ()
    has_full_head: bool = True
    only_experts: bool = False

    def covers(self, name: str) -> bool:
        """Whether the linear layer of this name is quantised; transformers' rules for the list of
        exceptions: a prefix up to a dot, a pattern, or an ending."""
        if name == "lm_head" and self.has_full_head:
            return False
        if self.only_experts and ".experts." not in name:
            return False
        return not any(_names(pattern, name) for pattern in self.skipped)

    def matrix_bytes(self, rows: int, columns: int) -> int:
        across = -(-columns // self.group_columns) if self.group_columns else 1
        groups = across * -(-rows // self.group_rows)
        bits = rows * columns * self.bits + groups * self.group_bits
        return int(bits) // 8 + columns * self.index_bytes


def quantization_of(table: JsonObject) -> Quantization | None:
    """Read a quantization_config; an empty one is no quantisation.

    Raises ValueError for a method that is not counted.
    """
    if not table:
        return None
    method = str(table.get("quant_method", table.get("quant_algo", ""))).lower()
    read = METHODS.get(method)
    if read is None:
        known = ", ".join(sorted(METHODS))
        raise ValueError(
            f"config.json is quantised by {method or 'no named method'}; known: {known}"
        )
    return read(table)


def _awq(table: JsonObject) -> Quantization:
    bits = _number(table, "bits", _number(table, "w_bit", 4))
    return Quantization(
        method="awq",
        bits=bits,
        group_columns=_group(table, "group_size", _number(table, "q_group_size", 128)),
        group_bits=FULL_BITS + (bits if table.get("zero_point", True) else 0),
        skipped=_skipped(table),
    )


def _gptq(table: JsonObject) -> Quantization:
    bits = _number(table, "bits", 4)
    return Quantization(
        method="gptq",
        bits=bits,
        group_columns=_group(table, "group_size", 128),
        group_bits=FULL_BITS + bits,
        index_bytes=4,
        skipped=_skipped(table),
        has_full_head=not table.get("lm_head", False),
    )


def _fp8(table: JsonObject) -> Quantization:
    rows, columns = _block(table.get("weight_block_size")) or (WHOLE, PER_ROW)
    return Quantization(
        method="fp8",
        bits=8,
        group_columns=columns,
        group_rows=rows,
        group_bits=32,
        skipped=_skipped(table),
    )


def _fbgemm_fp8(table: JsonObject) -> Quantization:
    return Quantization(method="fbgemm_fp8", bits=8, group_bits=32, skipped=_skipped(table))


def _mxfp4(table: JsonObject) -> Quantization:
    return Quantization(
        method="mxfp4",
        bits=4,
        group_columns=32,
        group_bits=8,
        skipped=_skipped(table),
        only_experts=True,
    )


def _bitsandbytes(table: JsonObject) -> Quantization:
    """Eight bits: a float32 scale per row. Four: one per 64 values, or, quantised twice, a byte."""
    if table.get("load_in_4bit"):
        twice = bool(table.get("bnb_4bit_use_double_quant"))
        return Quantization(
            method="bitsandbytes",
            bits=4,
            group_columns=64,
            group_bits=8 + 32 / 256 if twice else 32,
            skipped=_skipped(table),
        )
    return Quantization(method="bitsandbytes", bits=8, group_bits=32, skipped=_skipped(table))


def _compressed_tensors(table: JsonObject) -> Quantization:
    groups = table.get("config_groups")
    first = next(iter(groups.values()), None) if isinstance(groups, dict) else None
    weights = first.get("weights") if isinstance(first, dict) else None
    if not isinstance(weights, dict):
        raise ValueError("config.json's quantization_config names no weights")
    bits = _number(weights, "num_bits", 8)
    strategy = str(weights.get("strategy", "channel"))
    block = weights.get("block_structure") if strategy == "block" else None
    rows, columns = _block(block) or (1, _group(weights, "group_size", PER_ROW))
    return Quantization(
        method="compressed-tensors",
        bits=bits,
        group_columns=columns,
        group_rows=WHOLE if strategy == "tensor" else rows,
        group_bits=FULL_BITS + (0 if weights.get("symmetric", True) else bits),
        skipped=_skipped(table),
    )


METHODS: Mapping[str, Callable[[JsonObject], Quantization]] = {
    "awq": _awq,
    "gptq": _gptq,
    "fp8": _fp8,
    "fbgemm_fp8": _fbgemm_fp8,
    "mxfp4": _mxfp4,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed_tensors,
}


def _names(pattern: str, name: str) -> bool:
    if pattern.startswith("re:"):
        return re.match(pattern.removeprefix("re:"), name) is not None
    try:
        found = re.match(rf"(?:{pattern})(?:(?<=\.)|(?=\.|$))", name)
    except re.error:
        found = None
    return found is not None or name.endswith(pattern)


def _skipped(table: JsonObject) -> tuple[str, ...]:
    lists = [found for name in SKIP_NAMES if isinstance(found := table.get(name), list)]
    return tuple(str(pattern) for found in lists for pattern in found)


def _block(value: object) -> tuple[int, int] | None:
    return (value[0], value[1]) if isinstance(value, list) and len(value) == 2 else None


def _group(table: JsonObject, name: str, default: int) -> int:
    """GPTQ writes -1 for one group per row."""
    return max(PER_ROW, _number(table, name, default))


def _number(table: JsonObject, name: str, default: int) -> int:
    value = table.get(name)
    if value is None:
        return default
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"config.json's quantization_config has no usable {name}")
    return value
