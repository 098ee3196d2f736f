"""What runs on GPUs: attention kernels, NCCL rings and whole gangs; and how GPUs are refused."""

from array import array
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import pytest
import torch
from torch import Tensor

from engines.api import EngineRefused, GenerateRequest, Sampling
from engines.config import EngineConfig
from engines.local.device import CPU, backend_of, device_of
from engines.local.kv import ShardedKv
from engines.local.placement import Rule, positions_of, zigzag
from engines.local.ring import RingGroup
from engines.local.ring_pass import RingPass
from engines.local.tiles import Kernel, _efficient_kernel, _flash_kernel, attend_tile, kernel_for
from engines.models.catalog import default_model_dir
from engines.wiring import build_supervisor
from tests.engines.gang.scripted_gang import collect, running, tokens_of
from tests.engines.local.driving import SMALL_CHUNKS, Case, Driver, spec_of
from tests.engines.local.families import NAMES, plain_answer, plain_model, prompt_of
from tests.engines.local.ranks import on_ranks
from tests.engines.local.test_ring_pass import EDGES, RULES, call_for, dense
from tests.engines.local.test_tiles import SCALE, exact, inputs, tile_of

NUM_GPUS = torch.cuda.device_count()

on_gpu = [pytest.mark.gpu, pytest.mark.skipif(NUM_GPUS == 0, reason="no GPU on this host")]
on_two_gpus = [
    pytest.mark.gpu,
    pytest.mark.ranks,
    pytest.mark.timeout(240),
    pytest.mark.skipif(NUM_GPUS < 2, reason=f"two GPUs are needed, {NUM_GPUS} are here"),
]


def marked(marks: list[pytest.MarkDecorator]) -> Callable[[Callable[..., object]], object]:
    def mark(test: Callable[..., object]) -> object:
        for one in marks:
            test = one(test)
        return test

    return mark


# Without a GPU.


@pytest.mark.parametrize("kernel", [_flash_kernel, _efficient_kernel])
@pytest.mark.parametrize(
    ("num_rows", "num_keys", "causal", "masked"),
    [(40, 40, True, False), (33, 65, False, False), (33, 65, False, True)],
)
def test_this_torch_has_the_gpu_kernels_as_they_are_called(
    kernel: Kernel, num_rows: int, num_keys: int, causal: bool, masked: bool
) -> None:
    """Shapes and signatures only: torch computes them without a device."""

    def nothing(heads: int, tokens: int) -> Tensor:
        return torch.empty(1, heads, tokens, 16, dtype=torch.bfloat16, device="meta")

    bias = torch.empty(num_rows, num_keys, dtype=torch.bfloat16, device="meta") if masked else None
    q, k = nothing(6, num_rows), nothing(2, num_keys)
    out, lse = kernel(q, k, k, causal, bias, SCALE)
    assert (out.shape, out.dtype) == (q.shape, torch.bfloat16)
    assert (lse.shape, lse.dtype) == (q.shape[:3], torch.float32)


def test_the_device_chooses_kernel_and_backend() -> None:
    cuda = torch.device("cuda", 0)
    assert kernel_for(cuda, torch.bfloat16) is _flash_kernel
    assert kernel_for(cuda, torch.float32) is _efficient_kernel
    assert backend_of(CPU) == "gloo"
    assert backend_of(cuda) == "cpu:gloo,cuda:nccl"


def test_a_rank_without_a_gpu_of_its_own_is_refused() -> None:
    assert device_of("cpu", 7) == CPU
    with pytest.raises(EngineRefused, match=f"rank {NUM_GPUS} .* PyTorch sees {NUM_GPUS} here"):
        device_of("cuda", NUM_GPUS)


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(ValueError, match="device must be cpu or cuda, not tpu"):
        EngineConfig(model_dir=Path(), model_name="m", device="tpu")


# On one GPU.


@marked(on_gpu)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("rule", "num_rows", "num_keys"),
    [(Rule.FULL, 1, 700), (Rule.FULL, 33, 65), (Rule.DIAGONAL, 40, 40), (Rule.MASKED, 40, 70)],
)
def test_a_tile_on_a_gpu_is_exact_and_its_lse_is_a_natural_logarithm(
    rule: Rule, num_rows: int, num_keys: int, dtype: torch.dtype
) -> None:
    q, k, v = (x.to(dtype) for x in inputs(num_rows, num_keys))
    window = 7
    rows, keys = torch.arange(num_rows)[:, None], torch.arange(num_keys)[None]
    seen = None if rule is Rule.FULL else keys <= rows
    if rule is Rule.MASKED:
        seen = (keys <= rows) & (keys > rows - window)
    tile = tile_of(rule, num_rows, num_keys)
    out, lse = attend_tile(q.cuda(), k.cuda(), v.cuda(), tile, scale=SCALE, window=window)
    wanted_out, wanted_lse = exact(q, k, v, seen)
    limit = 1e-5 if dtype == torch.float32 else 2e-2
    assert out.dtype == lse.dtype == torch.float32
    assert float((out.cpu() - wanted_out).abs().max()) < limit
    assert float((lse.cpu() - wanted_lse).abs().max()) < 10 * limit


@marked(on_gpu)
@pytest.mark.parametrize("family", NAMES)
def test_a_family_on_a_gpu_answers_as_plain_transformers_does(
    family: str, families: dict[str, Path]
) -> None:
    wanted = plain_answer(plain_model(families[family], "eager"), prompt_of(203), 8).tokens
    alone = RingGroup(None, rank=0, size=1, device=device_of("cuda", 0))
    driver = Driver(families[family], alone, SMALL_CHUNKS)
    case = Case(prompt=prompt_of(203), num_tokens=8, chunk=64, sampling=spec_of())
    assert [one.token_id for one in driver.answer(case)] == wanted


@marked(on_gpu)
@pytest.mark.ranks
@pytest.mark.timeout(240)
@pytest.mark.parametrize("ranks", sorted({1, max(1, NUM_GPUS)}))
async def test_a_gang_on_gpus_answers_as_one_on_the_cpu_does(ranks: int) -> None:
    request = GenerateRequest(
        request_id="r",
        prompt_ids=array("i", [1, 9690, 198, 2683, 359, 253, 5356, 5646, 11173] * 120),
        max_new_tokens=16,
        sampling=Sampling(temperature=0),
    )
    answers = []
    for device in ("cpu", "cuda"):
        config = EngineConfig(
            model_dir=default_model_dir(),
            model_name="smollm2",
            ranks=ranks,
            device=device,
            kv_budget_bytes=1 << 30,
        )
        async with running(build_supervisor(config)) as engine:
            answers.append(tokens_of(await collect(engine.generate(request))))
    assert answers[0] == answers[1]


# On several GPUs.


def ring_errors(group: RingGroup) -> float:
    """As the CPU's test of the ring pass, over NCCL."""
    device = device_of("cuda", group.rank)
    gpus = RingGroup(
        torch.distributed.new_group(backend=backend_of(device)),
        rank=group.rank,
        size=group.size,
        device=device,
    )
    worst = 0.0
    for rule in RULES.values():
        kv = ShardedKv(rank=gpus.rank, num_ranks=gpus.size, capacity=EDGES[-1])
        wanted_out, wanted_lse = dense(None)
        for start, end in pairwise(EDGES):
            new = zigzag(start, end, gpus.size)
            rows = positions_of(new[gpus.rank])
            call = call_for(rows, None, device)
            out, lse = RingPass(kv, new, gpus, lambda: False, rule).attend(call)
            kv.commit(new)
            worst = max(worst, float((out.cpu() - wanted_out[:, rows]).abs().max()))
            worst = max(worst, float((lse.cpu() - wanted_lse[:, rows]).abs().max()))
    return worst


@marked(on_two_gpus)
def test_a_ring_over_nccl_is_exact_whatever_travels() -> None:
    assert max(on_ranks(2, ring_errors)) < 1e-5
