"""Names and buckets of every metric of the gateway, on a registry of its own."""

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest

from gateway.answers import Answered
from gateway.routing import Plan

LENGTH_BUCKETS = (1024, 4096, 16_384, 65_536, 262_144, 1_048_576)
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
        self.tokens = Counter(
            "ringway_tokens",
            "Tokens: prompt as sent, read by the model, cached, and completion.",
            ["route", "kind"],
            registry=self.registry,
        )

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
        if "prefill" in facts.timing_ms:
            self.prefill_s.labels(route).observe(facts.timing_ms["prefill"] / 1000)
        if "ttft" in facts.timing_ms:
            self.ttft_s.labels(route).observe(facts.timing_ms["ttft"] / 1000)
        self.tokens.labels(route, "prompt").inc(facts.prompt_tokens)
        self.tokens.labels(route, "read").inc(event.usage.prompt_tokens)
        self.tokens.labels(route, "cached").inc(event.usage.cached_tokens)
        self.tokens.labels(route, "completion").inc(event.usage.completion_tokens)

    def page(self) -> bytes:
        return generate_latest(self.registry)

    def _seconds(self, name: str, text: str, label: str) -> Histogram:
        return Histogram(name, text, [label], buckets=SECONDS, registry=self.registry)


def length_bucket(num_tokens: int) -> str:
    """The least bucket that holds the length, as a label."""
    for bucket in LENGTH_BUCKETS:
        if num_tokens <= bucket:
            return f"<={bucket}"
    return f">{LENGTH_BUCKETS[-1]}"
