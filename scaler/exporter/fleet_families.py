"""What the fleet does: requests, tokens and latencies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler.core.model import Latency
from scaler.exporter.family import Family, label_value

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler.core.model import FleetView
    from scaler.exporter.family import Points, Scene

WAITING_REASONS = 8  # vLLM knows two; a pod can say anything


def _fleet(read: Callable[[FleetView], float | None]) -> Callable[[Scene], Points]:
    return lambda scene: (((), read(scene.decision.fleet)),)


def _waiting_by_reason(scene: Scene) -> Points:
    waiting = sorted(scene.decision.fleet.waiting_by_reason.items())
    for reason, count in waiting[:WAITING_REASONS]:
        yield (label_value(reason),), count
    if rest := waiting[WAITING_REASONS:]:
        yield ("others",), sum(count for _, count in rest)


def _kv_usage(scene: Scene) -> Points:
    fleet = scene.decision.fleet
    return ((("mean",), fleet.kv_mean), (("max",), fleet.kv_max))


def _within_promise(scene: Scene) -> Points:
    if bounds := scene.decision.fleet.within_promise:
        yield ("lower",), bounds[0]
        yield ("upper",), bounds[1]


def _latency(latency: Latency) -> Callable[[Scene], Points]:
    def read(scene: Scene) -> Points:
        if found := scene.decision.fleet.latencies.get(latency):
            yield ("mean",), found.mean
            yield ("p50",), found.p50[0]
            yield ("p95",), found.p95[0]
            yield ("p99",), found.p99[0]

    return read


def _latency_bounds(latency: Latency) -> Callable[[Scene], Points]:
    def read(scene: Scene) -> Points:
        if found := scene.decision.fleet.latencies.get(latency):
            for stat, quantile in (("p50", found.p50), ("p95", found.p95), ("p99", found.p99)):
                yield (stat, "lower"), quantile[1]
                yield (stat, "upper"), quantile[2]

    return read


FLEET = (
    Family("running_requests", "Requests being executed.", _fleet(lambda f: f.running)),
    Family("waiting_requests", "Requests queued inside vLLM.", _fleet(lambda f: f.waiting)),
    Family(
        "waiting_requests_by_reason",
        "The same queued requests, split by vLLM's reason.",
        _waiting_by_reason,
        ("reason",),
    ),
    Family("in_flight_requests", "Running and waiting requests.", _fleet(lambda f: f.in_flight)),
    Family("kv_usage_ratio", "KV cache use of the pods, 0 to 1.", _kv_usage, ("stat",)),
    Family(
        "arrivals_per_second",
        "Requests arriving, a lower bound while clients abort.",
        _fleet(lambda f: f.arrival_rate),
    ),
    Family("finishes_per_second", "Requests finishing.", _fleet(lambda f: f.finish_rate)),
    Family(
        "rejections_per_second",
        "Requests refused by vLLM's admission control.",
        _fleet(lambda f: f.rejection_rate),
    ),
    Family("errors_per_second", "Requests ending in an error.", _fleet(lambda f: f.error_rate)),
    Family(
        "preemptions_per_second",
        "Requests preempted for want of KV cache.",
        _fleet(lambda f: f.preemption_rate),
    ),
    Family(
        "prompt_tokens_per_second", "Prompt tokens computed.", _fleet(lambda f: f.prompt_token_rate)
    ),
    Family(
        "generation_tokens_per_second",
        "Tokens generated.",
        _fleet(lambda f: f.generation_token_rate),
    ),
    Family(
        "arriving_tokens_per_second",
        "Work that arrives: arrivals times the mean tokens a request.",
        _fleet(lambda f: f.arriving_token_rate),
    ),
    Family(
        "tokens_per_request",
        "Mean prompt and output tokens of a finished request.",
        _fleet(lambda f: f.tokens_per_request),
    ),
    Family(
        "expected_wait_seconds",
        "Waiting requests over first tokens a second.",
        _fleet(lambda f: f.expected_wait),
    ),
    Family(
        "within_promise_ratio",
        "Bounds of the share of requests whose first token came within targetTtft.",
        _within_promise,
        ("edge",),
    ),
    Family(
        "time_to_first_token_seconds",
        "Time to first token over the signal window.",
        _latency(Latency.TTFT),
        ("stat",),
    ),
    Family(
        "time_to_first_token_bound_seconds",
        "Edges of the bucket that the quantile lies in.",
        _latency_bounds(Latency.TTFT),
        ("stat", "edge"),
    ),
    Family(
        "inter_token_latency_seconds",
        "Time between tokens over the signal window.",
        _latency(Latency.ITL),
        ("stat",),
    ),
    Family(
        "inter_token_latency_bound_seconds",
        "Edges of the bucket that the quantile lies in.",
        _latency_bounds(Latency.ITL),
        ("stat", "edge"),
    ),
    Family(
        "queue_time_seconds",
        "Time in vLLM's queue, of requests that finished within the signal window.",
        _latency(Latency.QUEUE_TIME),
        ("stat",),
    ),
    Family(
        "queue_time_bound_seconds",
        "Edges of the bucket that the quantile lies in.",
        _latency_bounds(Latency.QUEUE_TIME),
        ("stat", "edge"),
    ),
)
