"""How long KEDA waits for an answer: 500 ScaledObjects, 1,000 calls a second, one connection.

    python benchmarks/rpc.py

The scaler and, on another port, a handler that does nothing run in a process of their own; this
one is the client. Both are asked in turns, so that a noisy machine is noisy for both: the ratio is
the scaler's own share, the rest is gRPC and the client.
"""

from __future__ import annotations

import asyncio
import json
import logging
import statistics
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING

import grpc.aio
import structlog

from scaler.clock import SystemClock
from scaler.config.settings import Address
from scaler.core.model import Decision, Reason
from scaler.keda._pb.externalscaler_pb2 import GetMetricsRequest, ScaledObjectRef
from scaler.keda._pb.externalscaler_pb2_grpc import ExternalScalerStub
from scaler.keda.names import METRIC_NAME
from scaler.keda.server import GrpcServer
from scaler.store import Store

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler.store import Trigger

OBJECTS = 500
RATE = 1000  # calls a second
ROUND_SECONDS = 3.0
ROUNDS = 3
STREAMS = 300
P99_BUDGET_MS = 5.0
P99_BUDGET_WITH_STREAMS_MS = 50.0
BARE = "/bare.Bare/Nothing"
DECISION_SECONDS = 5.0  # the default scrape interval

Call = Callable[[], Awaitable[object]]


def _refs() -> list[ScaledObjectRef]:
    metadata = {
        "scalerAddress": "vllm-scaler.keda:6000",
        "endpoints": "http://10.0.0.1:8000,http://10.0.0.2:8000",
        "targetInFlight": "24",
        "targetTtft": "3",
        "maxReplicas": "6",
    }
    return [
        ScaledObjectRef(name=f"llama-{n}", namespace="ai", scalerMetadata=metadata)
        for n in range(OBJECTS)
    ]


# --- the server's process -----------------------------------------------------------------------


class _Bare(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # no parameters at run time
    """Answers with what it was sent."""

    def __init__(self) -> None:
        self._handler = grpc.unary_unary_rpc_method_handler(self._nothing)

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[bytes, bytes] | None:
        return self._handler if handler_call_details.method == BARE else None

    async def _nothing(self, request: bytes, context: object) -> bytes:
        del context
        return request


async def _serve() -> None:
    # Standard output carries the ports, so nothing else may go there.
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    clock = SystemClock()
    store = Store(clock)
    server = GrpcServer(Address("127.0.0.1", 0), store, clock)
    bare = grpc.aio.server()
    bare.add_generic_rpc_handlers((_Bare(),))
    bare_port = bare.add_insecure_port("127.0.0.1:0")
    await bare.start()
    triggers = [
        store.register(ref.namespace, ref.name, dict(ref.scalerMetadata)) for ref in _refs()
    ]
    print(json.dumps({"scaler": await server.start(), "bare": bare_port}), flush=True)
    deciding = asyncio.create_task(_decide(clock, triggers))
    # The client closes our standard input when it is done, or dies.
    await asyncio.to_thread(sys.stdin.read)
    deciding.cancel()
    await server.stop(1)
    await bare.stop(0)


async def _decide(clock: SystemClock, triggers: Sequence[Trigger]) -> None:
    sequence = 0
    while True:
        sequence += 1
        for trigger in triggers:
            decision = Decision(
                sequence=sequence,
                at=clock.now(),
                valid=True,
                desired=3,
                active=sequence % 2 == 1,
                reason=Reason.LOAD,
                message="3 replicas for the load",
            )
            trigger.publish(decision)
        await asyncio.sleep(DECISION_SECONDS)


# --- the client's process -----------------------------------------------------------------------


@dataclass
class Latencies:
    """Milliseconds from call to answer."""

    values: list[float] = field(default_factory=list)

    def quantile(self, percent: int) -> float:
        """Return the ``percent``-th percentile."""
        return statistics.quantiles(self.values, n=100)[percent - 1]


async def _load(calls: Sequence[Call], seconds: float, into: Latencies) -> None:
    """Make the calls in turn at RATE, not waiting for answers to go on."""

    async def one(call: Call) -> None:
        sent = perf_counter()
        await call()
        into.values.append((perf_counter() - sent) * 1000)

    total = int(seconds * RATE)
    started = perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(total):
            ahead = started + number / RATE - perf_counter()
            if ahead > 0:
                await asyncio.sleep(ahead)
            group.create_task(one(calls[number % len(calls)]))


def _scaler_calls(channel: grpc.aio.Channel) -> list[Call]:
    stub = ExternalScalerStub(channel)
    calls: list[Call] = []
    for ref in _refs():
        asked = GetMetricsRequest(scaledObjectRef=ref, metricName=f"s0-{METRIC_NAME}")
        calls.append(lambda asked=asked: stub.GetMetrics(asked, timeout=5))  # type: ignore[misc]
        calls.append(lambda ref=ref: stub.IsActive(ref, timeout=5))  # type: ignore[misc]
    return calls


async def _measure(ports: dict[str, int]) -> int:
    """Measure and report; return how many budgets are missed."""
    scaler, bare, streamed = Latencies(), Latencies(), Latencies()
    async with (
        grpc.aio.insecure_channel(f"127.0.0.1:{ports['scaler']}") as channel,
        grpc.aio.insecure_channel(f"127.0.0.1:{ports['bare']}") as bare_channel,
    ):
        calls = _scaler_calls(channel)
        nothing = bare_channel.unary_unary(BARE, None, None)
        request = _refs()[0].SerializeToString()
        bare_calls: list[Call] = [lambda: nothing(request, timeout=5)]
        for warm in (calls, bare_calls):
            await _load(warm, 1.0, Latencies())
        for _ in range(ROUNDS):
            await _load(bare_calls, ROUND_SECONDS, bare)
            await _load(calls, ROUND_SECONDS, scaler)
        stub = ExternalScalerStub(channel)
        streams = [stub.StreamIsActive(ref) for ref in _refs()[:STREAMS]]
        await asyncio.gather(*(stream.wait_for_connection() for stream in streams))
        await _load(calls, 2 * ROUND_SECONDS, streamed)
        open_streams = sum(not stream.done() for stream in streams)
        for stream in streams:
            stream.cancel()
    return _report(scaler, bare, streamed, open_streams)


def _report(scaler: Latencies, bare: Latencies, streamed: Latencies, open_streams: int) -> int:
    missed = 0
    print(f"{OBJECTS} ScaledObjects, {RATE} GetMetrics and IsActive a second, one connection")
    for name, latencies, budget in (
        ("scaler", scaler, P99_BUDGET_MS),
        (f"scaler, {open_streams} open streams", streamed, P99_BUDGET_WITH_STREAMS_MS),
        ("a handler that does nothing", bare, None),
    ):
        p50, p99 = latencies.quantile(50), latencies.quantile(99)
        verdict = "" if budget is None else _verdict(p99, bare.quantile(99), budget)
        missed += verdict.endswith("MISSED")
        print(f"  {name:32} p50 {p50:6.2f} ms  p99 {p99:6.2f} ms{verdict}")
    ratios = [scaler.quantile(percent) / bare.quantile(percent) for percent in (50, 99)]
    print(f"  scaler to nothing: p50 {ratios[0]:.2f} times, p99 {ratios[1]:.2f} times")
    return missed


def _verdict(p99: float, bare: float, budget: float) -> str:
    """Say whether a budget is met; a slow machine excuses no more than twice what nothing takes."""
    if p99 <= budget:
        return f"  budget {budget:g} ms: met"
    if bare > budget and p99 <= 2 * bare:
        return f"  budget {budget:g} ms: cannot be told, doing nothing takes {bare:.1f} ms here"
    return f"  budget {budget:g} ms: MISSED"


async def _main() -> int:
    command = [sys.executable, __file__, "--serve"]
    server = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE
    )
    assert server.stdout is not None
    assert server.stdin is not None
    try:
        line = await asyncio.wait_for(server.stdout.readline(), 30)
        return await _measure(json.loads(line))
    finally:
        server.stdin.close()
        await server.wait()


if __name__ == "__main__":
    sys.exit(asyncio.run(_serve() if "--serve" in sys.argv[1:] else _main()))
