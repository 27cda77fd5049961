"""The whole scaler: real HTTP pods, real scrapes, a real grpc client asking as KEDA does."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import aiohttp
import grpc
import pytest
from fakes import ShiftedClock, VllmServer

from scaler.app import App
from scaler.config.settings import Address, ScrapeSettings, Settings
from scaler.errors import InvalidSettings
from scaler.keda._pb.externalscaler_pb2 import GetMetricsRequest, ScaledObjectRef
from scaler.keda._pb.externalscaler_pb2_grpc import ExternalScalerStub
from scaler.keda.service import STUCK

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

pytestmark = pytest.mark.timeout(30)

ANY = Address("127.0.0.1", 0)
NAME = "s0-vllm-desired-replicas"
MORNING = datetime(2026, 12, 1, 8, 30, tzinfo=UTC)


@dataclass
class Keda:
    """Asks as KEDA's operator does: spec, value, activity."""

    stub: Any
    endpoints: str

    def ref(self, **metadata: str) -> ScaledObjectRef:
        given = {"scalerAddress": "scaler:6000", "endpoints": self.endpoints, **metadata}
        return ScaledObjectRef(name="llama", namespace="team", scalerMetadata=given)

    async def value(self, **metadata: str) -> float:
        request = GetMetricsRequest(scaledObjectRef=self.ref(**metadata), metricName=NAME)
        [answer] = (await self.stub.GetMetrics(request)).metricValues
        assert answer.metricValue == answer.metricValueFloat
        return float(answer.metricValueFloat)

    async def error(self, **metadata: str) -> tuple[grpc.StatusCode, str]:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.value(**metadata)
        return caught.value.code(), caught.value.details() or ""

    async def active(self, **metadata: str) -> bool:
        return bool((await self.stub.IsActive(self.ref(**metadata))).result)

    async def spec(self, **metadata: str) -> tuple[str, int, float]:
        [spec] = (await self.stub.GetMetricSpec(self.ref(**metadata))).metricSpecs
        return spec.metricName, spec.targetSize, spec.targetSizeFloat

    async def until(self, wanted: Callable[[float], bool], **metadata: str) -> float:
        """Ask until the value is as wanted; the test's time-out bounds the wait."""
        while not wanted(value := await self.until_answered(**metadata)):  # noqa: ASYNC110 - gRPC
            await asyncio.sleep(0.01)
        return value

    async def until_answered(self, **metadata: str) -> float:
        """Ask until there is a value; the test's time-out bounds the wait."""
        while True:
            try:
                return await self.value(**metadata)
            except grpc.aio.AioRpcError:
                await asyncio.sleep(0.02)

    async def until_error(self, **metadata: str) -> tuple[grpc.StatusCode, str]:
        """Ask until there is no value, for another reason than that the clock was set ahead."""
        while True:
            try:
                await self.value(**metadata)
            except grpc.aio.AioRpcError as error:
                if STUCK not in (error.details() or ""):
                    return error.code(), error.details() or ""
            await asyncio.sleep(0.01)


@dataclass
class World:
    """A running scaler, its pods, and KEDA."""

    app: App
    keda: Keda
    pods: list[VllmServer]
    clock: ShiftedClock

    async def get(self, path: str) -> tuple[int, str]:
        assert self.app.addresses is not None
        page = path == "/" or path.startswith("/decisions")
        port = self.app.addresses.page_port if page else self.app.addresses.http_port
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}{path}") as response,
        ):
            return response.status, await response.text()


@asynccontextmanager
async def world(pods: int = 1, **settings: Any) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        servers = [VllmServer() for _ in range(pods)]
        for server in servers:
            await server.start()
            stack.push_async_callback(server.stop)
        clock = ShiftedClock(MORNING)
        given = Settings(
            grpc_address=ANY,
            http_address=ANY,
            page_address=ANY,
            scrape=ScrapeSettings(interval=0.1, timeout=0.5),
            allow_endpoints=("127.0.0.1",),
            **settings,
        )
        app = await stack.enter_async_context(App(given, clock=clock))
        assert app.addresses is not None
        channel = grpc.aio.insecure_channel(f"127.0.0.1:{app.addresses.grpc_port}")
        await stack.enter_async_context(channel)
        endpoints = ",".join(server.url for server in servers)
        yield World(app, Keda(ExternalScalerStub(channel), endpoints), servers, clock)


async def test_load_and_no_load() -> None:
    async with world(2) as w:
        quiet = (await w.keda.value(), await w.keda.active())
        w.pods[0].waiting, w.pods[1].waiting, w.pods[1].running = 12, 9, 3
        loaded = (await w.keda.until(lambda v: v == 5), await w.keda.active())
        spec = await w.keda.spec()

    assert quiet == (0, False)
    assert loaded == (5, True)
    assert spec == ("vllm-desired-replicas", 1, 1.0)


async def test_one_pod_dead_keeps_its_load_then_counts_as_the_mean() -> None:
    async with world(3) as w:
        w.pods[0].waiting, w.pods[1].waiting, w.pods[2].waiting = 10, 10, 40
        before = await w.keda.until(lambda v: v == 12)
        await w.pods[2].stop()
        w.clock.advance(30)
        held = await w.keda.value()
        w.clock.advance(40)
        mean = await w.keda.until(lambda v: v != 12)

    assert (before, held, mean) == (12, 12, 6)


async def test_d02_quorum_lost_goes_up_only_then_fails_with_the_count() -> None:
    async with world(3) as w:
        for pod in w.pods:
            pod.waiting = 10
        await w.keda.until(lambda v: v == 6)
        await w.pods[1].stop()
        await w.pods[2].stop()
        w.clock.advance(5)
        w.pods[0].waiting = 0
        held = await w.keda.until(lambda v: v == 6)
        w.pods[0].waiting = 50
        higher = await w.keda.until(lambda v: v > 6)
        w.clock.advance(61)
        code, text = await w.keda.until_error()
        active = await w.keda.active()

    assert (held, higher) == (6, 14)
    assert code is grpc.StatusCode.UNAVAILABLE
    assert text.startswith("1/3 targets usable (http://127.0.0.1:")
    assert text.endswith("quorum 50%")
    assert active


async def test_all_pods_dead_holds_then_is_unavailable_and_recovers() -> None:
    async with world(2) as w:
        for pod in w.pods:
            pod.waiting = 10
        await w.keda.until(lambda v: v == 4)
        for pod in w.pods:
            await pod.stop()
        w.clock.advance(30)
        held = (await w.keda.value(), await w.keda.active())
        w.clock.advance(45)
        code, text = await w.keda.until_error()
        blind = (await w.keda.active(), await w.keda.spec())
        for pod in w.pods:
            await pod.start()
        recovered = await w.keda.until_answered()

    assert held == (4, True)
    assert code is grpc.StatusCode.UNAVAILABLE
    assert text.startswith("0/2 targets usable (http://127.0.0.1:")
    assert blind == (True, ("vllm-desired-replicas", 1, 1.0))
    assert recovered == 4


async def test_a_floor_while_blind() -> None:
    schedule = "[{timezone: UTC, start: 0 9 * * *, end: 0 12 * * *, desiredReplicas: 6}]"
    given = {"schedule": schedule, "leadTime": "4m"}
    async with world(2) as w:
        await w.keda.value(**given)
        for pod in w.pods:
            await pod.stop()
        w.clock.advance(24 * 60)  # 08:54
        code, _ = await w.keda.until_error(**given)
        w.clock.advance(2 * 60 + 1)  # four minutes ahead of the window
        value = await w.keda.until_answered(**given)
        active = await w.keda.active(**given)

    assert code is grpc.StatusCode.UNAVAILABLE
    assert (value, active) == (6, True)


async def test_scale_from_zero_by_schedule() -> None:
    given = {
        "endpoints": "",
        "timezone": "UTC",
        "start": "0 9 * * *",
        "end": "0 12 * * *",
        "desiredReplicas": "3",
        "leadTime": "4m",
    }
    async with world(0) as w:
        night = (await w.keda.value(**given), await w.keda.active(**given))
        w.clock.advance(26 * 60 + 1)
        morning = await w.keda.until(lambda v: v > 0, **given)
        active = await w.keda.active(**given)
        w.clock.advance(4 * 3600)
        noon = await w.keda.until(lambda v: v == 0, **given)
        over = await w.keda.active(**given)

    assert night == (0, False)
    assert (morning, active) == (3, True)
    assert (noon, over) == (0, False)


async def test_bad_metadata_fails_with_all_problems_and_the_spec_still_answers() -> None:
    async with world() as w:
        code, text = await w.keda.error(quorum="7", targetTtft="soon")
        spec = await w.keda.spec(quorum="7", targetTtft="soon")
        active = await w.keda.active(quorum="7", targetTtft="soon")

    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "quorum='7'" in text
    assert "targetTtft='soon'" in text
    assert spec[0] == "vllm-desired-replicas"
    assert active is False


async def test_unknown_keys_do_not_break_scaling() -> None:
    async with world() as w:
        w.pods[0].waiting = 20

        assert await w.keda.value(targetWaitng="7", apiKeyFromEnv="secret") == 4


async def test_a_barred_endpoint_is_denied() -> None:
    async with world() as w:
        code, text = await w.keda.error(endpoints="http://169.254.169.254")

    assert code is grpc.StatusCode.PERMISSION_DENIED
    assert text == "169.254.169.254:80: not allowed by --allow-endpoints (127.0.0.1)"


async def test_streams_tell_rising_edges_only() -> None:
    async with world() as w:
        stream = w.keda.stub.StreamIsActive(w.keda.ref(activeHold="0s"))
        answers = []
        for _ in range(2):
            w.pods[0].running = 1
            answers.append((await stream.read()).result)
            w.pods[0].running = 0
            while await w.keda.active(activeHold="0s"):  # noqa: ASYNC110 - over gRPC
                await asyncio.sleep(0.01)
        stream.cancel()

    assert answers == [True, True]


async def test_k12_rpcs_do_not_wait_for_pods_that_hang() -> None:
    async with world(2) as w:
        w.pods[0].waiting = 5
        await w.keda.until(lambda v: v == 1)
        for pod in w.pods:
            pod.gate.clear()
        answers = await asyncio.gather(*(asyncio.wait_for(w.keda.value(), 1.0) for _ in range(100)))
        for pod in w.pods:
            pod.gate.set()

    assert answers == [1] * 100


async def test_k23_the_same_name_in_two_namespaces_does_not_meet() -> None:
    async with world(2) as w:
        w.pods[0].waiting, w.pods[1].waiting = 2, 90
        values = {}
        for namespace, pod in zip("ab", w.pods, strict=True):
            ref = ScaledObjectRef(
                name="llama", namespace=namespace, scalerMetadata={"endpoints": pod.url}
            )
            request = GetMetricsRequest(scaledObjectRef=ref, metricName=NAME)
            answer = await w.keda.stub.GetMetrics(request)
            values[namespace] = answer.metricValues[0].metricValueFloat
        _, exposition = await w.get("/metrics")

    assert values == {"a": 1, "b": 18}
    for namespace, desired in (("a", 1), ("b", 18)):
        [line] = [
            line
            for line in exposition.splitlines()
            if line.startswith("vllm_scaler_desired_replicas{")
            and f'namespace="{namespace}"' in line
        ]
        assert float(line.split()[-1]) == desired


async def test_one_decision_is_what_everybody_reads() -> None:
    async with world() as w:
        w.pods[0].waiting = 33
        value = await w.keda.until(lambda v: v == 7)
        status, page = await w.get("/")
        _, decisions = await w.get("/decisions?namespace=team&name=llama")
        ready = await w.get("/readyz")
        alive = await w.get("/healthz")

    assert value == 7
    assert status == ready[0] == alive[0] == 200
    assert "Wants 7 replicas" in page
    assert '"desired": 7' in decisions or '"desired":7' in decisions


async def test_a_restart_with_a_state_directory_holds_the_last_answer(tmp_path: Path) -> None:
    async with world(state_dir=tmp_path) as w:
        w.pods[0].waiting = 33
        await w.keda.until(lambda v: v == 7)
        endpoints = w.keda.endpoints
    async with world(0, state_dir=tmp_path) as w:
        value = await w.keda.value(endpoints=endpoints)  # the pod is gone meanwhile

    assert value == 7


async def test_a_start_that_fails_leaves_the_state_alone(tmp_path: Path) -> None:
    async with world(state_dir=tmp_path) as w:
        w.pods[0].waiting = 33
        await w.keda.until(lambda v: v == 7)
    before = (tmp_path / "triggers.json").read_text()
    async with world() as w:
        assert w.app.addresses is not None
        taken = Address("127.0.0.1", w.app.addresses.grpc_port)
        second = Settings(
            grpc_address=taken, http_address=ANY, page_address=ANY, state_dir=tmp_path
        )
        with pytest.raises(OSError, match="cannot bind"):
            await App(second).start()

    assert (tmp_path / "triggers.json").read_text() == before


async def test_p09_a_port_that_is_taken_is_named() -> None:
    async with world() as w:
        assert w.app.addresses is not None
        taken = Address("127.0.0.1", w.app.addresses.grpc_port)
        with pytest.raises(OSError, match=f"cannot bind 127.0.0.1:{taken.port}"):
            await App(Settings(grpc_address=taken, http_address=ANY, page_address=ANY)).start()
        page = Address("127.0.0.1", w.app.addresses.page_port)
        with pytest.raises(InvalidSettings, match="--http-address"):
            await App(Settings(grpc_address=ANY, http_address=page, page_address=ANY)).start()


async def test_a_poller_that_dies_ends_the_process() -> None:
    async with world() as w:
        assert w.app._polling is not None
        w.app._polling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await w.app.run(asyncio.Event())
