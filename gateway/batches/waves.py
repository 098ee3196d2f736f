"""In which order a batch's lines run. Pure."""

from collections.abc import Iterator, Sequence

from gateway.batches.api import BatchLine


def waves_of(lines: Sequence[BatchLine]) -> Iterator[Sequence[BatchLine]]:
    """Lines that may run at the same time. Of a family the first line goes alone, since what it
    leaves in the cache is what the others begin with; then the others. Lines without kin go
    together, last."""
    families: dict[str, list[BatchLine]] = {}
    alone: list[BatchLine] = []
    for line in lines:
        if line.kinship:
            families.setdefault(line.kinship, []).append(line)
        else:
            alone.append(line)
    for family in families.values():
        yield family[:1]
        if len(family) > 1:
            yield family[1:]
    if alone:
        yield alone
