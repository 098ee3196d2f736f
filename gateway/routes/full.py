"""The full route: every token attends to every token before it."""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from engines.api import AttendedEvent, Attention
from gateway.answers import AnswerEvent, Opened
from gateway.routes.task import Means, Task, answered
from gateway.stream import Ended, speak


async def answer_full(task: Task, means: Means) -> AsyncGenerator[AnswerEvent, None]:
    """Raises what `Engine.generate` raises."""
    facts = task.facts(tokens_read=task.num_tokens(task.prompt), coverage=1.0)
    yield Opened(facts)
    request = task.request(task.prompt, Attention.FULL)
    async with aclosing(
        speak(means.engine, request, task.model, task.ask.stop, task.hearing)
    ) as events:
        async for event in events:
            if isinstance(event, Ended):
                yield answered(event, facts)
            elif not isinstance(event, AttendedEvent):
                yield event
