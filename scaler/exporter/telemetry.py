"""The scaler's metrics about itself, all of them, in one registry of our own.

Callers pass plain values. Children of every label are bound once: a sweep of a thousand pods and a
thousand RPCs a second must not pay for label look-ups.
"""

from __future__ import annotations

import platform
from typing import TYPE_CHECKING

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    PlatformCollector,
    ProcessCollector,
    disable_created_metrics,
)

import scaler
from scaler.core.model import Reason, ScrapeCause

if TYPE_CHECKING:
    from collections.abc import Callable

PREFIX = "vllm_scaler"
OK = "ok"

# A healthy vLLM answers in milliseconds, an overloaded one was seen to take 3.1 s; sweeps alike.
SCRAPE_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 10.0)
DECISION_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.05)
# Budgets: 5 ms at p99, 50 ms as the rule, 2 s the longest we ever keep KEDA waiting.
RPC_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.5, 2.0)


class Telemetry:
    """Counts what the scaler does. ``registry`` is what ``/metrics`` exposes of it."""

    def __init__(self) -> None:
        # Process-wide, the library has no other switch: *_created doubles the series of counters.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # the library left it untyped
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self._build_info()
        self._bind_scrapes()
        self._bind_decisions()
        self._bind_rpcs()

    def scrape(self, cause: ScrapeCause | None, seconds: float) -> None:
        """Count one scrape of one pod; ``cause`` is None when it succeeded."""
        self._count_scrape[cause]()
        self._observe_scrape(seconds)

    def sweep(self, seconds: float) -> None:
        """Note how long it took to scrape all pods once."""
        self._observe_sweep(seconds)

    def decision(self, reason: Reason, seconds: float) -> None:
        """Count one decision and note how long it took to make."""
        self._count_decision[reason]()
        self._observe_decision(seconds)

    def rpc(self, method: str, code: str, seconds: float | None) -> None:
        """Count one finished RPC: its bare method name and its gRPC status, e.g. ``OK``.

        ``method`` is one of the contract's; what a stranger makes up does not get this far. None as
        ``seconds`` is a stream, which is only counted.
        """
        bound = self._rpcs.get((method, code))
        if bound is None:
            bound = self._bind_rpc(method, code)
        count, observe = bound
        count()
        if seconds is not None:
            observe(seconds)

    def streams(self, delta: int) -> None:
        """Note that streams opened (positive) or ended (negative)."""
        self._streams.inc(delta)

    def _build_info(self) -> None:
        Info(
            f"{PREFIX}_build",
            "Version of the scaler and of the Python that runs it.",
            registry=self.registry,
        ).info({"version": scaler.__version__, "python": platform.python_version()})

    def _bind_scrapes(self) -> None:
        scrapes = Counter(
            f"{PREFIX}_scrapes",
            "Scrapes of vLLM pods by outcome: ok, or why there was none.",
            ["cause"],
            registry=self.registry,
        )
        self._count_scrape: dict[ScrapeCause | None, Callable[[], None]] = {
            cause: scrapes.labels(cause).inc for cause in ScrapeCause
        }
        self._count_scrape[None] = scrapes.labels(OK).inc
        self._observe_scrape = Histogram(
            f"{PREFIX}_scrape_duration_seconds",
            "Time one scrape of one pod took, failed ones included.",
            buckets=SCRAPE_BUCKETS,
            registry=self.registry,
        ).observe
        self._observe_sweep = Histogram(
            f"{PREFIX}_sweep_duration_seconds",
            "Time it took to scrape all pods once.",
            buckets=SCRAPE_BUCKETS,
            registry=self.registry,
        ).observe

    def _bind_decisions(self) -> None:
        decisions = Counter(
            f"{PREFIX}_decisions",
            "Decisions by the reason that set the number, or why there was none.",
            ["reason"],
            registry=self.registry,
        )
        self._count_decision = {reason: decisions.labels(reason).inc for reason in Reason}
        self._observe_decision = Histogram(
            f"{PREFIX}_decision_duration_seconds",
            "Time one decision took.",
            buckets=DECISION_BUCKETS,
            registry=self.registry,
        ).observe

    def _bind_rpcs(self) -> None:
        self._rpc_count = Counter(
            f"{PREFIX}_rpcs",
            "Calls of KEDA's contract by method and status code; a stream when it ends.",
            ["method", "code"],
            registry=self.registry,
        )
        self._rpc_seconds = Histogram(
            f"{PREFIX}_rpc_duration_seconds",
            "Time a call of KEDA's contract took; streams are not timed.",
            ["method"],
            buckets=RPC_BUCKETS,
            registry=self.registry,
        )
        self._streams = Gauge(
            f"{PREFIX}_open_streams",
            "StreamIsActive calls that are open now.",
            registry=self.registry,
        )
        self._rpcs: dict[tuple[str, str], tuple[Callable[[], None], Callable[[float], None]]] = {}

    def _bind_rpc(
        self, method: str, code: str
    ) -> tuple[Callable[[], None], Callable[[float], None]]:
        bound = (
            self._rpc_count.labels(method, code).inc,
            self._rpc_seconds.labels(method).observe,
        )
        self._rpcs[method, code] = bound
        return bound
