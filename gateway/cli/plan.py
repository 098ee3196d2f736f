"""`ringway plan`: what a model and a context take, on how many GPUs, or what would fit instead.

Knows arguments; the bytes are counted in `engines.memory` and the words are `plan_text`'s.
"""

import argparse
import re

from engines.api import ModelMissing
from engines.memory import DTYPE_BYTES, ModelShape, shape_of
from engines.memory.devices import CPU, Device, gpu_named, this_host
from engines.memory.planning import Wish, alternatives, check, does_fit, smallest_ring
from engines.memory.source import find_config
from gateway.cli.main import Refusal
from gateway.cli.plan_text import Answer, as_json, as_table

DTYPES = {"bf16": "bfloat16", "fp16": "float16", "fp32": "float32"}
KV_DTYPES = {**DTYPES, "int8": "int8", "fp8": "fp8"}
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20}
HOST_RANKS = 2


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model",
        help="a Hugging Face folder, config.json, hub id or GGUF file (default: SmolLM2-135M)",
    )
    parser.add_argument("--context", required=True, help="prompt and answer, such as 128K or 1M")
    parser.add_argument(
        "--gpu", required=True, help="a100-40, a100-80, h100, h200, b200, l40s, cpu"
    )
    parser.add_argument("--gpus", type=int, help="how many there are (default: the fewest that do)")
    parser.add_argument("--tp", type=int, default=1, help="GPUs that share one rank's weights")
    parser.add_argument(
        "--dtype", choices=DTYPES, help="of weights that the file does not quantise"
    )
    parser.add_argument("--kv-dtype", choices=KV_DTYPES, help="of keys and values (default: dtype)")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")


def run(args: argparse.Namespace) -> int:
    """Exit code 0 when it fits, 1 when it does not; raises Refusal for bad input."""
    try:
        source = find_config(args.model)
        answer = answered(source.name, wish_of(args, shape_of(source.config)), args.gpus)
    except (ValueError, ModelMissing) as error:
        raise Refusal(str(error)) from error
    print(as_json(answer) if args.json else as_table(answer))
    return 0 if answer.does_fit else 1


def wish_of(args: argparse.Namespace, shape: ModelShape) -> Wish:
    """Raises ValueError."""
    device = device_named(args.gpu)
    dtype = DTYPES[args.dtype] if args.dtype else default_dtype(shape, device)
    if args.tp < 1:
        raise ValueError("--tp must be at least 1")
    wish = Wish(
        shape=shape,
        device=device,
        context_tokens=num_tokens(args.context),
        dtype=dtype,
        kv_dtype=KV_DTYPES[args.kv_dtype] if args.kv_dtype else dtype,
        tp=args.tp,
    )
    check(wish)
    return wish


def answered(name: str, wish: Wish, gpus: int | None) -> Answer:
    """Raises ValueError when `gpus` cannot form a ring."""
    if gpus is not None and (gpus < 1 or gpus % wish.tp):
        raise ValueError(f"--gpus {gpus} must be a multiple of --tp {wish.tp}, and at least 1")
    smallest = None if wish.device.is_host else smallest_ring(wish)
    ring = gpus // wish.tp if gpus else smallest or (HOST_RANKS if wish.device.is_host else 1)
    fits = does_fit(wish, ring)
    return Answer(
        model=name,
        wish=wish,
        ring=ring,
        smallest=smallest,
        does_fit=fits,
        instead=() if fits else tuple(alternatives(wish, ring)),
    )


def device_named(name: str) -> Device:
    if name.strip().lower() != CPU:
        return gpu_named(name)
    # Imported here: the figures of a GPU need nothing of this machine.
    from engines.wiring import available_bytes

    return this_host(available_bytes())


def default_dtype(shape: ModelShape, device: Device) -> str:
    """What the engine would choose: on a GPU the file's own dtype, if it has 16 bits."""
    if device.is_host:
        from gateway.cli.engine_arguments import best_dtype

        return best_dtype("cpu")
    is_short = DTYPE_BYTES.get(shape.file_dtype) == 2
    return shape.file_dtype if is_short else "bfloat16"


def num_tokens(text: str) -> int:
    """ "1M" in tokens; K and M are 1024 and 1024 squared. Raises ValueError."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KM]?)", text.strip().upper())
    tokens = int(float(match[1]) * UNITS[match[2]]) if match else 0
    if tokens < 1:
        raise ValueError(f"{text!r} is no context; write tokens, or a number and K or M")
    return tokens
