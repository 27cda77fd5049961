"""Builders and fakes that several tests share: samples, snapshots, and a fleet with a clock."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from aiohttp import web

from scaler.clock import SystemClock
from scaler.core.decide import decide, initial_state
from scaler.core.model import (
    Count,
    Histogram,
    Latency,
    ModelSample,
    Now,
    PodLife,
    PodObservation,
    PodSample,
    ScrapeCause,
    ScrapeFailure,
    Snapshot,
)
from scaler.core.policy import TriggerPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scaler.core.model import Decision

INF = float("inf")
START = datetime(2026, 11, 30, 8, 0, tzinfo=UTC)
TTFT_BOUNDS = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, INF)
QUEUE_BOUNDS = (0.3, 0.5, 1.0, 2.0, 5.0, 10.0, 60.0, 240.0, 480.0, INF)

REFUSED = ScrapeFailure(ScrapeCause.REFUSED, "connection refused")
TIMED_OUT = ScrapeFailure(ScrapeCause.TIMEOUT, "no answer within 4 s")


def histogram(bounds: tuple[float, ...], *values: float) -> Histogram:
    """The histogram of these observations."""
    counts = tuple(float(sum(value <= bound for value in values)) for bound in bounds)
    return Histogram(bounds, counts, sum(values))


def sample(
    running: float = 0,
    waiting: float = 0,
    kv: float | None = None,
    *,
    counts: Mapping[Count, float] | None = None,
    ttft: Histogram | None = None,
    queue_time: Histogram | None = None,
    sleeping: bool = False,
) -> ModelSample:
    """One model's sample with the fields a test cares about."""
    latencies = {Latency.TTFT: ttft, Latency.QUEUE_TIME: queue_time}
    return ModelSample(
        running=running,
        waiting=waiting,
        kv_usage=kv,
        kv_usage_mean=kv,
        sleeping=sleeping,
        counts=dict(counts or {}),
        latencies={kind: h for kind, h in latencies.items() if h is not None},
    )


def pod_sample(
    model: ModelSample | None, *, name: str = "m", process_start: float | None = None
) -> PodSample:
    """What a pod that serves one model says; None: declared, nothing served yet."""
    return PodSample({} if model is None else {name: model}, process_start=process_start)


class Fleet:
    """Pods whose next answers a test sets, a clock it moves, and the core deciding on them.

    ``tick`` scrapes every pod (a ModelSample, PodSample or ScrapeFailure each), moves the clock by
    ``seconds`` first, and returns the decision.
    """

    def __init__(
        self,
        policy: TriggerPolicy | None = None,
        *,
        interval: float = 5.0,
        fresh_for: float = 19.0,
        start: datetime = START,
    ) -> None:
        self.policy = policy or TriggerPolicy()
        self.interval = interval
        self.fresh_for = fresh_for
        self.wall = start
        self.monotonic = 1000.0
        self.state = initial_state(self.policy)
        self.pods: dict[str, PodObservation] = {}
        self.sequence = 0

    @property
    def now(self) -> Now:
        return Now(self.wall, self.monotonic)

    def sleep(self, seconds: float) -> None:
        """Let time pass on both clocks."""
        self.wall += timedelta(seconds=seconds)
        self.monotonic += seconds

    def tick(
        self,
        answers: Mapping[str, ModelSample | PodSample | ScrapeFailure | None] | None = None,
        *,
        seconds: float | None = None,
        lives: Mapping[str, PodLife] | None = None,
        snapshot: Mapping[str, object] | None = None,
    ) -> Decision:
        """Pass time, scrape, decide. Pods that ``answers`` does not name are gone.

        None as an answer: the pod exists and was not asked, or has not answered yet.
        """
        self.sleep(self.interval if seconds is None else seconds)
        lives = lives or {}
        self.pods = {
            name: self._observe(name, answer, lives.get(name, PodLife.READY))
            for name, answer in (answers or {}).items()
        }
        return self.decide(**(snapshot or {}))

    def decide(self, **overrides: object) -> Decision:
        """Decide on what is known now."""
        self.sequence += 1
        shot = Snapshot(self.sequence, tuple(self.pods.values()), self.fresh_for)
        shot = replace(shot, **overrides)  # type: ignore[arg-type]  # fields a test names
        decision, self.state = decide(shot, self.state, self.policy, self.now)
        return decision

    def _observe(
        self, name: str, answer: ModelSample | PodSample | ScrapeFailure | None, life: PodLife
    ) -> PodObservation:
        before = self.pods.get(name, PodObservation(name))
        if answer is None:
            return replace(before, life=life)
        if isinstance(answer, ScrapeFailure):
            return replace(before, life=life, failure=answer)
        newest = answer if isinstance(answer, PodSample) else pod_sample(answer)
        return PodObservation(name, life, newest, self.monotonic, None)


class ManualClock:
    """A clock whose hands a test moves."""

    def __init__(self, start: datetime = START, monotonic: float = 1000.0) -> None:
        self.wall = start
        self.monotonic = monotonic

    def now(self) -> Now:
        """Return the instant the hands show."""
        return Now(self.wall, self.monotonic)

    def advance(self, seconds: float) -> None:
        """Move both hands."""
        self.wall += timedelta(seconds=seconds)
        self.monotonic += seconds


class ShiftedClock:
    """The real clock, set ahead by as much as a test wants: hours pass at once."""

    def __init__(self, wall: datetime | None = None) -> None:
        real = SystemClock().now()
        self._ahead = 0.0
        self._wall = timedelta(0) if wall is None else wall - real.wall

    def now(self) -> Now:
        """Return the shifted instant."""
        real = SystemClock().now()
        wall = real.wall + self._wall + timedelta(seconds=self._ahead)
        return Now(wall, real.monotonic + self._ahead)

    def advance(self, seconds: float) -> None:
        """Set both hands ahead."""
        self._ahead += seconds


class VllmServer:
    """A real HTTP server with a vLLM-like ``/metrics`` whose numbers a test sets.

    ``gate`` closed: it accepts and does not answer. ``raw`` replaces the whole body.
    """

    def __init__(self) -> None:
        self.running = self.waiting = 0.0
        self.kv = 0.0
        self.finished = 0.0
        self.raw: str | None = None
        self.status = 200
        self.gate = asyncio.Event()
        self.gate.set()
        self.port = 0
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """The base URL, as a trigger's ``endpoints`` names it."""
        return f"http://127.0.0.1:{self.port}"

    async def start(self) -> None:
        """Listen, on the same port as before if there was one."""
        app = web.Application()
        app.add_routes([web.get("/metrics", self._metrics), web.get("/metrics/", self._metrics)])
        self._runner = web.AppRunner(app, shutdown_timeout=0.05)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", self.port)
        await site.start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Refuse connections, as a dead pod does."""
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    def body(self) -> str:
        """The exposition of these numbers."""
        if self.raw is not None:
            return self.raw
        label = '{engine="0",model_name="llama"}'
        return (
            "# TYPE vllm:num_requests_running gauge\n"
            f"vllm:num_requests_running{label} {self.running}\n"
            "# TYPE vllm:num_requests_waiting gauge\n"
            f"vllm:num_requests_waiting{label} {self.waiting}\n"
            "# TYPE vllm:kv_cache_usage_perc gauge\n"
            f"vllm:kv_cache_usage_perc{label} {self.kv}\n"
            "# TYPE vllm:request_success_total counter\n"
            'vllm:request_success_total{engine="0",finished_reason="stop",model_name="llama"} '
            f"{self.finished}\n"
        )

    async def _metrics(self, _: web.Request) -> web.Response:
        await self.gate.wait()
        return web.Response(text=self.body(), status=self.status, content_type="text/plain")
