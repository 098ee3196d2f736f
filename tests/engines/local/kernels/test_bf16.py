"""bfloat16 as bits: the same rounding as torch's, and a good e^x."""

import numpy as np
import torch

from engines.local.kernels.bf16 import Bits, Floats, compiled, exp, narrow, widen


@compiled()
def widened(bits: Bits, out: Floats) -> None:
    for i in range(bits.shape[0]):
        out[i] = widen(bits[i])


@compiled()
def narrowed(values: Floats, out: Bits) -> None:
    for i in range(values.shape[0]):
        out[i] = narrow(values[i])


@compiled()
def powers(values: Floats, out: Floats) -> None:
    for i in range(values.shape[0]):
        out[i] = exp(values[i])


def test_every_bfloat16_widens_to_its_own_value() -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    out = np.empty(1 << 16, np.float32)
    widened(bits, out)
    expected = torch.from_numpy(bits.view(np.int16)).view(torch.bfloat16).float()
    assert torch.equal(
        torch.from_numpy(out).nan_to_num(7.0, 8.0, 9.0), expected.nan_to_num(7.0, 8.0, 9.0)
    )


def test_narrowing_rounds_to_the_nearest_even_as_torch_does() -> None:
    generator = torch.Generator().manual_seed(1)
    words = torch.randint(-(2**31), 2**31 - 1, (200_000,), generator=generator, dtype=torch.int32)
    values = words.view(torch.float32)
    values = values[values.isfinite()]
    halfway = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, -1 - 2**-8, 0.0, -0.0])
    values = torch.cat([values, halfway])
    out = np.empty(len(values), np.uint16)
    narrowed(values.numpy(), out)
    assert torch.equal(
        torch.from_numpy(out.view(np.int16)), values.to(torch.bfloat16).view(torch.int16)
    )


def test_e_to_the_x_is_right_to_the_last_digits_and_ends_near_zero() -> None:
    x = np.linspace(-87, 87, 100_001, dtype=np.float32)
    out = np.empty_like(x)
    powers(x, out)
    wanted = np.exp(x.astype(np.float64))
    assert float(np.abs(out / wanted - 1).max()) < 6e-6  # of which |x| 2^-24 is x's own rounding
    small = np.array([-88, -1e3, -3e38], np.float32)
    powers(small, small)
    assert float(small.max()) < 1e-37
