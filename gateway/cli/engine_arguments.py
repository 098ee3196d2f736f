"""The arguments that say what engine to run: parsed, checked, and handed on to another process."""

import argparse
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from engines.config import EngineConfig, HierarchicalConfig, SegmentsConfig
from engines.models.catalog import Model

UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A flag for `name`, a field of `part` of the engine's configuration; `read` may raise
    ValueError. A flag that was not given leaves the field's default."""

    flag: str
    part: type
    name: str
    read: Callable[[str], object]
    metavar: str
    help: str

    @property
    def dest(self) -> str:
        return self.flag.removeprefix("--").replace("-", "_")

    @property
    def told(self) -> str:
        """The help with the field's default."""
        default = next(one.default for one in fields(self.part) if one.name == self.name)
        if default is None:
            return self.help
        if self.read is num_bytes and isinstance(default, int):
            default = size(default)
        return f"{self.help} (default: {default})"


def num_bytes(text: str) -> int:
    """ "4GiB" in bytes. Raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]iB|)", text)
    if match is None:
        raise ValueError(f"{text!r} is no size; write bytes, or a number and KiB, MiB, GiB or TiB")
    return int(float(match[1]) * UNITS[match[2]])


def size(count: int) -> str:
    """Bytes in the largest unit that divides them."""
    unit = max((one for one in UNITS if count % UNITS[one] == 0), key=UNITS.__getitem__)
    return f"{count // UNITS[unit]}{unit}" if count else "0"


def whole(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{text!r} is no whole number") from None


def decimal(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"{text!r} is no number") from None


SETTINGS = (
    Setting(
        flag="--kv-budget",
        part=EngineConfig,
        name="kv_budget_bytes",
        read=num_bytes,
        metavar="SIZE",
        help="KV of all sequences, such as 4GiB (default: what memory has to spare)",
    ),
    Setting(
        flag="--tensor-parallel",
        part=EngineConfig,
        name="tensor_parallel",
        read=whole,
        metavar="N",
        help="ranks that share the heads of each layer",
    ),
    Setting(
        flag="--prefill-chunk",
        part=EngineConfig,
        name="prefill_chunk_tokens",
        read=whole,
        metavar="TOKENS",
        help="of a prompt that are read in one step",
    ),
    Setting(
        flag="--max-running",
        part=EngineConfig,
        name="max_running",
        read=whole,
        metavar="N",
        help="answers that are written at one time",
    ),
    Setting(
        flag="--max-queued",
        part=EngineConfig,
        name="max_queued",
        read=whole,
        metavar="N",
        help="requests that may wait; more are turned away as busy",
    ),
    Setting(
        flag="--step-timeout",
        part=EngineConfig,
        name="step_timeout_s",
        read=decimal,
        metavar="SECONDS",
        help="after which a rank that does not answer counts as dead",
    ),
    Setting(
        flag="--chunk-tokens",
        part=HierarchicalConfig,
        name="chunk_tokens",
        read=whole,
        metavar="TOKENS",
        help="hierarchical: of a chunk that is read alone",
    ),
    Setting(
        flag="--top-k",
        part=HierarchicalConfig,
        name="top_k",
        read=whole,
        metavar="CHUNKS",
        help="hierarchical: chunks that are read again, exactly",
    ),
    Setting(
        flag="--least-recall",
        part=HierarchicalConfig,
        name="least_recall",
        read=decimal,
        metavar="SHARE",
        help="hierarchical: read more chunks again while they hold less of the attention",
    ),
    Setting(
        flag="--most-k",
        part=HierarchicalConfig,
        name="most_k",
        read=whole,
        metavar="CHUNKS",
        help="hierarchical: the most that --least-recall may come to",
    ),
    Setting(
        flag="--segment-memory",
        part=SegmentsConfig,
        name="ram_bytes",
        read=num_bytes,
        metavar="SIZE",
        help="hierarchical: what was read, kept in memory for follow-ups and restarts",
    ),
    Setting(
        flag="--segment-disk",
        part=SegmentsConfig,
        name="disk_bytes",
        read=num_bytes,
        metavar="SIZE",
        help="the same on disk, in $TMPDIR, once memory is full",
    ),
)


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """What `ringway engine` takes, and `ringway up` as well and hands on."""
    parser.add_argument(
        "--model", help="a Hugging Face folder, hub id or GGUF file (default: SmolLM2-135M)"
    )
    parser.add_argument("--model-name", metavar="NAME", help="the name to serve it under")
    parser.add_argument("--ranks", type=int, default=2, help="processes (default: %(default)s)")
    parser.add_argument("--threads", type=int, help="per rank (default: cores / ranks)")
    parser.add_argument(
        "--device",
        choices=("cpu", "cuda"),
        default="cpu",
        help="where ranks compute; cuda: a GPU for each (default: %(default)s)",
    )
    parser.add_argument(
        "--dtype",
        choices=("auto", "float32", "bfloat16"),
        default="auto",
        help="of weights and KV (default: bfloat16 where the device multiplies it)",
    )
    for one in SETTINGS:
        parser.add_argument(one.flag, metavar=one.metavar, help=one.told.replace("%", "%%"))


def engine_config(args: argparse.Namespace, model: Model) -> EngineConfig:
    """Raises ValueError for sizes that cannot be."""
    for flag, count in (("--ranks", args.ranks), ("--threads", args.threads)):
        if count is not None and count < 1:
            raise ValueError(f"{flag} must be at least 1")
    given = _given(args)
    return EngineConfig(
        model_dir=model.folder,
        model_name=model.name,
        ranks=args.ranks,
        threads_per_rank=args.threads or max(1, (os.cpu_count() or 1) // args.ranks),
        device=args.device,
        dtype=best_dtype(args.device) if args.dtype == "auto" else args.dtype,
        hierarchical=replace(HierarchicalConfig(), **given[HierarchicalConfig]),
        segments=replace(SegmentsConfig(), **given[SegmentsConfig]),
        **given[EngineConfig],
    )


def _given(args: argparse.Namespace) -> Mapping[type, dict[str, Any]]:
    """The fields that flags were given for, by the part they are of. Raises ValueError."""
    found: dict[type, dict[str, Any]] = {one.part: {} for one in SETTINGS}
    for one in SETTINGS:
        text = getattr(args, one.dest)
        if text is None:
            continue
        try:
            found[one.part][one.name] = one.read(text)
        except ValueError as error:
            raise ValueError(f"{one.flag}: {error}") from error
    return found


def best_dtype(device: str) -> str:
    """bfloat16 where the device multiplies it (1.8 times as fast on such a CPU), else float32."""
    if device == "cuda":
        return "bfloat16"
    flags = Path("/proc/cpuinfo")
    text = flags.read_text() if flags.is_file() else ""
    return "bfloat16" if re.search(r"\b(avx512_bf16|amx_bf16)\b", text) else "float32"


def arguments_for(args: argparse.Namespace, model: Model) -> list[str]:
    """The same engine, in another process. The model is resolved already."""
    given = {
        "--model": model.folder,
        "--model-name": model.name,
        "--ranks": args.ranks,
        "--threads": args.threads,
        "--device": args.device,
        "--dtype": args.dtype,
        **{one.flag: getattr(args, one.dest) for one in SETTINGS},
    }
    typed = {name: str(value) for name, value in given.items() if value is not None}
    return [part for pair in typed.items() for part in pair]
