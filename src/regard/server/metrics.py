"""Figures for Prometheus, in a registry of their own: nothing here depends on what else runs in the process."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from regard.server.runs import ServedRuns
    from regard.tasks.translate.translation import Translation


CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
OTHER = "other"
"""Stands for every address that is no route: what clients make up must not become a label."""


class ServerMetrics:
    """What the server counts."""

    def __init__(self, fleet: ServedRuns):
        registry = self.registry = CollectorRegistry()
        labels = ["method", "route", "status"]
        self.requests = Counter("regard_requests", "Requests answered", labels, registry=registry)
        self.seconds = Histogram(
            "regard_request_seconds", "Time to answer", ["route"], buckets=SECONDS, registry=registry
        )
        self.open = Gauge("regard_requests_open", "Requests being answered now", registry=registry)
        self.texts = Counter("regard_texts", "Texts translated or replied to", ["model"], registry=registry)
        self.tokens = Counter("regard_tokens", "Tokens written", ["model"], registry=registry)
        registry.register(_Queues(fleet))

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        """One request was answered."""
        self.requests.labels(method, route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def wrote(self, model: str, answers: Iterable[Translation]) -> None:
        """These answers were given."""
        for answer in answers:
            self.texts.labels(model).inc()
            self.tokens.labels(model).inc(len(answer.tokens))

    def exposition(self) -> bytes:
        """The figures in Prometheus' text form."""
        return generate_latest(self.registry)


class _Queues(Collector):
    """Figures that the queues keep themselves, read when they are asked for.

    The mean size of a batch is the rate of `regard_batch_items_total` over that of `regard_batches_total`.
    """

    def __init__(self, fleet: ServedRuns):
        self.fleet = fleet

    def collect(self) -> Iterator[Metric]:
        """One figure after the other, by model and queue."""
        labels = ["model", "queue"]
        waiting = GaugeMetricFamily("regard_queue_waiting", "Items that wait", labels=labels)
        working = GaugeMetricFamily("regard_queue_working", "Items being worked on", labels=labels)
        counts = {
            "batches": CounterMetricFamily("regard_batches", "Batches started", labels=labels),
            "items": CounterMetricFamily("regard_batch_items", "Items in these batches", labels=labels),
            "refused": CounterMetricFamily("regard_queue_refused", "Requests refused for want of room", labels=labels),
            "late": CounterMetricFamily("regard_queue_late", "Requests that missed their deadline", labels=labels),
            "waited": CounterMetricFamily("regard_queue_waited_seconds", "Time that items waited", labels=labels),
            "worked": CounterMetricFamily("regard_batch_seconds", "Time that batches took", labels=labels),
        }
        for served in self.fleet.served.values():
            for name, queue in served.queues.items():
                where = [served.name, name]
                waiting.add_metric(where, queue.waiting)
                working.add_metric(where, queue.working)
                for counter, family in counts.items():
                    family.add_metric(where, getattr(queue.counters, counter))
        yield from (waiting, working, *counts.values())
