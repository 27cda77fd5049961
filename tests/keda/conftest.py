"""A real server on a free port, a real client, and a test in the poller's place."""

from __future__ import annotations

import asyncio
import gc
import os
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import grpc.aio
import pytest

from scaler.clock import SystemClock
from scaler.config.settings import Address
from scaler.core.model import Decision, Now, Reason
from scaler.keda._pb.externalscaler_pb2 import GetMetricsRequest, ScaledObjectRef
from scaler.keda._pb.externalscaler_pb2_grpc import ExternalScalerStub
from scaler.keda.names import METRIC_NAME
from scaler.keda.server import GrpcServer
from scaler.keda.service import Service
from scaler.store import Store, Trigger

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from scaler.clock import Clock
    from scaler.config.settings import TlsFiles

GOOD = {"scalerAddress": "vllm-scaler.keda:6000"}
LOOPBACK = Address("127.0.0.1", 0)


@dataclass
class Hands:
    """A clock whose hands the test moves."""

    at: Now = field(default_factory=lambda: Now(datetime(2026, 3, 2, 9, tzinfo=UTC), 1000.0))

    def now(self) -> Now:
        return self.at

    def advance(self, seconds: float) -> None:
        wall = self.at.wall + timedelta(seconds=seconds)
        self.at = Now(wall, self.at.monotonic + seconds)


@dataclass
class Ledger:
    """An observer that remembers."""

    calls: list[tuple[str, str]] = field(default_factory=list)
    timed: set[str] = field(default_factory=set)
    open: int = 0

    def rpc(self, method: str, code: str, seconds: float | None) -> None:
        if seconds is not None:
            assert seconds >= 0
            self.timed.add(method)
        self.calls.append((method, code))

    def streams(self, delta: int) -> None:
        self.open += delta


@dataclass
class Keda:
    """One scaler as KEDA meets it, with the store behind it in the test's hands."""

    clock: Clock
    store: Store
    service: Service
    server: GrpcServer
    ledger: Ledger
    port: int
    channel: grpc.aio.Channel
    stub: ExternalScalerStub
    sequence: int = 0

    @property
    def target(self) -> str:
        return f"127.0.0.1:{self.port}"

    def ref(
        self, name: str = "llama", metadata: Mapping[str, str] = GOOD, *, namespace: str = "ai"
    ) -> ScaledObjectRef:
        return ScaledObjectRef(name=name, namespace=namespace, scalerMetadata=metadata)

    def asking(self, ref: ScaledObjectRef, name: str = METRIC_NAME) -> GetMetricsRequest:
        return GetMetricsRequest(scaledObjectRef=ref, metricName=name)

    def trigger(self, ref: ScaledObjectRef) -> Trigger:
        return self.store.register(ref.namespace, ref.name, dict(ref.scalerMetadata))

    def publish(
        self,
        ref: ScaledObjectRef,
        desired: int = 1,
        *,
        active: bool = True,
        invalid: str | None = None,
    ) -> Decision:
        """Publish a decision as the poller would; ``invalid``: the message of an invalid one."""
        self.sequence += 1
        decision = Decision(
            sequence=self.sequence,
            at=replace(self.clock.now()),
            valid=invalid is None,
            desired=desired,
            active=active,
            reason=Reason.LOAD if invalid is None else Reason.QUORUM_LOST,
            message=invalid or f"{desired} replicas for the load",
        )
        self.trigger(ref).publish(decision)
        return decision

    async def desired(self, ref: ScaledObjectRef, name: str = METRIC_NAME) -> float:
        """Return the one value as KEDA reads it."""
        answer = await self.stub.GetMetrics(self.asking(ref, name), timeout=5)
        (value,) = answer.metricValues
        return value.metricValueFloat if value.metricValueFloat > 0 else value.metricValue

    async def active(self, ref: ScaledObjectRef) -> bool:
        return (await self.stub.IsActive(ref, timeout=5)).result

    async def refusal(self, ref: ScaledObjectRef, name: str = METRIC_NAME) -> tuple[str, str]:
        """Return the code's name and the text with which GetMetrics refuses."""
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.desired(ref, name)
        return caught.value.code().name, caught.value.details() or ""

    async def caught_up(self, trigger: Trigger, streams: int = 1) -> None:
        """Wait until ``streams`` streams have seen the newest decision and wait for the next."""
        await until(lambda: len(trigger._changed._waiters) == streams)

    async def first_contact(self) -> None:
        """Wait until a call has registered the one trigger and waits for its first decision."""
        await until(lambda: any(t._changed._waiters for t in self.store.triggers()))


async def until(condition: Callable[[], bool], *, within: float = 20.0) -> None:
    """Wait for ``condition``, at most ``within`` seconds."""
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110 - what is waited for has no event of its own
            await asyncio.sleep(0.002)


def resident_bytes() -> int:
    """Return this process's memory, garbage collected."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class Launcher:
    """Starts scalers and ends them with the test."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack

    async def __call__(
        self,
        *,
        clock: Clock | None = None,
        limit: int = 2000,
        tls: TlsFiles | None = None,
        options: tuple[tuple[str, int], ...] = (),
        **service: float,
    ) -> Keda:
        clock = clock or SystemClock()
        store = Store(clock, limit=limit)
        ledger = Ledger()
        servicer = Service(store, clock, observer=ledger, **service)  # type: ignore[arg-type]
        server = GrpcServer(LOOPBACK, store, clock, tls=tls, service=servicer, options=options)
        port = await server.start()
        self._stack.push_async_callback(server.stop, 1.0)
        channel = await self.channel(f"127.0.0.1:{port}")
        stub = ExternalScalerStub(channel)
        return Keda(clock, store, servicer, server, ledger, port, channel, stub)

    async def channel(
        self,
        target: str,
        credentials: grpc.ChannelCredentials | None = None,
        **options: int,
    ) -> grpc.aio.Channel:
        """Return a channel with a connection of its own."""
        arguments = [("grpc.use_local_subchannel_pool", 1)]
        arguments += [(f"grpc.{name}", value) for name, value in options.items()]
        if credentials is None:
            channel = grpc.aio.insecure_channel(target, options=arguments)
        else:
            channel = grpc.aio.secure_channel(target, credentials, options=arguments)
        self._stack.push_async_callback(channel.close, None)
        return channel


@pytest.fixture
async def launch() -> AsyncIterator[Launcher]:
    async with AsyncExitStack() as stack:
        yield Launcher(stack)


@pytest.fixture
async def keda(launch: Launcher) -> Keda:
    """A scaler that waits for a first decision only briefly, so that refusals come quickly."""
    return await launch(first_wait=0.05)
