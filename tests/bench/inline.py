"""A million tokens inside one request, answered by `retrieval`: all but the generation.

    python -m tests.bench.inline [--tokens 1000000] [--seed 7] [--runs 3]

A synthetic case file with planted facts is the prompt. As the gateway does, it is segmented,
rendered and counted with the bundled model's tokenizer, searched in a worker process over HTTP and
packed; then the answer from the key is cited. `first_s` is the first question on a new document,
`second_s` the second, another one; of several documents the median. `cited` is the share of
questions whose planted sentence is quoted; two-hop questions, whose answer shares no name with
them, are beyond `retrieval` and not asked. Prints progress, then one JSON object on the last line.
"""

import argparse
import asyncio
import json
import os
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from engines.models.catalog import default_model_dir
from engines.models.folder import read_folder
from gateway.asks import Turn
from gateway.citations import cite
from gateway.policy import Policy, load_policy
from gateway.prompt.model_text import ModelText
from gateway.prompt.render import render_packed, render_whole
from gateway.prompt.segment import Segmented, segment
from gateway.routes.packing import Found, PackBudget, Packed, pack
from gateway.routes.retrieval import MAX_QUERY_CHARS
from ingest.api import InlineDocument, InlineSearch
from ingest.library import LocalLibrary
from ingest.synth.api import (
    CaseFile,
    CaseRequest,
    EstimateCounter,
    FactKind,
    Question,
    synthesize,
)
from tests.bench.worker_process import running_worker


@dataclass(frozen=True, slots=True)
class Timing:
    count_s: float
    search_s: float
    pack_s: float

    @property
    def total_s(self) -> float:
        return self.count_s + self.search_s + self.pack_s


@dataclass(frozen=True, slots=True)
class Gateway:
    """What of a gateway stands between a request and its generation."""

    library: LocalLibrary
    model: ModelText
    policy: Policy

    async def answer(self, text: str, question: Question) -> tuple[Timing, int, bool]:
        """Seconds, tokens of the whole prompt, and whether the planted sentence is cited."""
        started = time.perf_counter()
        segmented = self._segmented(text, question)
        prompt = await asyncio.to_thread(render_whole, segmented, self.model)
        counted = time.perf_counter()
        found = await self._found(segmented)
        searched = time.perf_counter()
        packed = await asyncio.to_thread(self._packed, segmented, found)
        timing = Timing(counted - started, searched - counted, time.perf_counter() - searched)
        citations = cite(question.answer, segmented.question, packed.readings)
        is_cited = any(question.place.sentence in cited.quote for cited in citations)
        return timing, len(prompt.ids), is_cited

    def _segmented(self, text: str, question: Question) -> Segmented:
        turn = Turn(role="user", text=f"{text}\n\n{question.question}")
        return segment([turn], {}, [], least_context_chars=self.policy.retrieval.inline_min_chars)

    async def _found(self, segmented: Segmented) -> list[Found]:
        """As `gateway.routes.retrieval` asks; all sources of this prompt are inside it."""
        sources = {str(i): source for i, source in enumerate(segmented.sources)}
        result = await self.library.search_inline(
            InlineSearch(
                documents=[InlineDocument(key, one.text) for key, one in sources.items()],
                query=segmented.question[:MAX_QUERY_CHARS],
                top_k=self.policy.retrieval.top_k,
                deadline_s=self.policy.retrieval.search_deadline_s,
            )
        )
        return [
            Found(
                sources[one.document_id],
                one.start,
                one.text,
                one.score,
                one.focus_start,
                one.focus_stop,
            )
            for one in result.passages
        ]

    def _packed(self, segmented: Segmented, found: list[Found]) -> Packed:
        settings = self.policy.retrieval
        budget = PackBudget(
            total_tokens=settings.total_tokens, passage_tokens=settings.passage_tokens
        )
        packed = pack(found, budget, settings.instruction, self.model.encoder)
        render_packed(segmented, packed.text, self.model)
        return packed


async def main() -> None:
    args = arguments()
    folder = await asyncio.to_thread(default_model_dir)
    model = await asyncio.to_thread(ModelText.build, read_folder(folder).tokenizer)
    firsts, seconds, cited = list[float](), list[float](), list[bool]()
    with tempfile.TemporaryDirectory() as data_dir:
        async with running_worker(Path(data_dir)) as worker:
            gateway = Gateway(worker.library, model, load_policy(None))
            for run in range(args.runs):
                case = await asyncio.to_thread(made, args.tokens, args.seed + run)
                asked = [one for one in case.key.questions if one.kind is not FactKind.TWO_HOP]
                for number, question in enumerate(asked):
                    timing, num_tokens, is_cited = await gateway.answer(
                        case.documents[0].text, question
                    )
                    if number < 2:
                        (firsts, seconds)[number].append(timing.total_s)
                    cited.append(is_cited)
                    report(number, num_tokens, timing, is_cited)
    figures = {
        "first_s": round(statistics.median(firsts), 3),
        "second_s": round(statistics.median(seconds), 3),
        "cited": round(statistics.fmean(cited), 3),
    }
    print(json.dumps(figures))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tokens", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--runs", type=int, default=3)
    return parser.parse_args()


def made(num_tokens: int, seed: int) -> CaseFile:
    return synthesize(CaseRequest(seed=seed, num_tokens=num_tokens), EstimateCounter())


def report(number: int, num_tokens: int, timing: Timing, is_cited: bool) -> None:
    print(
        f"question {number}: {num_tokens} tokens, counted in {timing.count_s:.2f} s, searched in"
        f" {timing.search_s:.2f} s, packed in {timing.pack_s:.3f} s,"
        f" {'cited' if is_cited else 'NOT cited'} (load {os.getloadavg()[0]:.1f})",
        flush=True,
    )


if __name__ == "__main__":
    asyncio.run(main())
