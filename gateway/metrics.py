"""Names and buckets of every metric of the gateway, on a registry of its own."""

from asyncio import CancelledError
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from gateway.answers import Answered
from gateway.lengths import length_bucket
from gateway.routing import Plan
from gateway.tenancy.metered import Meter

SECONDS = (0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter(
            "ringway_requests",
            "Requests by how they ended: finished, failed or cancelled.",
            ["endpoint", "outcome", "code"],
            registry=self.registry,
        )
        self.routes = Counter(
            "ringway_routes",
            "Chosen routes, by why and by length of the prompt in tokens.",
            ["route", "requested", "cause", "length"],
            registry=self.registry,
        )
        self.tokenize_s = self._seconds(
            "ringway_tokenize_seconds", "Rendering and counting a prompt.", "length"
        )
        self.prefill_s = self._seconds(
            "ringway_prefill_seconds", "Prefill, as the engine measured it.", "route"
        )
        self.ttft_s = self._seconds(
            "ringway_time_to_first_token_seconds", "From body read to first text.", "route"
        )
        self.coverage = Histogram(
            "ringway_coverage_ratio",
            "Share of the context's tokens that the model read.",
            ["route"],
            buckets=(0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 1.0),
            registry=self.registry,
        )
        self.recall = Histogram(
            "ringway_recall_ratio",
            "Share of the question's attention that what was read again covers.",
            ["route"],
            buckets=(0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.75, 0.9, 1.0),
            registry=self.registry,
        )
        self.tokens = Counter(
            "ringway_tokens",
            "Tokens: prompt as sent and counted, read by the model, saved by reading less, cached, "
            "and completion.",
            ["route", "kind"],
            registry=self.registry,
        )

        self.refusals = Counter(
            "ringway_limit_refusals",
            "Requests refused by a limit of their key, by which: requests, tokens, long_prompts, "
            "budget, or unavailable.",
            ["limit"],
            registry=self.registry,
        )

        self.answers = Counter(
            "ringway_answers",
            "Planned requests by route, how they ended, and length of the prompt in tokens.",
            ["route", "outcome", "length"],
            registry=self.registry,
        )
        self.queue_s = self._seconds(
            "ringway_queue_seconds", "Waiting in the engine, as it measured it.", "route"
        )
        self.decode_s = self._seconds(
            "ringway_decode_seconds", "Writing the answer, as the engine measured it.", "route"
        )
        self.upstream_s = self._seconds(
            "ringway_upstream_seconds", "From asking the engine to its last event.", "route"
        )

    @asynccontextmanager
    async def answering(self, meter: Meter, prompt_tokens: int) -> AsyncIterator[None]:
        """Around an answer: how it ends, by the route that the meter knows in the end."""
        outcome = "finished"
        try:
            yield
        except (CancelledError, GeneratorExit):
            outcome = "cancelled"
            raise
        except Exception:
            outcome = "failed"
            raise
        finally:
            route = "none" if meter.route is None else meter.route.value
            self.answers.labels(route, outcome, length_bucket(prompt_tokens)).inc()
            for call in meter.calls:
                self.upstream_s.labels(route).observe(call.seconds)

    def refused(self, limit: str) -> None:
        self.refusals.labels(limit).inc()

    def planned(self, plan: Plan, num_tokens: int, count_s: float) -> None:
        length = length_bucket(num_tokens)
        cause = "fallback" if plan.fallback_from else "choice"
        self.routes.labels(plan.route, plan.requested, cause, length).inc()
        self.tokenize_s.labels(length).observe(count_s)

    def answered(self, event: Answered) -> None:
        facts = event.facts
        route = facts.plan.route
        if facts.plan.escalated_from:
            length = length_bucket(facts.prompt_tokens)
            self.routes.labels(route, facts.plan.requested, "escalation", length).inc()
        if facts.coverage is not None:
            self.coverage.labels(route).observe(facts.coverage)
        if facts.recall is not None:
            self.recall.labels(route).observe(facts.recall)
        if "prefill" in facts.timing_ms:
            self.prefill_s.labels(route).observe(facts.timing_ms["prefill"] / 1000)
        if "ttft" in facts.timing_ms:
            self.ttft_s.labels(route).observe(facts.timing_ms["ttft"] / 1000)
        for name, series in (("queue", self.queue_s), ("decode", self.decode_s)):
            if name in facts.timing_ms:
                series.labels(route).observe(facts.timing_ms[name] / 1000)
        saved = max(0, facts.prompt_tokens - event.usage.prompt_tokens)
        self.tokens.labels(route, "saved").inc(saved)
        self.tokens.labels(route, "prompt").inc(facts.prompt_tokens)
        self.tokens.labels(route, "read").inc(event.usage.prompt_tokens)
        self.tokens.labels(route, "cached").inc(event.usage.cached_tokens)
        self.tokens.labels(route, "completion").inc(event.usage.completion_tokens)

    def page(self) -> bytes:
        return generate_latest(self.registry)

    def _seconds(self, name: str, text: str, label: str) -> Histogram:
        return Histogram(name, text, [label], buckets=SECONDS, registry=self.registry)
