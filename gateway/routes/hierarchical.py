"""The hierarchical route: all chunks read once, the few that matter attended exactly and cited."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from engines.api import AttendedEvent, Attention
from gateway.answers import AnswerEvent, Facts, Opened, Said
from gateway.citations import Reading, cite
from gateway.prompt.render import locate
from gateway.routes.task import Means, Task, answered
from gateway.stream import Ended, speak


async def answer_hierarchical(task: Task, means: Means) -> AsyncGenerator[AnswerEvent, None]:
    """Raises what `Engine.generate` raises."""
    facts = task.facts(tokens_read=task.num_tokens(task.prompt), coverage=1.0)
    yield Opened(facts)
    request = task.request(task.prompt, Attention.HIERARCHICAL)
    attended: AttendedEvent | None = None
    said: list[str] = []
    async with aclosing(
        speak(means.engine, request, task.model, task.ask.stop, task.hearing)
    ) as events:
        async for event in events:
            match event:
                case AttendedEvent():
                    attended = event
                case Ended():
                    facts = await asyncio.to_thread(
                        _with_citations, task, facts, attended, "".join(said)
                    )
                    yield answered(event, facts)
                case Said():
                    said.append(event.text)
                    yield event
                case _:
                    yield event


def _with_citations(task: Task, facts: Facts, attended: AttendedEvent | None, answer: str) -> Facts:
    if attended is None:
        return facts
    readings = [
        Reading(
            source=excerpt.source,
            start=excerpt.start,
            stop=excerpt.stop,
            score=span.mass,
            text=excerpt.source.text[excerpt.start : excerpt.stop],
        )
        for span in attended.spans
        for excerpt in locate(task.prompt, span.start, span.stop, task.model)
    ]
    citations = cite(answer, task.segmented.question, readings)
    return replace(facts, recall=attended.recall, citations=citations)
