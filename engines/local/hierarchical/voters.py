"""Which layers of a model choose chunks; knows models by their shape only."""

from collections.abc import Mapping, Sequence

from engines.api import EngineRefused

MEASURED: Mapping[tuple[str, int, int], tuple[int, ...]] = {("llama", 30, 576): (2, 5, 8)}
"""By model_type, layers and hidden size. SmolLM2-135M, bfloat16, 64 chunks of 256 tokens of real
text, 19 samples each, the question seeing anchor and itself only. Share of samples in which the
needed chunk came first / among four / among eight:

    voting layers    one fact         one of four      two hops, 1st    two hops, 2nd
    all 30            .84 1.00 1.00    .89  .95 1.00    .42  .89  .95    .00  .42  .74
    15 to 29          .79 1.00 1.00    .58  .89  .95    .26  .74  .89    .00  .16  .37
    2 to 8           1.00 1.00 1.00    .79 1.00 1.00    .53  .89 1.00    .26 1.00 1.00
    2, 5, 8          1.00 1.00 1.00    .79 1.00 1.00    .63  .95 1.00    .32 1.00 1.00
    8                 .84  .89 1.00    .89  .95 1.00    .32  .84  .89    .32 1.00 1.00

Layers 2, 5, 7, 8, 14, 15, 17 and 18 look facts up, each with one or two heads; the others point
nowhere. With the question seeing all chunks as well, which needs their values and every layer,
layers 0 to 9 gave .89 1.00 1.00, .84 1.00 1.00, .84 1.00 1.00 and .00 .42 .84."""

FIRST_SHARE, LAST_SHARE = 0.07, 0.3


def voting_layers(
    wished: Sequence[int],
    shape: tuple[str, int, int],
    wide_layers: Sequence[int],
) -> tuple[int, ...]:
    """Ascending, at least one. Raises EngineRefused for a wish that the model has not got.

    Layers with a sliding window were trained to look near, so they have no say unless the model
    has no others (`wide_layers` is empty then) or they are wished for.
    """
    num_layers = shape[1]
    if wished and not 0 <= min(wished) <= max(wished) < num_layers:
        raise EngineRefused(f"voting_layers must lie in [0, {num_layers})")
    if wished:
        return tuple(wished)
    if shape in MEASURED:
        return MEASURED[shape]
    layers = tuple(wide_layers) or tuple(range(num_layers))
    begin = min(int(FIRST_SHARE * len(layers)), len(layers) - 1)
    return layers[begin : max(begin + 1, int(LAST_SHARE * len(layers)))]
