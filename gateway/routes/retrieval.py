"""The retrieval route: search, pack what is found, let the model read that, cite it."""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace

from engines.api import AttendedEvent, Attention
from gateway.answers import AnswerEvent, FoundPassage, Opened, Said
from gateway.asks import StoreScope
from gateway.citations import cite
from gateway.prompt.render import Prompt, render_packed
from gateway.prompt.segment import Segmented, Source, SourceKind, file_source
from gateway.routes.packing import Found, PackBudget, Packed, pack
from gateway.routes.task import Means, Task, answered
from gateway.routing import Plan
from gateway.stream import Ended, speak
from gateway.together import together
from ingest.api import InlineDocument, InlineSearch
from ingest.stores_api import StoreSearch
from retrieval.api import Passage, SearchRequest, SearchResult

MAX_QUERY_CHARS = 2000
EVERYTHING = StoreScope()

_Searched = tuple[Mapping[str, Source], SearchResult]


class WeakEvidence(Exception):
    """A verdict, caught by the answering loop only: `escalation` shall answer instead."""

    def __init__(self, escalation: Plan) -> None:
        super().__init__("weak evidence")
        self.escalation = escalation


async def answer_retrieval(task: Task, means: Means) -> AsyncGenerator[AnswerEvent, None]:
    """Raises WeakEvidence under `auto`, and what the library and `Engine.generate` raise."""
    searched_s = means.monotonic()
    ask = task.ask
    found, evidence = await find(task.segmented, ask.vector_store_ids, means, ask.store_scope)
    search_ms = (means.monotonic() - searched_s) * 1000
    least = means.policy.retrieval.min_evidence
    if task.escalation is not None and evidence < least:
        told = f"{task.escalation.reason} ({evidence:.3f}, less than {least:g})"
        raise WeakEvidence(replace(task.escalation, reason=told))
    packed, prompt = await asyncio.to_thread(_pack_prompt, task, found, means)
    facts = task.facts(
        tokens_read=task.num_tokens(prompt),
        coverage=_coverage(packed, task),
        evidence=evidence,
    )
    facts = replace(
        facts,
        timing_ms={"search": search_ms},
        query=task.segmented.question[:MAX_QUERY_CHARS],
        found=_of_files(found) if ask.vector_store_ids else (),
    )
    yield Opened(facts)
    request = task.request(prompt, Attention.FULL)
    said: list[str] = []
    async with aclosing(
        speak(means.engine, request, task.model, task.ask.stop, task.hearing)
    ) as events:
        async for event in events:
            if isinstance(event, Ended):
                citations = cite("".join(said), task.segmented.question, packed.readings)
                yield answered(event, replace(facts, citations=citations))
            elif not isinstance(event, AttendedEvent):
                if isinstance(event, Said):
                    said.append(event.text)
                yield event


def _coverage(packed: Packed, task: Task) -> float | None:
    if task.counts.has_stores:
        return None
    return min(1.0, packed.passage_tokens / max(1, task.counts.context_tokens))


def _of_files(found: Iterable[Found]) -> tuple[FoundPassage, ...]:
    return tuple(
        FoundPassage(
            file_id=one.source.id, filename=one.source.name, score=one.score, text=one.text
        )
        for one in found
        if one.source.kind is SourceKind.FILE
    )


async def find(
    segmented: Segmented,
    store_ids: Iterable[str],
    means: Means,
    scope: StoreScope = EVERYTHING,
) -> tuple[list[Found], float]:
    """Passages of all sources by falling score, and the best evidence of the searches."""
    files = {one.id: one for one in segmented.sources if one.kind is SourceKind.FILE}
    inline = {
        str(i): one
        for i, one in enumerate(segmented.sources)
        if one.kind is not SourceKind.FILE and one.text.strip()
    }
    query = segmented.question[:MAX_QUERY_CHARS]
    searches = []
    if files:
        searches.append(_search_files(files, query, means))
    if inline:
        searches.append(_search_inline(inline, query, means))
    searches += [_search_store(one, query, scope, means) for one in store_ids]
    top_k = max(means.policy.retrieval.top_k, scope.top_k or 0)
    return _merged(await together(*searches), top_k)


async def _search_files(sources: Mapping[str, Source], query: str, means: Means) -> _Searched:
    settings = means.policy.retrieval
    request = SearchRequest(
        query=query,
        document_ids=tuple(sources),
        top_k=settings.top_k,
        deadline_s=settings.search_deadline_s,
    )
    return sources, await means.library.search(request)


async def _search_store(store_id: str, query: str, scope: StoreScope, means: Means) -> _Searched:
    """The sources are the files that passages were found in."""
    settings = means.policy.retrieval
    search = StoreSearch(
        queries=[query],
        filter=scope.filter,
        top_k=scope.top_k or settings.top_k,
        score_threshold=scope.score_threshold,
        deadline_s=settings.search_deadline_s,
    )
    found = await means.library.stores.search(store_id, search)
    passages = [hit.passage for hit in found.hits]
    file_ids = dict.fromkeys(passage.document_id for passage in passages)
    texts = await together(*(means.library.text(one) for one in file_ids))
    sources = {text.file_id: file_source(text) for text in texts}
    return sources, SearchResult(
        passages=passages, evidence=found.evidence, num_searched=len(passages), seconds=0.0
    )


async def _search_inline(sources: Mapping[str, Source], query: str, means: Means) -> _Searched:
    settings = means.policy.retrieval
    request = InlineSearch(
        documents=[InlineDocument(key, one.text) for key, one in sources.items()],
        query=query,
        top_k=settings.top_k,
        deadline_s=settings.search_deadline_s,
    )
    return sources, await means.library.search_inline(request)


def _merged(results: Sequence[_Searched], top_k: int) -> tuple[list[Found], float]:
    found = [
        _found(passage, sources[passage.document_id])
        for sources, result in results
        for passage in result.passages
        if passage.document_id in sources
    ]
    found = _without_repeats(sorted(found, key=lambda one: -one.score))
    evidence = max((result.evidence for _, result in results), default=0.0)
    return found[:top_k], evidence


def _without_repeats(found: Iterable[Found]) -> list[Found]:
    """A file may be attached and lie in a store too: of passages that overlap, the first."""
    kept: list[Found] = []
    for one in found:
        same = (other for other in kept if other.source.id == one.source.id)
        if not any(
            other.start < one.start + len(one.text) and one.start < other.start + len(other.text)
            for other in same
        ):
            kept.append(one)
    return kept


def _found(passage: Passage, source: Source) -> Found:
    return Found(
        source,
        passage.start,
        passage.text,
        passage.score,
        passage.focus_start,
        passage.focus_stop,
    )


def _pack_prompt(task: Task, found: list[Found], means: Means) -> tuple[Packed, Prompt]:
    settings = means.policy.retrieval
    budget = PackBudget(total_tokens=settings.total_tokens, passage_tokens=settings.passage_tokens)
    packed = pack(found, budget, settings.instruction, task.model.encoder)
    return packed, render_packed(task.segmented, packed.text, task.model)
