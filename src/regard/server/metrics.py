"""Metrics for Prometheus, in a separate registry, without the library's default metrics of the process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from regard.server.runs import ServedRuns

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)
OTHER = "other"
"""Label of requests to unknown paths or with unknown methods. Otherwise clients could create any number of labels."""


class ServerMetrics(Collector):
    """Metrics of requests, texts, tokens and queues. The values of the queues are read when the metrics are requested.

    The mean size of a batch is the rate of `regard_batch_items_total` divided by the rate of `regard_batches_total`.
    """

    def __init__(self, runs: ServedRuns):
        registry = self.registry = CollectorRegistry()
        labels = ["method", "route", "status"]
        self.requests = Counter("regard_requests", "Requests answered", labels, registry=registry)
        self.seconds = Histogram(
            "regard_request_seconds", "Time to answer", ["route"], buckets=SECONDS, registry=registry
        )
        self.open = Gauge("regard_requests_open", "Requests being answered now", registry=registry)
        self.texts = Counter("regard_texts", "Texts answered", ["model"], registry=registry)
        self.tokens = Counter("regard_tokens", "Tokens written", ["model"], registry=registry)
        self.runs = runs
        registry.register(self)

    def count(self, method: str, route: str, status: int, seconds: float) -> None:
        self.requests.labels(method, route, str(status)).inc()
        self.seconds.labels(route).observe(seconds)

    def count_texts(self, model: str, tokens: Sequence[int]) -> None:
        """Count texts that `model` answered; `tokens` has, for each text, the number of tokens that it generated."""
        self.texts.labels(model).inc(len(tokens))
        self.tokens.labels(model).inc(sum(tokens))

    def collect(self) -> Iterator[Metric]:
        for kind, metric, meaning, attribute in (
            (GaugeMetricFamily, "regard_queue_waiting", "Waiting items", "waiting"),
            (GaugeMetricFamily, "regard_queue_working", "Items in work", "working"),
            (CounterMetricFamily, "regard_batches", "Batches started", "batches"),
            (CounterMetricFamily, "regard_batch_items", "Items in these batches", "items"),
            (CounterMetricFamily, "regard_queue_refused", "Requests refused: queue full", "refused"),
            (CounterMetricFamily, "regard_queue_late", "Requests that missed their deadline", "late"),
            (CounterMetricFamily, "regard_queue_waited_seconds", "Waiting time of items", "waited"),
            (CounterMetricFamily, "regard_batch_seconds", "Duration of batches", "worked"),
        ):
            family = kind(metric, meaning, labels=["model", "queue"])
            for served in self.runs.served.values():
                for name, queue in served.queues.items():
                    family.add_metric([served.name, name], getattr(queue, attribute))
            yield family
