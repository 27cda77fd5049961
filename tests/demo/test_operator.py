"""The stand-in for KEDA and the HPA, against a gRPC server whose answers the test writes."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from fakes import START

from scaler.core.model import Now
from scaler.demo.operator import Manifest, Operator
from scaler.keda._pb.externalscaler_pb2 import (
    GetMetricSpecResponse,
    GetMetricsRequest,
    GetMetricsResponse,
    IsActiveResponse,
    MetricSpec,
    MetricValue,
    ScaledObjectRef,
)
from scaler.keda._pb.externalscaler_pb2_grpc import (
    ExternalScalerServicer,
    ExternalScalerStub,
    add_ExternalScalerServicer_to_server,
)
from scaler.replay import hpa, keda

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

METADATA = {"scalerAddress": "x:6000", "targetInFlight": "128"}


class Hands:
    """A clock whose hands the test moves."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def now(self) -> Now:
        return Now(wall=START, monotonic=self.seconds)


@dataclass
class Scripted(ExternalScalerServicer):
    """A scaler that says what it is told, and notes what it was asked. None is UNAVAILABLE."""

    value: float | None = 1.0
    active: bool | None = True
    spec: bool = True
    only_integers: bool = False
    calls: list[str] = field(default_factory=list)
    asked: list[ScaledObjectRef] = field(default_factory=list)
    name: str = ""
    rounds: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(0))

    async def GetMetricSpec(  # noqa: N802
        self, request: ScaledObjectRef, context: grpc.aio.ServicerContext[Any, Any]
    ) -> GetMetricSpecResponse:
        self.calls.append("GetMetricSpec")
        self.asked.append(request)
        if not self.spec:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "no spec")
        size = 0.0 if self.only_integers else 1.0
        spec = MetricSpec(metricName="desired", targetSize=1, targetSizeFloat=size)
        return GetMetricSpecResponse(metricSpecs=[spec])

    async def GetMetrics(  # noqa: N802
        self, request: GetMetricsRequest, context: grpc.aio.ServicerContext[Any, Any]
    ) -> GetMetricsResponse:
        self.calls.append("GetMetrics")
        self.name = request.metricName
        if self.value is None:
            await context.abort(grpc.StatusCode.UNAVAILABLE, "no data")
        assert self.value is not None
        exact = 0.0 if self.only_integers else self.value
        value = MetricValue(metricName="", metricValue=int(self.value), metricValueFloat=exact)
        return GetMetricsResponse(metricValues=[value])

    async def IsActive(  # noqa: N802
        self, request: ScaledObjectRef, context: grpc.aio.ServicerContext[Any, Any]
    ) -> IsActiveResponse:
        del request
        self.calls.append("IsActive")
        self.rounds.release()
        if self.active is None:
            await context.abort(grpc.StatusCode.INTERNAL, "broken")
        return IsActiveResponse(result=bool(self.active))

    def StreamIsActive(self, request: Any, context: Any) -> Any:  # noqa: N802
        raise NotImplementedError

    def StreamMetricSpec(self, request: Any, context: Any) -> Any:  # noqa: N802
        raise NotImplementedError


@dataclass
class Loop:
    """An operator, the scaler it asks, and its clock."""

    scaler: Scripted
    operator: Operator
    stub: ExternalScalerStub
    clock: Hands

    async def sync(self, value: float | None, *, after: float = 15.0) -> int:
        self.clock.seconds += after
        self.scaler.value = value
        await self.operator.sync(self.stub)
        return self.operator.standing.replicas

    async def poll(self, *, active: bool | None = True, after: float = 30.0) -> int:
        self.clock.seconds += after
        self.scaler.active = active
        await self.operator.poll(self.stub)
        return self.operator.standing.replicas


@asynccontextmanager
async def loop_of(
    scaled: keda.ScaledObject, *, replicas: int = 1, behavior: hpa.Behavior | None = None
) -> AsyncIterator[Loop]:
    scaler, clock = Scripted(), Hands()
    server = grpc.aio.server()
    add_ExternalScalerServicer_to_server(scaler, server)
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    address = f"127.0.0.1:{port}"
    manifest = Manifest("demo", "vllm", METADATA, scaled, behavior or hpa.Behavior())
    try:
        async with grpc.aio.insecure_channel(address) as channel:
            operator = Operator(address, manifest, clock, replicas=replicas)
            stub: ExternalScalerStub = ExternalScalerStub(channel)
            yield Loop(scaler, operator, stub, clock)
    finally:
        await server.stop(None)


async def test_a_poll_asks_what_keda_asks_in_its_order() -> None:
    async with loop_of(keda.ScaledObject()) as loop:
        await loop.poll()

    assert loop.scaler.calls == ["GetMetricSpec", "GetMetrics", "IsActive"]
    (ref,) = loop.scaler.asked
    assert (ref.namespace, ref.name) == ("demo", "vllm")
    assert dict(ref.scalerMetadata) == METADATA
    assert loop.scaler.name == "desired"


@pytest.mark.parametrize("only_integers", [False, True])
async def test_a_sync_makes_replicas_of_the_value(*, only_integers: bool) -> None:
    async with loop_of(keda.ScaledObject(max_replicas=6)) as loop:
        loop.scaler.only_integers = only_integers
        sizes = [await loop.sync(value) for value in (1.0, 3.0, 9.0, 6.0)]

    assert sizes == [1, 3, 6, 6]
    assert loop.operator.standing.outcome is hpa.Outcome.WITHIN_RANGE


async def test_down_waits_for_the_stabilization_window() -> None:
    down = hpa.Rules(60.0, hpa.DEFAULT_DOWN.policies)
    async with loop_of(keda.ScaledObject(), behavior=hpa.Behavior(down=down)) as loop:
        sizes = [await loop.sync(value) for value in (4.0, 4.0, 1.0, 1.0, 1.0, 1.0)]

    assert sizes == [4, 4, 4, 4, 4, 1]


async def test_a_failed_metric_holds_until_the_fallback_stands_in() -> None:
    fallback = keda.Fallback(2, 5)
    async with loop_of(keda.ScaledObject(fallback=fallback), replicas=3) as loop:
        sizes = [await loop.sync(value) for value in (3.0, None, None, None, None)]
        error = loop.operator.standing.answers.error

    assert sizes == [3, 3, 3, 5, 5]
    assert error == "UNAVAILABLE: no data"


async def test_k02_without_a_spec_the_fallback_never_fires() -> None:
    fallback = keda.Fallback(0, 5)
    async with loop_of(keda.ScaledObject(fallback=fallback), replicas=3) as loop:
        loop.scaler.spec = False
        sizes = [await loop.sync(3.0) for _ in range(5)]

    assert sizes == [3] * 5
    assert loop.scaler.calls == ["GetMetricSpec"] * 5


async def test_k08_a_failing_is_active_throws_the_value_away() -> None:
    async with loop_of(keda.ScaledObject()) as loop:
        loop.scaler.active = None
        size = await loop.sync(9.0)

    assert size == 1
    assert loop.operator.standing.answers.error == "INTERNAL: broken"


async def test_at_zero_the_hpa_sleeps_and_a_poll_wakes() -> None:
    async with loop_of(keda.ScaledObject(cooldown=60.0), replicas=2) as loop:
        busy = await loop.poll()
        cooling = await loop.poll(active=False)
        asleep = await loop.poll(active=False, after=61.0)
        calls = len(loop.scaler.calls)
        still = await loop.sync(9.0)
        unasked = len(loop.scaler.calls) == calls
        awake = await loop.poll()

    assert (busy, cooling, asleep, still, awake) == (2, 2, 0, 0, 1)
    assert unasked


async def test_a_fallback_wakes_from_zero() -> None:
    """KEDA 2.19: a fallback that stands in counts as activity."""
    scaled = keda.ScaledObject(fallback=keda.Fallback(1, 2))
    async with loop_of(scaled, replicas=0) as loop:
        loop.scaler.value = None
        sizes = [await loop.poll() for _ in range(3)]

    assert sizes == [0, 1, 1]


async def test_each_round_is_told_with_what_went_wrong() -> None:
    async with loop_of(keda.ScaledObject()) as loop:
        told: list[str] = []
        loop.operator._asked = lambda standing: told.append(standing.answers.error)
        await loop.sync(1.0)
        await loop.sync(None)
        await loop.poll()

    assert told == ["", "UNAVAILABLE: no data", "UNAVAILABLE: no data"]


async def test_run_polls_and_syncs_at_once_and_ends_when_cancelled() -> None:
    async with loop_of(keda.ScaledObject()) as loop:
        loop.scaler.value = 2.0
        running = asyncio.create_task(loop.operator.run())
        async with asyncio.timeout(10):
            for _ in range(2):
                await loop.scaler.rounds.acquire()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    assert sorted(loop.scaler.calls) == sorted(["GetMetricSpec", "GetMetrics", "IsActive"] * 2)
