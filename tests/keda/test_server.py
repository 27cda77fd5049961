"""The server around the contract: ports, health, reflection, pings, load, and the way it stops."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import grpc.aio
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from keda.conftest import resident_bytes, until
from keda.proxy import Proxy
from structlog.testing import capture_logs

from scaler.clock import SystemClock
from scaler.config.settings import Address
from scaler.keda._pb.externalscaler_pb2_grpc import ExternalScalerStub
from scaler.keda.server import OPTIONS, GrpcServer, has_ipv6, reachable
from scaler.store import Store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from keda.conftest import Keda, Launcher

SERVING = health_pb2.HealthCheckResponse.SERVING
NOT_SERVING = health_pb2.HealthCheckResponse.NOT_SERVING
SERVICE = "externalscaler.ExternalScaler"
UNPINGED = (("grpc.http2.min_ping_interval_without_data_ms", 300_000),)


def _server(port: int, *, options: tuple[tuple[str, int], ...] = ()) -> GrpcServer:
    clock = SystemClock()
    return GrpcServer(Address("127.0.0.1", port), Store(clock), clock, options=options)


# --- health and reflection --------------------------------------------------------------------


@pytest.mark.parametrize("service", ["", SERVICE])
async def test_p07_health_serves_before_anything_was_scraped(keda: Keda, service: str) -> None:
    stub = health_pb2_grpc.HealthStub(keda.channel)

    answer = await stub.Check(health_pb2.HealthCheckRequest(service=service))

    assert answer.status == SERVING


async def test_p07_health_of_another_service_is_not_found(keda: Keda) -> None:
    stub = health_pb2_grpc.HealthStub(keda.channel)

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await stub.Check(health_pb2.HealthCheckRequest(service="nope"))

    assert caught.value.code() is grpc.StatusCode.NOT_FOUND


async def test_a_watcher_of_health_hears_of_the_stop(keda: Keda) -> None:
    watch = health_pb2_grpc.HealthStub(keda.channel).Watch(
        health_pb2.HealthCheckRequest(service=SERVICE)
    )
    first = await watch.read()

    stopping = asyncio.ensure_future(keda.server.stop(0.2))

    assert (first.status, (await watch.read()).status) == (SERVING, NOT_SERVING)
    await stopping


async def test_p17_the_optional_call_is_refused_on_purpose(keda: Keda) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await keda.stub.StreamMetricSpec(keda.ref(), timeout=5).read()

    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert caught.value.details() == "the target is constant: GetMetricSpec is all there is to know"


async def test_p17_reflection_lists_the_service(keda: Keda) -> None:
    async def asking() -> AsyncIterator[reflection_pb2.ServerReflectionRequest]:
        yield reflection_pb2.ServerReflectionRequest(list_services="")

    stub = reflection_pb2_grpc.ServerReflectionStub(keda.channel)
    answers = [answer async for answer in stub.ServerReflectionInfo(asking())]

    names = {service.name for service in answers[0].list_services_response.service}
    assert names == {
        SERVICE,
        "grpc.health.v1.Health",
        "grpc.reflection.v1alpha.ServerReflection",
    }


# --- ports ------------------------------------------------------------------------------------


async def test_p09_a_port_that_another_process_holds_is_a_clear_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        with pytest.raises(OSError, match=rf"^cannot bind 127\.0\.0\.1:{port}: is another"):
            await _server(port).start()


@pytest.mark.parametrize("shared", [0, 1], ids=["as-shipped", "if-ports-were-shared"])
async def test_p09_a_second_instance_fails(shared: int) -> None:
    """Two instances on one port would each get half of the connections and answer differently."""
    options = (("grpc.so_reuseport", shared),)
    first = _server(0, options=options if shared else ())
    port = await first.start()
    second = _server(port, options=options if shared else ())

    if shared:
        assert await second.start() == port
    else:
        with pytest.raises(OSError, match="cannot bind"):
            await second.start()

    await second.stop(0)
    await first.stop(0)


@pytest.mark.parametrize(
    ("host", "ipv6", "bound"),
    [
        ("::", True, "[::]:6000"),
        ("::", False, "0.0.0.0:6000"),
        ("::1", False, "[::1]:6000"),
        ("127.0.0.1", False, "127.0.0.1:6000"),
    ],
)
def test_p09_everywhere_means_ipv4_where_there_is_no_ipv6(
    host: str, *, ipv6: bool, bound: str
) -> None:
    assert str(reachable(Address(host, 6000), ipv6=ipv6)) == bound


@pytest.mark.parametrize("host", ["::", "0.0.0.0"])
async def test_a_wildcard_address_is_reached_on_loopback(launch: Launcher, host: str) -> None:
    clock = SystemClock()
    server = GrpcServer(Address(host, 0), Store(clock), clock)
    port = await server.start()
    hosts = ["127.0.0.1"] + (["[::1]"] if host == "::" and has_ipv6() else [])

    for reached in hosts:
        stub = health_pb2_grpc.HealthStub(await launch.channel(f"{reached}:{port}"))
        answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=5)
        assert answer.status == SERVING

    await server.stop(0)


async def test_a_server_that_never_started_can_be_stopped() -> None:
    await _server(0).stop(1)


# --- connections ------------------------------------------------------------------------------


async def test_k01_a_client_may_ping_as_it_likes(launch: Launcher) -> None:
    """Five pings each, where the default stands two in five minutes; gRPC sends one a second."""
    keda = await launch()
    async with Proxy(keda.port) as proxy:
        quiet, idle = await _pinging_channel(launch, proxy), await _pinging_channel(launch, proxy)
        stream = ExternalScalerStub(quiet).StreamIsActive(keda.ref())
        await until(lambda: min(frames.pings for frames in proxy.from_client) >= 5)

        answer = await ExternalScalerStub(idle).GetMetricSpec(keda.ref(), timeout=5)

        assert len(answer.metricSpecs) == 1
        assert proxy.goaways == 0
        assert len(proxy.from_client) == 2  # the connections they began with
        assert not stream.done()
        stream.cancel()


async def test_k01_the_defaults_would_cut_such_a_client_off(launch: Launcher) -> None:
    options = (*UNPINGED, ("grpc.http2.max_ping_strikes", 2))
    keda = await launch(options=options)
    async with Proxy(keda.port) as proxy:
        await _pinging_channel(launch, proxy)

        await until(lambda: proxy.goaways >= 1)


async def _pinging_channel(launch: Launcher, proxy: Proxy) -> grpc.aio.Channel:
    options = {
        "keepalive_time_ms": 50,
        "keepalive_permit_without_calls": 1,
        "http2.max_pings_without_data": 0,
    }
    channel = await launch.channel(f"127.0.0.1:{proxy.port}", None, **options)
    await asyncio.wait_for(channel.channel_ready(), 5)
    return channel


def test_k01_the_options_are_set_explicitly() -> None:
    options = dict(OPTIONS)

    assert options["grpc.keepalive_permit_without_calls"] == 1
    assert options["grpc.http2.min_ping_interval_without_data_ms"] <= 5_000
    assert options["grpc.http2.max_ping_strikes"] == 0
    assert options["grpc.max_concurrent_streams"] >= 4096


async def test_k11_connection_churn_leaves_nothing_and_is_not_logged(
    keda: Keda, launch: Launcher
) -> None:
    """Old KEDA opened a connection a call: 300 of them, one call each, closed at once.

    The bound on memory is generous, since the clients live in this process as well: a connection
    that is kept costs more than 100 KB.
    """
    keda.publish(keda.ref(), 3)
    await _churn(keda, launch, 50)
    descriptors, tasks = _open_descriptors(), len(asyncio.all_tasks())
    memory = resident_bytes()

    with capture_logs() as logs:
        await _churn(keda, launch, 300)

    await until(lambda: _open_descriptors() <= 1.05 * descriptors)
    await until(lambda: len(asyncio.all_tasks()) <= tasks)
    assert resident_bytes() - memory < 20e6
    assert logs == []


async def _churn(keda: Keda, launch: Launcher, connections: int) -> None:
    for _ in range(connections):
        channel = await launch.channel(keda.target)
        await ExternalScalerStub(channel).GetMetrics(keda.asking(keda.ref()), timeout=5)
        await channel.close(None)


def _open_descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_p01_child_processes_do_not_disturb_the_server(keda: Keda) -> None:
    """A thousand children while calls are answered; gRPC's threads do not survive a fork."""
    ref = keda.ref()
    keda.publish(ref, 3)

    def spawn() -> int:
        command = ["/bin/true"]
        return sum(subprocess.run(command, check=True).returncode == 0 for _ in range(1000))

    spawned = asyncio.ensure_future(asyncio.to_thread(spawn))
    answered = 0
    while not spawned.done():
        assert await keda.desired(ref) == 3
        answered += 1

    assert spawned.result() == 1000
    assert answered > 100


# --- the way it stops -------------------------------------------------------------------------


async def test_a_stop_lets_open_calls_finish(launch: Launcher) -> None:
    keda = await launch(first_wait=30, deadline=30)
    ref = keda.ref()
    asked = asyncio.ensure_future(keda.desired(ref))
    await keda.first_contact()

    stopping = asyncio.ensure_future(keda.server.stop(10))
    await until(lambda: keda.service._streams._ending)
    keda.publish(ref, 7)

    assert await asked == 7
    await stopping


async def test_a_stop_does_not_wait_for_ever(launch: Launcher) -> None:
    keda = await launch(first_wait=600, deadline=600)
    asked = asyncio.ensure_future(keda.desired(keda.ref()))
    await keda.first_contact()

    await keda.server.stop(0.05)

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await asked
    assert caught.value.code() in {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.CANCELLED}


async def test_a_stop_cuts_off_a_stream_that_does_not_end(keda: Keda) -> None:
    """As one whose peer takes nothing any more."""
    with keda.service._streams.opened(), capture_logs() as logs:
        await keda.server.stop(0.05)

    assert [(entry["event"], entry["grace"]) for entry in logs] == [("gRPC streams cut off", 0.05)]


async def test_after_a_stop_the_port_is_free_again(keda: Keda) -> None:
    await keda.server.stop(1)
    again = _server(keda.port)

    assert await again.start() == keda.port
    await again.stop(0)


async def test_an_oversized_message_is_refused_and_the_connection_lives(keda: Keda) -> None:
    large = keda.ref(metadata={"schedule": "x" * 2_200_000})

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await keda.stub.GetMetricSpec(large, timeout=5)

    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert len((await keda.stub.GetMetricSpec(keda.ref(), timeout=5)).metricSpecs) == 1


def test_the_stubs_cost_little_at_start() -> None:
    """The gRPC side must not drag in what scrapes: a child imports it and names what came along."""
    code = "import sys, scaler.keda.server; print(sorted(m for m in sys.modules if 'aiohttp' in m))"

    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert out.stdout == "[]\n"
