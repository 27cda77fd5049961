"""How soon a load that a scrape shows is a new value on gRPC, and a push to KEDA.

    python benchmarks/reaction.py [ROUNDS]

``vllm-scaler serve`` runs in a process of its own and scrapes a fake vLLM every second; this one is
the fake and KEDA: it asks ``GetMetrics`` every few milliseconds and holds a ``StreamIsActive``. A
round steps the load at a random moment; the time runs from the moment the scrape that shows it is
answered, and, for comparison, from the step itself. Budgets: one interval and 100 ms for the value,
1 s for the push (DESIGN section 10).
"""

from __future__ import annotations

import asyncio
import random
import statistics
import subprocess
import sys
from pathlib import Path
from time import perf_counter

import grpc.aio

from scaler.keda._pb.externalscaler_pb2 import (
    GetMetricsRequest,
    IsActiveResponse,
    ScaledObjectRef,
)
from scaler.keda._pb.externalscaler_pb2_grpc import ExternalScalerStub
from scaler.keda.names import METRIC_NAME

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))

from fakes import VllmServer  # noqa: E402 - found through the path above
from fleet import free_port, wait_until_open  # noqa: E402 - beside the line above

INTERVAL = 1.0
POLL = 0.005
VALUE_BUDGET = INTERVAL + 0.1
PUSH_BUDGET = 1.0
TARGET = 10
LOW, HIGH = 8, 45  # requests: one replica, and five
DEADLINE = 10.0  # for whatever is waited for


class SteppedPod(VllmServer):
    """A fake vLLM that notes when the scrape was answered that first showed a step."""

    def __init__(self) -> None:
        super().__init__()
        self.shown = asyncio.Event()
        self.stepped_at = self.shown_at = 0.0

    def step(self, running: float) -> None:
        """Change the load, between two scrapes."""
        self.running = running
        self.shown.clear()
        self.stepped_at = perf_counter()

    def body(self) -> str:
        """The exposition of the load."""
        if not self.shown.is_set():
            self.shown_at = perf_counter()
            self.shown.set()
        return super().body()


class Keda:
    """One ScaledObject that scales from zero."""

    def __init__(self, channel: grpc.aio.Channel, endpoint: str) -> None:
        metadata = {
            "endpoints": endpoint,
            "targetInFlight": str(TARGET),
            "targetWaiting": "off",
            "targetKvUsage": "off",
            "activeHold": "0s",
        }
        self.ref = ScaledObjectRef(name="llama", namespace="ai", scalerMetadata=metadata)
        self.stub = ExternalScalerStub(channel)
        self._asked = GetMetricsRequest(scaledObjectRef=self.ref, metricName=f"s0-{METRIC_NAME}")

    async def until_value(self, wanted: float) -> float:
        """Ask until the value is ``wanted``; return when it was."""
        async with asyncio.timeout(DEADLINE):
            while True:
                try:
                    answer = await self.stub.GetMetrics(self._asked)
                except grpc.aio.AioRpcError as error:
                    if error.code() is not grpc.StatusCode.UNAVAILABLE:
                        raise
                else:
                    if answer.metricValues[0].metricValueFloat == wanted:
                        return perf_counter()
                await asyncio.sleep(POLL)

    async def until_idle(self) -> None:
        """Ask until the fleet is not active."""
        async with asyncio.timeout(DEADLINE):
            while (await self.stub.IsActive(self.ref)).result:  # noqa: ASYNC110 - over gRPC
                await asyncio.sleep(POLL)


async def until_pushed(
    stream: grpc.aio.UnaryStreamCall[ScaledObjectRef, IsActiveResponse],
) -> float:
    """Wait for an activation on the stream; return when it came."""
    async with asyncio.timeout(DEADLINE):
        async for pushed in stream:
            if pushed.result:
                return perf_counter()
    raise ConnectionError("the stream ended")


async def rounds(keda: Keda, pod: SteppedPod, count: int) -> dict[str, list[float]]:
    """Return the seconds of every round, by what was measured."""
    took: dict[str, list[float]] = {name: [] for name in ("value", "value, step", "push")}
    pod.step(0)
    await keda.until_value(0)
    stream = keda.stub.StreamIsActive(keda.ref)
    await keda.until_idle()
    for _ in range(count):
        await asyncio.sleep(random.uniform(0, INTERVAL))  # noqa: S311 - any moment of the interval
        pod.step(LOW)
        pushed = await until_pushed(stream)
        took["push"].append(pushed - pod.shown_at)
        await keda.until_value(1)
        await asyncio.sleep(random.uniform(0, INTERVAL))  # noqa: S311
        pod.step(HIGH)
        seen = await keda.until_value(-(-HIGH // TARGET))
        took["value"].append(seen - pod.shown_at)
        took["value, step"].append(seen - pod.stepped_at)
        pod.step(0)
        await keda.until_idle()
    stream.cancel()
    return took


async def measure(count: int) -> dict[str, list[float]]:
    """Start both processes' parts, measure, stop them."""
    port = free_port()
    pod = SteppedPod()
    await pod.start()
    flags = [f"--grpc-address=127.0.0.1:{port}", "--http-address=127.0.0.1:0"]
    flags += ["--page-address=127.0.0.1:0", "--allow-endpoints=127.0.0.1", "--log-level=warning"]
    flags += [f"--scrape-interval={INTERVAL:g}s", "--scrape-timeout=500ms"]
    scaler = subprocess.Popen([sys.executable, "-m", "scaler", "serve", *flags])  # noqa: ASYNC220
    try:
        await wait_until_open(port)
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            return await rounds(Keda(channel, pod.url), pod, count)
    finally:
        scaler.terminate()
        scaler.wait(10)
        await pod.stop()


def main() -> int:
    """Print the figures; exit 1 when a budget is missed."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10
    took = asyncio.run(measure(count))
    print(f"{count} rounds, a scrape every {INTERVAL:g} s")
    missed = 0
    for name, title, budget in (
        ("value", "scrape that shows the load -> new value", VALUE_BUDGET),
        ("push", "scrape that shows activity -> push", PUSH_BUDGET),
        ("value, step", "the load itself -> new value", None),
    ):
        worst = max(took[name])
        verdict = "" if budget is None else ("met" if worst <= budget else "MISSED")
        missed += verdict == "MISSED"
        shown = "" if budget is None else f"budget {budget * 1e3:.0f} ms"
        median = statistics.median(took[name])
        print(
            f"{title:40} p50 {median * 1e3:6.0f} ms  max {worst * 1e3:6.0f} ms  {shown}  {verdict}"
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
