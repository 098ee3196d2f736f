"""The course of a soak: warm-up, generations of keys under load, a rest, and a last look.

Knows no processes and judges nothing itself: `house` runs and shows them, `verdict` judges.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from gateway.tenancy.api import Grants
from gateway.tenancy.keys import KeyBook
from gateway.together import beside
from tests.bench.soaking import verdict
from tests.bench.soaking.house import House, Sample
from tests.bench.soaking.ledger import End, Record
from tests.bench.soaking.load import (
    CHAT,
    IDS,
    SHARES,
    WORKER_SHARES,
    Client,
    Key,
    Keys,
    Scenario,
    new_long_chat,
)
from tests.bench.soaking.report import Report

GENERATION_S = 30.0
CHECKED_WITHIN_S = 57.0
"""What a generation's first request took leaves the window after 60 s."""

WIDE_TOKENS = 10**9
TIGHT_TOKENS = 3_000
LONG_PROMPTS = 2
BUDGET_MICROS = 10**15
SAMPLE_EVERY_S = 2.0
LOOK_EVERY_S = 0.5
WARM_PROMPTS = 45
"""New long prompts that fill each tokenizer's memory of 4 million tokens."""

MICROS = "charged_micros"
WARM_SHARE = 0.3
WARM_S = 180.0
STUCK = (
    "ringway_open_requests",
    "ringway_open_claims",
    "ringway_upstream_requests",
    "ringway_upstream_waiting_tokens",
)
"""Gauges that are 0 when nobody asks anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """`rate` is requests begun per second; after `rest_s` everybody who left has been noticed;
    `fills`: the warm-up fills the memories of counted texts."""

    minutes: float = 10.0
    rate: float = 5.0
    disconnects: float = 0.02
    faults: float = 0.01
    seed: int = 7
    rest_s: float = 6.0
    with_worker: bool = True
    fills: bool = True


@dataclass(slots=True)
class Soak:
    house: House
    plan: Plan
    book: KeyBook
    client: Client
    report: Report = field(default_factory=Report)
    samples: list[Sample] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    past: list[Keys] = field(default_factory=list)
    """Of all generations."""

    async def run(self) -> Report:
        await self._warm_up()
        before = await self._rested()
        began_s = time.monotonic()
        end_s = began_s + self.plan.minutes * 60
        async with (
            beside(self._sample()),
            beside(self._watch_itself()),
            asyncio.TaskGroup() as group,
        ):
            while time.monotonic() < end_s - 1:
                await self._generation(min(GENERATION_S, end_s - time.monotonic()), group)
        await self._probe_long_places()
        await self._look(before, await self._rested(), began_s)
        return self.report

    async def _warm_up(self) -> None:
        keys = await self._keys()
        shares = self._shares()
        num_each = 2
        work = [scenario(self.client, keys) for scenario in shares for _ in range(num_each)]
        await asyncio.gather(*(self._guarded(one) for one in work))
        if self.plan.fills:
            for _ in range(WARM_PROMPTS * len((CHAT, IDS))):
                await self._guarded(new_long_chat(self.client, keys))

    async def _generation(self, seconds: float, group: asyncio.TaskGroup) -> None:
        """A while of load on new keys; they are checked while the next ones are used."""
        keys = await self._keys()
        self.past.append(keys)
        began_s = time.monotonic()
        shares, rng = self._shares(), self.client.rng
        running = []
        while time.monotonic() < began_s + seconds:
            [scenario] = rng.choices(list(shares), list(shares.values()))
            work = self._guarded(scenario(self.client, keys))
            running.append(group.create_task(work))
            await asyncio.sleep(rng.expovariate(self.plan.rate))
        group.create_task(self._checked(keys, running, began_s + CHECKED_WITHIN_S))

    async def _checked(
        self, keys: Keys, running: Sequence["asyncio.Task[None]"], until_s: float
    ) -> None:
        """Once all its requests ended: what each key has left, and what was charged to it."""
        await asyncio.wait(running, timeout=max(0.0, until_s - time.monotonic()))
        has_settled = await self._settled(keys, until_s)
        if not all(one.done() for one in running) or not has_settled:
            self.report.generations_unchecked += 1
            starved_s = self.report.starved_s
            print(f"a generation ended too late to be checked; starved {starved_s} s", flush=True)
            return
        self.report.generations_checked += 1
        lines = verdict.request_lines(await asyncio.to_thread(self.house.log))
        charged = verdict.charged(lines, self.client.ledger, "charged_tokens")
        for key in keys.all:
            used = await self._used(key)
            # An upstream may count more than was reserved; "none left" then hides by how much.
            told = min(charged.get(key.id, 0), TIGHT_TOKENS if key is keys.tight else WIDE_TOKENS)
            if used is not None and used != told:
                print(f"{key.id}: {used} tokens counted, {told} charged", flush=True)
                self.report.limit_error_tokens += abs(used - told)

    async def _settled(self, keys: Keys, until_s: float) -> bool:
        """Whether everybody who left has been noticed: the counts stand still for a second."""
        seen: Sequence[int | None] = ()
        while time.monotonic() < until_s - 2:
            await asyncio.sleep(1.0)
            now = [await self._used(key) for key in keys.all]
            if now == seen and None not in now:
                return True
            seen = now
        return False

    async def _used(self, key: Key) -> int | None:
        """None without an answer, which the ledger then tells."""
        reply = await self.client.ask("standing", key, "GET", "/v1/models")
        if reply is None or "x-ratelimit-limit-tokens" not in reply.headers:
            return None
        limit = reply.headers["x-ratelimit-limit-tokens"]
        return int(limit) - int(reply.headers["x-ratelimit-remaining-tokens"])

    async def _keys(self) -> Keys:
        wide = Grants(tokens_per_min=WIDE_TOKENS, monthly_budget_micros=BUDGET_MICROS)
        return Keys(
            wide=await self._issued(wide),
            tight=await self._issued(replace(wide, tokens_per_min=TIGHT_TOKENS)),
            long=await self._issued(replace(wide, long_prompts=LONG_PROMPTS)),
        )

    async def _issued(self, grants: Grants) -> Key:
        key, text = await self.book.create(
            name="soak", tenant="soak", grants=grants, expires_at=None
        )
        return Key(key.id, text)

    def _shares(self) -> Mapping[Scenario, float]:
        return WORKER_SHARES if self.house.has_worker else SHARES

    async def _guarded(self, work: Awaitable[object]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - a user that breaks is told at the end
            self.failures.append(repr(error))

    async def _sample(self) -> None:
        while True:
            with suppress(TimeoutError):  # a machine too busy to tell: the next one will be told
                self.samples.append(await asyncio.to_thread(self.house.sample))
            await asyncio.sleep(SAMPLE_EVERY_S)

    async def _watch_itself(self) -> None:
        while True:
            asleep_s = time.monotonic()
            await asyncio.sleep(LOOK_EVERY_S)
            late_s = time.monotonic() - asleep_s - LOOK_EVERY_S
            self.report.starved_s = round(max(self.report.starved_s, late_s), 1)

    async def _rested(self) -> Sample:
        """The gateway with nothing to do; two short requests let it drop stale connections."""
        await asyncio.sleep(self.plan.rest_s)
        keys = await self._keys()
        for model in (CHAT, IDS):
            body = {"model": model, "messages": [{"role": "user", "content": "Hello."}]}
            await self.client.ask(
                "rest", keys.wide, "POST", "/v1/chat/completions", body, stays=True
            )
        await asyncio.sleep(1.0)
        return await asyncio.to_thread(self.house.sample)

    async def _probe_long_places(self) -> None:
        """As many long prompts at a time as a key may have, on every key that had some."""
        text = f"{self.client.texts.long}\n\nWhat?"
        path, body = "/v1/chat/completions", self.client.chat(text, model=CHAT)
        for key in (keys.long for keys in self.past):
            asks = (
                self.client.ask("probe", key, "POST", path, body, stays=True)
                for _ in range(LONG_PROMPTS)
            )
            replies = await asyncio.gather(*asks)
            refused = sum(one is not None and one.status == 429 for one in replies)
            self._found("places for long prompts taken by nobody", refused)
            self.report.stuck_slots += refused

    async def _look(self, before: Sample, after: Sample, began_s: float) -> None:
        report, ledger = self.report, self.client.ledger
        log = await asyncio.to_thread(self.house.log)
        lines = verdict.request_lines(log)
        await self._look_at_slots()
        ended = verdict.ended_once(ledger, lines)
        report.not_ended_once = self._found("not ended once", ended.num_wrong, ended.wrong)
        wrong_usage = verdict.usage_errors(ledger, lines)
        wrong_tokens = sum(map(abs, wrong_usage.values()))
        report.limit_error_tokens += self._found("told and charged", wrong_tokens, wrong_usage)
        report.budget_error_micros = self._budget_errors(verdict.charged(lines, ledger, MICROS))
        broken = [f"{one.kind} {one.request_id}" for one in ledger.with_end(End.BROKEN)]
        report.unanswered = self._found("unanswered", len(broken), broken)
        errors = verdict.told_errors(log)
        report.errors_logged = self._found("errors logged", len(errors), errors)
        report.broken_users = self._found("users broken", len(self.failures), self.failures)
        report.requests = len(ledger.records)
        report.answered = len(ledger.with_end(End.ANSWERED))
        report.disconnects = len(ledger.with_end(End.LEFT))
        report.fds_more = after.fds - before.fds
        report.threads_more = after.threads - before.threads
        report.tasks_more = after.tasks - before.tasks
        warm_s = min(WARM_S, WARM_SHARE * self.plan.minutes * 60)
        grown = verdict.growth(self.samples, began_s + warm_s)
        report.rss_growth, report.rss_growth_mb = round(grown.share, 4), round(grown.mb, 2)
        print(verdict.table([before, *self.samples, after]))
        print("by kind and end:", dict(Counter(f"{r.kind}: {r.end}" for r in self._records())))

    async def _look_at_slots(self) -> None:
        metrics = await asyncio.to_thread(self.house.metrics)
        upstream = await asyncio.to_thread(self.house.upstream)
        stuck = {name: int(metrics[name]) for name in STUCK if metrics[name]}
        if upstream["open"]:
            stuck["open at the upstream"] = int(upstream["open"])
        self.report.stuck_slots += self._found("stuck", sum(stuck.values()), stuck)
        self.report.upstream_faults = sum(upstream["faults"].values())
        print("upstream:", upstream)

    def _budget_errors(self, charged: Mapping[str, int]) -> int:
        spent = self.house.spent_micros()
        wrong = {
            key_id: (spent.get(key_id, 0), charged.get(key_id, 0))
            for key_id in {*spent, *charged}
            if spent.get(key_id, 0) != charged.get(key_id, 0)
        }
        return self._found("spent and charged", sum(abs(a - b) for a, b in wrong.values()), wrong)

    def _records(self) -> Iterable[Record]:
        return self.client.ledger.records.values()

    def _found(self, what: str, amount: int, details: object = "") -> int:
        if amount:
            print(f"{what}: {amount} {str(details)[:2000]}", flush=True)
        return amount
