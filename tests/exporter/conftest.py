"""A clock with hands, and decisions built by hand."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from scaler.core.model import (
    Decision,
    FleetView,
    Floors,
    Guard,
    Latency,
    Now,
    PodCounts,
    PodState,
    PodView,
    Quantiles,
    Reason,
    ScrapeCause,
    ScrapeFailure,
    Signal,
    SignalReading,
)
from scaler.exporter.derived import DerivedCollector
from scaler.store import Store

if TYPE_CHECKING:
    from scaler.store import Trigger

MORNING = datetime(2026, 11, 30, 9, 0, 30, tzinfo=UTC)
INFINITE = float("inf")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden files instead of comparing"
    )


class FakeClock:
    """Stands still until it is moved."""

    def __init__(self) -> None:
        self.wall = MORNING
        self.monotonic = 1000.0

    def now(self) -> Now:
        return Now(self.wall, self.monotonic)

    def forward(self, seconds: float) -> None:
        self.wall += timedelta(seconds=seconds)
        self.monotonic += seconds


def serving(pod: str, kv_name: str = "vllm:kv_cache_usage_perc") -> PodView:
    return PodView(
        pod,
        PodState.FRESH,
        running=163.0,
        waiting=7.0,
        kv_usage=0.9,
        age=1.5,
        kv_name=kv_name,
    )


def busy(now: Now) -> Decision:
    """Three pods serve, one starts; requests in flight ask for a fourth."""
    return Decision(
        sequence=7,
        at=now,
        valid=True,
        desired=4,
        active=True,
        reason=Reason.LOAD,
        message="concurrency needs 4",
        binding=Signal.CONCURRENCY,
        composite=4.0,
        pressure=4.0 / 3.0,
        signals={
            Signal.CONCURRENCY: SignalReading(4.0, 512.0, 128.0, 4.0),
            Signal.QUEUE: SignalReading(4.6, 23.0, 5.0, 3.5),
            Signal.THROUGHPUT: SignalReading(3.5, 7350.0, 2100.0, 3.5),
            Signal.KV: SignalReading(2.25, 1.9125, 0.85, 2.25),
            Signal.TTFT: SignalReading(2.4, 2.4, 3.0, None),
        },
        guards=(Guard.THROUGHPUT_CAP,),
        floors=Floors(
            schedule=2, window="weekday mornings", next_opening=MORNING + timedelta(days=1)
        ),
        counts=PodCounts(total=4, ready=3, fresh=3, starting=1),
        fleet=FleetView(
            running=489.0,
            waiting=23.0,
            waiting_by_reason={"capacity": 20.0, "deferred": 3.0},
            kv_mean=0.6375,
            kv_max=0.9,
            arrival_rate=31.5,
            finish_rate=29.0,
            rejection_rate=0.0,
            error_rate=0.2,
            preemption_rate=0.0,
            prompt_token_rate=29100.0,
            generation_token_rate=7250.5,
            tokens_per_request=1256.0,
            arriving_token_rate=39564.0,
            expected_wait=0.75,
            latencies={
                Latency.TTFT: Quantiles(
                    1890.0, 0.9, (0.5, 0.25, 0.75), (2.4, 1.0, 2.5), (4.1, 2.5, 5.0)
                ),
                Latency.QUEUE_TIME: Quantiles(
                    1740.0, 0.1, (0.15, 0.0, 0.3), (0.285, 0.0, 0.3), (120.0, 120.0, INFINITE)
                ),
            },
            within_promise=(0.96, 0.99),
        ),
        pods=(
            *(serving(pod) for pod in ("llama-0", "llama-1", "llama-2")),
            PodView(
                "llama-3",
                PodState.STARTING,
                failure=ScrapeFailure(ScrapeCause.REFUSED, "connection refused"),
            ),
        ),
        model="meta-llama/Llama-3.1-8B-Instruct",
        oldest_sample_age=1.5,
    )


def blind(now: Now) -> Decision:
    """One of four pods answers: no number."""
    timed_out = ScrapeFailure(ScrapeCause.TIMEOUT, "no answer within 4 s")
    return Decision(
        sequence=9,
        at=now,
        valid=False,
        desired=0,
        active=True,
        reason=Reason.QUORUM_LOST,
        message="1 of 4 pods answers, the quorum is 2",
        floors=Floors(forecast=1),
        counts=PodCounts(total=4, ready=4, fresh=1, stalled=1),
        fleet=FleetView(),
        pods=(
            PodView(
                "judge-0",
                PodState.FRESH,
                running=8.0,
                waiting=0.0,
                age=0.5,
                missing=frozenset({"kv"}),
                rejected={"out_of_range": 2},
            ),
            PodView("judge-1", PodState.STALE, age=31.0, failure=timed_out),
            PodView("judge-2", PodState.MISSING, failure=timed_out),
            PodView("judge-3", PodState.STALLED, running=2.0, waiting=35.0, age=0.5),
        ),
        oldest_sample_age=31.0,
    )


class Fleet:
    """A store of registered triggers, and what to publish to them."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.store = Store(self.clock)

    def trigger(self, name: str = "llama", namespace: str = "chat", **metadata: str) -> Trigger:
        return self.store.register(
            namespace, name, {"scalerAddress": "vllm-scaler.keda.svc:6000", **metadata}
        )

    def busy(self, **changes: Any) -> Decision:
        return replace(busy(self.clock.now()), **changes)

    def blind(self, **changes: Any) -> Decision:
        return replace(blind(self.clock.now()), **changes)

    def publish(self, decision: Decision, name: str = "llama", namespace: str = "chat") -> Trigger:
        trigger = self.trigger(
            name, namespace, targetInFlight="128", targetTtft="3s", minReplicas="2", maxReplicas="6"
        )
        trigger.publish(decision)
        return trigger

    def collector(self, *, pod_detail: bool = False) -> DerivedCollector:
        return DerivedCollector(self.store, self.clock, pod_detail=pod_detail)

    def series(self, *, pod_detail: bool = False) -> dict[tuple[str, str], float]:
        """Collect everything as {(name, labels in one line): value}; identity labels left out."""
        identity = {"namespace", "scaledobject", "trigger"}
        return {
            (
                sample.name.removeprefix("vllm_scaler_"),
                ",".join(v for k, v in sample.labels.items() if k not in identity),
            ): sample.value
            for metric in self.collector(pod_detail=pod_detail).collect()
            for sample in metric.samples
        }

    def an_hour(self, trigger: Trigger) -> None:
        """Publish a morning: a floor opens, the load comes, pods follow, ten minutes are blind."""
        for minute in range(61):
            blind_now = 30 <= minute < 36
            load = 1.2 if minute < 22 else min(4.6, 1.2 + (minute - 22) * 0.5)
            desired = max(2 if minute > 12 else 1, -(-int(load * 10) // 10))
            ready = min(desired, 1 + max(0, minute - 14) // 4)
            decision = self.busy(
                desired=desired,
                composite=load,
                floors=Floors(schedule=2 if minute > 12 else 0, window="weekday mornings"),
                counts=PodCounts(total=desired, ready=ready, fresh=ready, starting=desired - ready),
            )
            if blind_now:
                decision = replace(
                    decision, valid=False, composite=None, reason=Reason.QUORUM_LOST, binding=None
                )
            for _ in range(6):
                trigger.publish(replace(decision, at=self.clock.now()))
                self.clock.forward(10)


@pytest.fixture
def fleet() -> Fleet:
    return Fleet()
