"""The hierarchical route on an engine whose KV nobody can reach: notes on parts, then an answer.

Every part of the context is read with the question, a few at a time, and what bears on it is
noted; the answer is written from the notes. A part that cannot be read fails the request:
nothing is skipped. Knows no HTTP and no wire format.
"""

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace

from engines.api import (
    Attention,
    EngineBusy,
    EngineInfo,
    EngineLost,
    FinishReason,
    RequestExpired,
    Sampling,
)
from gateway.answers import Answered, AnswerEvent, Facts, Opened, Progress, Said, Usage
from gateway.asks import Tools
from gateway.citations import Reading, cite
from gateway.prompt.render import Prompt, render_packed
from gateway.prompt.segment import Segmented
from gateway.routes.cutting import Part, cut_sources, text_of
from gateway.routes.full import answer_full
from gateway.routes.task import Means, Task, answered
from gateway.routing import EngineFacts
from gateway.stream import Ended, speak

METHOD = "map_reduce"

AT_ONCE = 4
NOTE_TOKENS = 384
PART_TOKENS = 16_384
"""A part is no longer than this, however much the engine holds: notes on more leave things out."""

FRAME_TOKENS = 256
"""Instruction, template and markers around a part or around the notes."""

MOST_PARTS = 512
TRIES = 2

NOTE_INSTRUCTION = (
    "Above is one part of a longer text. Note every fact in this part that bears on the question "
    "below, with names, numbers and dates in the part's own words, one per line. Do not answer the "
    "question. If nothing in this part bears on it, write only: NONE"
)
MERGE_INSTRUCTION = (
    "Above are notes on parts of a longer text, each with its number. Join them into one list "
    "without repeating a fact; keep names, numbers, dates and the [numbers]. Do not answer the "
    "question below."
)
ANSWER_INSTRUCTION = (
    "Above are notes on all parts of a longer text, each with its number. Answer from them, and "
    "cite them as [1], [2]."
)
NOTHING_FOUND = "(No part of the text holds anything that bears on the question.)"


@dataclass(frozen=True, slots=True)
class _Note:
    """What was noted in parts `numbers`; empty when nothing bears on the question."""

    numbers: tuple[int, ...]
    text: str
    usage: Usage

    @property
    def block(self) -> str:
        marks = ", ".join(str(number) for number in self.numbers)
        return f"[{marks}]\n{self.text}" if len(self.numbers) == 1 else self.text


@dataclass(slots=True)
class _Book:
    """The notes in the order of their parts, what they cost, and which parts had any."""

    notes: list[_Note] = field(default_factory=list)
    spent: list[Usage] = field(default_factory=list)
    found: set[int] = field(default_factory=set)

    def add(self, note: _Note) -> None:
        self.spent.append(note.usage)
        if note.text:
            self.notes.append(note)
            self.notes.sort(key=lambda one: one.numbers)


def needs_map_reduce(info: EngineInfo) -> bool:
    return Attention.HIERARCHICAL not in info.context_tokens and info.kv_budget_tokens == 0


def with_map_reduce(info: EngineInfo) -> EngineFacts:
    """The engine's facts, and what map-reduce adds to them."""
    if not needs_map_reduce(info):
        return EngineFacts(info.context_tokens)
    room = max(0, part_tokens(info.context_tokens[Attention.FULL], 0))
    return EngineFacts({**info.context_tokens, Attention.HIERARCHICAL: MOST_PARTS * room})


def part_tokens(context_tokens: int, question_tokens: int) -> int:
    """What of a part fits beside the question, the frame and a note; less than 1: nothing does."""
    return min(PART_TOKENS, context_tokens - question_tokens - FRAME_TOKENS - NOTE_TOKENS)


async def answer_map_reduce(task: Task, means: Means) -> AsyncGenerator[AnswerEvent, None]:
    """Raises what `Engine.generate` raises; EngineLost names the part that could not be read."""
    if task.ask.raw is not None or not task.segmented.sources:
        async with aclosing(answer_full(task, means)) as events:
            async for event in events:
                yield event
        return
    parts = await asyncio.to_thread(_parts, task)
    reason = f"{task.plan.reason}; by {METHOD} over {len(parts)} parts"
    task = replace(task, plan=replace(task.plan, reason=reason))
    facts = replace(
        task.facts(tokens_read=task.num_tokens(task.prompt), coverage=1.0), method=METHOD
    )
    yield Opened(facts)
    book = _Book()
    async with aclosing(_read(parts, book, task, means)) as reading:
        async for progress in reading:
            yield progress
    prompt = await asyncio.to_thread(_answer_prompt, task, book.notes)
    said: list[str] = []
    async with aclosing(_answer(task, means, prompt, facts)) as events:
        async for event in events:
            if isinstance(event, Said):
                said.append(event.text)
            if isinstance(event, Answered):
                event = await asyncio.to_thread(_concluded, event, book, task, parts, "".join(said))
            yield event


def _parts(task: Task) -> list[Part]:
    room = part_tokens(_window(task), task.counts.question_tokens)
    if room < FRAME_TOKENS:
        raise EngineLost(f"the question leaves {room} tokens for a part of the text: too few")
    return cut_sources(task.segmented.sources, room, task.model.encoder)


async def _read(
    parts: Sequence[Part], book: "_Book", task: Task, means: Means
) -> AsyncGenerator[Progress, None]:
    """Fill the book with notes on all parts, joined until they fit beside the question."""
    work = [((i + 1,), f"{text_of(part)}\n\n{NOTE_INSTRUCTION}") for i, part in enumerate(parts)]
    total = task.num_tokens(task.prompt)
    async with aclosing(_noted(work, task, means)) as noting:
        async for note in noting:
            book.add(note)
            yield Progress(total * len(book.spent) // len(parts), total)
    book.found = {number for note in book.notes for number in note.numbers}
    while groups := _too_many(book.notes, task):
        book.notes = []
        async with aclosing(_noted(groups, task, means)) as noting:
            async for note in noting:
                book.add(note)
                yield Progress(total, total)


def _window(task: Task) -> int:
    return task.engine_facts.context_tokens.get(Attention.FULL, 0)


async def _noted(
    work: Sequence[tuple[tuple[int, ...], str]], task: Task, means: Means
) -> AsyncGenerator[_Note, None]:
    """Notes as they come, a few in the making at a time. The first failure ends all.

    A failure travels as a value: an exception inside the group would cancel whoever reads this
    generator, not the generator.
    """
    done: asyncio.Queue[_Note | Exception] = asyncio.Queue()
    waiting = iter(work)

    async def worker() -> None:
        for numbers, text in waiting:
            try:
                done.put_nowait(await _note(numbers, text, len(work), task, means))
            except Exception as error:  # noqa: BLE001 - raised by the reader, where it is heard
                done.put_nowait(error)
                return

    async with asyncio.TaskGroup() as group:
        workers = [group.create_task(worker()) for _ in range(min(AT_ONCE, len(work)))]
        try:
            for _ in work:
                note = await done.get()
                if isinstance(note, Exception):
                    raise note
                yield note
        finally:
            for one in workers:
                one.cancel()


async def _note(
    numbers: tuple[int, ...], text: str, num_parts: int, task: Task, means: Means
) -> _Note:
    """Tried twice. Raises EngineLost with the part's number, or the engine's own refusal."""
    own = _noting(task, f"{task.request_id}-{'.'.join(map(str, numbers[:2]))}")
    prompt = await asyncio.to_thread(render_packed, own.segmented, text, own.model)
    for attempt in range(1, TRIES + 1):
        try:
            return await _listened(numbers, prompt, own, means)
        except (EngineLost, EngineBusy, RequestExpired) as error:
            if attempt < TRIES and means.monotonic() < task.deadline_s:
                continue
            if isinstance(error, EngineBusy):
                raise
            where = f"part {numbers[0]} of {num_parts}"
            raise EngineLost(
                f"{where} could not be read, tried {attempt} times: {error}"
            ) from error
    raise AssertionError("every try returns or raises")


async def _listened(numbers: tuple[int, ...], prompt: Prompt, own: Task, means: Means) -> _Note:
    said: list[str] = []
    request = own.request(prompt, Attention.FULL)
    async with aclosing(speak(means.engine, request, own.model, ())) as events:
        async for event in events:
            if isinstance(event, Said):
                said.append(event.text)
            if isinstance(event, Ended):
                facts = own.facts(tokens_read=own.num_tokens(prompt), coverage=None)
                usage = answered(event, facts).usage
                return _Note(numbers, _cleaned("".join(said), event.reason), usage)
    raise AssertionError("speech ends with Ended")


def _cleaned(text: str, reason: FinishReason) -> str:
    text = text.strip()
    if text.strip(" .*\"'").upper() == "NONE":
        return ""
    return f"{text} … (cut short)" if reason is FinishReason.LENGTH else text


def _noting(task: Task, request_id: str) -> Task:
    """The task with a note for an answer: plain text, short, always the same. What pictures show
    is for the answer, which sees them once."""
    ask = replace(
        task.ask,
        n=1,
        tools=Tools(),
        json_format=None,
        stop=(),
        sampling=Sampling(temperature=0, seed=task.ask.sampling.seed),
        max_new_tokens=NOTE_TOKENS,
    )
    return replace(
        task,
        request_id=request_id,
        ask=ask,
        plan=replace(task.plan, max_new_tokens=NOTE_TOKENS),
        segmented=_without_images(replace(task.segmented, tools=())),
        image_tokens=0,
    )


def _without_images(segmented: Segmented) -> Segmented:
    turns = tuple(replace(one, turn=replace(one.turn, images=())) for one in segmented.turns)
    return replace(segmented, turns=turns)


def _too_many(notes: Sequence[_Note], task: Task) -> list[tuple[tuple[int, ...], str]]:
    """Groups of notes to be joined, two or more in each but the last; none when all notes fit
    beside the question."""
    room = part_tokens(_window(task), task.counts.question_tokens)
    answer_room = _window(task) - task.counts.question_tokens - FRAME_TOKENS
    answer_room -= task.plan.max_new_tokens
    sizes = [len(task.model.encoder.encode(note.block).ids) + 2 for note in notes]
    if sum(sizes) <= max(answer_room, 0) or len(notes) < 2:
        return []
    groups: list[list[_Note]] = [[]]
    filled = 0
    for note, size in zip(notes, sizes, strict=True):
        if len(groups[-1]) >= 2 and filled + size > room:
            groups.append([])
            filled = 0
        groups[-1].append(note)
        filled += size
    return [
        (
            tuple(number for note in group for number in note.numbers),
            "\n\n".join(note.block for note in group) + f"\n\n{MERGE_INSTRUCTION}",
        )
        for group in groups
    ]


def _answer_prompt(task: Task, notes: Sequence[_Note]) -> Prompt:
    text = "\n\n".join(note.block for note in notes) or NOTHING_FOUND
    return render_packed(task.segmented, f"{text}\n\n{ANSWER_INSTRUCTION}", task.model)


async def _answer(
    task: Task, means: Means, prompt: Prompt, facts: Facts
) -> AsyncGenerator[AnswerEvent, None]:
    request = task.request(prompt, Attention.FULL)
    speech = speak(means.engine, request, task.model, task.ask.stop, task.hearing)
    async with aclosing(speech) as events:
        async for event in events:
            if isinstance(event, Ended):
                yield answered(event, replace(facts, tokens_read=task.num_tokens(prompt)))
            elif isinstance(event, AnswerEvent) and not isinstance(event, Progress):
                yield event


def _concluded(
    end: Answered, book: _Book, task: Task, parts: Sequence[Part], answer: str
) -> Answered:
    """The answer's end with the usage of all that was read, and quotes from the noted parts."""
    usages = [*book.spent, end.usage]
    usage = Usage(
        prompt_tokens=sum(one.prompt_tokens for one in usages),
        cached_tokens=sum(one.cached_tokens for one in usages),
        completion_tokens=sum(one.completion_tokens for one in usages),
        reasoning_tokens=sum(one.reasoning_tokens for one in usages),
    )
    readings = [
        Reading(
            source=one.source,
            start=one.start,
            stop=one.stop,
            score=1.0,
            text=one.source.text[one.start : one.stop],
            number=number,
        )
        for number in sorted(book.found)
        for one in parts[number - 1]
    ]
    citations = cite(answer, task.segmented.question, readings)
    facts = replace(end.facts, tokens_read=usage.prompt_tokens, citations=citations)
    return replace(end, usage=usage, facts=facts)
