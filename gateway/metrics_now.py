"""Metrics that are read when somebody looks: what is open now, and what is known of upstreams.

Knows where the numbers are; counts nothing itself.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from engines.api import Engine
from gateway.drain import Drain
from gateway.tenancy.accounts import Accounts
from gateway.upstreams.breaker import Circuit
from gateway.upstreams.fleet import Fleet
from gateway.upstreams.replica import Replica

TOLD_TOKENS = (1_000, 10_000, 100_000, 1_000_000)
"""Lengths of prompts for which the learned deadline is told."""

Labelled = tuple[Sequence[str], Replica]


def watch(
    registry: CollectorRegistry,
    *,
    drain: Drain,
    accounts: Accounts,
    models: Mapping[str, Engine],
) -> None:
    """Have the registry tell, at every scrape, how these stand and what the process uses."""
    registry.register(OpenNow(drain, accounts))
    registry.register(UpstreamsNow(models))
    ProcessCollector(registry=registry)


class OpenNow(Collector):
    """All of these are 0 in a gateway that does nothing, but for its own few tasks."""

    def __init__(self, drain: Drain, accounts: Accounts) -> None:
        self._drain = drain
        self._accounts = accounts

    def collect(self) -> Iterable[Metric]:
        yield GaugeMetricFamily(
            "ringway_open_requests", "Requests being served.", value=self._drain.num_open
        )
        yield GaugeMetricFamily(
            "ringway_open_claims",
            "Reservations of limited keys that are not settled yet.",
            value=self._accounts.num_open,
        )
        try:
            num_tasks = len(asyncio.all_tasks())
        except RuntimeError:  # asked by a thread that runs no event loop
            return
        yield GaugeMetricFamily("ringway_tasks", "Tasks of the event loop.", value=num_tasks)


class UpstreamsNow(Collector):
    """By model and upstream, a replica's address without what a URL may hold of credentials."""

    def __init__(self, models: Mapping[str, Engine]) -> None:
        self._replicas: tuple[Labelled, ...] = tuple(
            ((model, _address(replica.name)), replica)
            for model, engine in models.items()
            if isinstance(engine, Fleet)
            for replica in engine.replicas
        )

    def collect(self) -> Iterable[Metric]:
        if self._replicas:
            yield self._circuits()
            yield self._openings()
            yield from self._loads()
            yield self._deadlines()

    def _circuits(self) -> Metric:
        told = GaugeMetricFamily(
            "ringway_upstream_circuit",
            "1 for the state of the upstream's circuit breaker, 0 for the others.",
            labels=("model", "upstream", "state"),
        )
        for names, replica in self._replicas:
            now = replica.breaker.circuit(replica.clock())
            for state in Circuit:
                told.add_metric([*names, state.value], float(state is now))
        return told

    def _openings(self) -> Metric:
        told = CounterMetricFamily(
            "ringway_upstream_circuit_openings",
            "How often the circuit opened, failed tries included.",
            labels=("model", "upstream"),
        )
        for names, replica in self._replicas:
            told.add_metric(names, replica.breaker.num_openings)
        return told

    def _loads(self) -> Iterator[Metric]:
        running = GaugeMetricFamily(
            "ringway_upstream_requests", "In flight.", labels=("model", "upstream")
        )
        waiting = GaugeMetricFamily(
            "ringway_upstream_waiting_tokens",
            "Prompt tokens in flight of which nothing was answered yet.",
            labels=("model", "upstream"),
        )
        for names, replica in self._replicas:
            running.add_metric(names, replica.num_running)
            waiting.add_metric(names, replica.waiting_tokens)
        yield running
        yield waiting

    def _deadlines(self) -> Metric:
        told = GaugeMetricFamily(
            "ringway_upstream_first_byte_deadline_seconds",
            "How long the first byte is waited for, as learned, by tokens of prompt.",
            labels=("model", "upstream", "prompt_tokens"),
        )
        for names, replica in self._replicas:
            for num_tokens in TOLD_TOKENS:
                deadline_s = replica.pace.deadline_s(num_tokens)
                told.add_metric([*names, str(num_tokens)], deadline_s)
        return told


def _address(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.netloc.rpartition('@')[2]}{parts.path.rstrip('/')}"
