"""Goes through a plan: builds every sample, asks it by every way, writes down what came back."""

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from gateway.evaluation.client import CountRefused, EvalClient, Failed, Refused, Reply
from gateway.evaluation.journal import Journal, Outcome, Record
from gateway.evaluation.plan import Arm, EvalPlan, EvaluationError, SampleKey
from gateway.evaluation.prompts import DoesNotFit, Prompt, PromptBuilder
from gateway.evaluation.scoring import num_said


@dataclass(frozen=True, slots=True, kw_only=True)
class Runner:
    """`on_asking` is told of every question that goes out, `on_record` of every record, those of
    an earlier run included."""

    plan: EvalPlan
    client: EvalClient
    builder: PromptBuilder
    journal: Journal
    on_record: Callable[[Record], None] = lambda _: None
    on_asking: Callable[[SampleKey, Arm], None] = lambda key, arm: None

    async def run(self, concurrency: int) -> None:
        """Samples side by side, the ways of one sample in turn. Raises EvaluationError.

        Whatever ends this, what was finished is on disk.
        """
        keys = self.plan.keys()
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(concurrency):
                    group.create_task(self._work(keys))
        except* EvaluationError as errors:
            failure: BaseException = errors
            while isinstance(failure, BaseExceptionGroup):
                failure = failure.exceptions[0]
            first = failure
        else:
            return
        raise first

    async def _work(self, keys: Iterator[SampleKey]) -> None:
        for key in keys:
            await self._sample(key)

    async def _sample(self, key: SampleKey) -> None:
        done = {arm: self.journal.finished(key, arm) for arm in self.plan.arms}
        for record in done.values():
            if record is not None:
                self.on_record(record)
        if all(done.values()):
            return
        pending = [arm for arm in self.plan.arms if done[arm] is None]
        try:
            prompt = await self.builder.build(key)
        except (DoesNotFit, CountRefused) as error:
            for arm in pending:
                self._keep(_record(key, arm, Outcome.NOT_ASKED, message=str(error)))
            return
        for arm in pending:
            self.on_asking(key, arm)
            self._keep(await self._ask(key, arm, prompt))

    def _keep(self, record: Record) -> None:
        self.journal.add(record)
        self.on_record(record)

    async def _ask(self, key: SampleKey, arm: Arm, prompt: Prompt) -> Record:
        if arm is Arm.TRUNCATE:
            budget = self._read_budget(key)
            if budget is None:
                why = "retrieval has read nothing that could be compared with"
                return _record(key, arm, Outcome.NOT_ASKED, message=why)
            try:
                prompt = await self.builder.truncated(prompt, min(budget, prompt.num_tokens))
            except DoesNotFit as error:
                return _record(key, arm, Outcome.NOT_ASKED, message=str(error))
        match await self.client.ask(prompt.content, arm):
            case Refused(code, message, limit):
                refused = _record(key, arm, Outcome.REFUSED, prompt=prompt, message=message)
                return replace(refused, code=code, limit=limit)
            case Failed(message):
                return _record(key, arm, Outcome.FAILED, prompt=prompt, message=message)
            case Reply() as reply:
                return _answered(key, arm, prompt, reply)

    def _read_budget(self, key: SampleKey) -> int | None:
        if self.plan.read_tokens is not None:
            return self.plan.read_tokens
        found = self.journal.finished(key, Arm.RETRIEVAL)
        return found.tokens_read if found else None


def _record(
    key: SampleKey,
    arm: Arm,
    outcome: Outcome,
    *,
    prompt: Prompt | None = None,
    message: str | None = None,
) -> Record:
    return Record(
        task=key.task,
        length=key.length,
        depth=key.depth,
        number=key.number,
        arm=arm,
        outcome=outcome,
        digest=prompt.digest if prompt else "",
        counted_tokens=prompt.num_tokens if prompt else 0,
        wanted=prompt.planted.wanted if prompt else (),
        message=message,
    )


def _answered(key: SampleKey, arm: Arm, prompt: Prompt, reply: Reply) -> Record:
    if reply.broken is not None:
        return _record(key, arm, Outcome.FAILED, prompt=prompt, message=reply.broken.message)
    ringway, usage = reply.ringway, reply.usage
    details = usage.prompt_tokens_details if usage else None
    return Record(
        task=key.task,
        length=key.length,
        depth=key.depth,
        number=key.number,
        arm=arm,
        outcome=Outcome.ANSWERED,
        digest=prompt.digest,
        counted_tokens=prompt.num_tokens,
        wanted=prompt.planted.wanted,
        answer=reply.text,
        said=num_said(reply.text, prompt.planted.wanted),
        decoys_said=num_said(reply.text, prompt.planted.decoys),
        route=ringway.route if ringway else None,
        prompt_tokens=_first(ringway and ringway.prompt_tokens, usage and usage.prompt_tokens),
        billed_tokens=usage.prompt_tokens if usage else None,
        cached_tokens=details.cached_tokens if details else None,
        answer_tokens=usage.completion_tokens if usage else None,
        tokens_read=_first(ringway and ringway.tokens_read, usage and usage.prompt_tokens),
        evidence=ringway.evidence if ringway else None,
        recall=ringway.recall if ringway else None,
        coverage=ringway.coverage if ringway else None,
        first_token_s=reply.first_token_s,
        total_s=reply.total_s,
        timing_ms=ringway.timing_ms if ringway else {},
    )


def _first(*values: object) -> int | None:
    return next((value for value in values if isinstance(value, int)), None)
