"""How much of a batch's prompts an engine reads that keeps the last prompt of the last session."""

from array import array
from collections.abc import AsyncGenerator
from itertools import takewhile
from pathlib import Path

from engines.api import Event, GenerateRequest
from tests.gateway.batches.test_batches import LEASE, RECIPE, WIDE, line, open_house
from tests.gateway.fakes import BpeEngine, ids_of

SHUFFLED = [
    line(f"{name}{i}", text + question)
    for i, question in enumerate(["Who?", "When?", "Where?", "How long?"])
    for name, text in (("lease", LEASE), ("recipe", RECIPE))
]


class Forgetful(BpeEngine):
    """Keeps the KV of one prompt."""

    def __init__(self) -> None:
        super().__init__(settings=WIDE)
        self.num_read: list[int] = []
        self._kept: tuple[str, array[int]] = ("", array("i"))

    async def generate(self, request: GenerateRequest) -> AsyncGenerator[Event, None]:
        key, ids = self._kept
        pairs = zip(ids, request.prompt_ids, strict=False) if key == request.cache_key else ()
        same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        self.num_read.append(len(request.prompt_ids) - same)
        self._kept = (request.cache_key, request.prompt_ids)
        async for event in super().generate(request):
            yield event


async def test_a_document_of_many_lines_is_prefilled_once(tmp_path: Path) -> None:
    engine = Forgetful()
    async with open_house(tmp_path, engine) as house, house.running():
        batch = await house.ended(await house.submit(SHUFFLED))
        assert len(await house.results(batch.output_file_id)) == len(SHUFFLED)
    long = min(len(ids_of(LEASE)), len(ids_of(RECIPE)))
    prefills = [num for num in engine.num_read if num >= long]
    assert len(prefills) == 2, engine.num_read
    assert all(num < 40 for num in engine.num_read if num < long)
