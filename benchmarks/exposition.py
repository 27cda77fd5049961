"""What /metrics costs with many triggers, and what counting a scrape or an RPC costs.

Run: ``python benchmarks/exposition.py [TRIGGERS]``. Prints the time and size of one exposition in
both formats, the longest stall of an event loop while one is rendered in its thread, and the time
of one call of each telemetry method.
"""

from __future__ import annotations

import asyncio
import gzip
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from scaler.clock import SystemClock
from scaler.core.model import (
    Decision,
    FleetView,
    Floors,
    Latency,
    PodCounts,
    PodState,
    PodView,
    Quantiles,
    Reason,
    Signal,
    SignalReading,
)
from scaler.exporter.derived import DerivedCollector
from scaler.exporter.exposition import Format, Renderer
from scaler.exporter.page import render as render_page
from scaler.exporter.telemetry import Telemetry
from scaler.exporter.view import look, to_json
from scaler.store import Store

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler.core.model import Now

ROUNDS = 5
CALLS = 100_000
QUANTILES = Quantiles(900.0, 0.9, (0.5, 0.25, 0.75), (2.4, 1.0, 2.5), (4.1, 2.5, 5.0))


def decision(now: Now) -> Decision:
    """A decision with nothing missing: six pods, all signals, all latencies."""
    reading = SignalReading(4.0, 512.0, 128.0, 4.0)
    return Decision(
        sequence=1,
        at=now,
        valid=True,
        desired=4,
        active=True,
        reason=Reason.LOAD,
        message="concurrency needs 4",
        binding=Signal.CONCURRENCY,
        composite=4.0,
        pressure=1.3,
        signals=dict.fromkeys(Signal, reading),
        floors=Floors(schedule=2),
        counts=PodCounts(total=6, ready=6, fresh=6),
        fleet=FleetView(
            running=489.0,
            waiting=23.0,
            waiting_by_reason={"capacity": 20.0, "deferred": 3.0},
            kv_mean=0.6,
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
            latencies=dict.fromkeys(Latency, QUANTILES),
            within_promise=(0.96, 0.99),
        ),
        pods=tuple(
            PodView(f"llama-{i}", PodState.FRESH, 80.0, 4.0, 0.9, 1.5, kv_name="vllm:kv")
            for i in range(6)
        ),
        model="meta-llama/Llama-3.1-8B-Instruct",
        oldest_sample_age=1.5,
    )


def best(work: Callable[[], object]) -> float:
    """Return the least time of a few rounds, seconds."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        work()
        times.append(time.perf_counter() - start)
    return min(times)


async def longest_stall(renderer: Renderer) -> tuple[float, float]:
    """Render once while a ticker counts; return (its longest late wake-up, the time taken)."""
    late = 0.0

    async def tick() -> None:
        nonlocal late
        while True:
            due = time.perf_counter() + 0.001
            await asyncio.sleep(0.001)
            late = max(late, time.perf_counter() - due)

    ticker = asyncio.create_task(tick())
    await asyncio.sleep(0.05)
    late, start = 0.0, time.perf_counter()
    await renderer.render(Format.TEXT, compress=True)
    taken = time.perf_counter() - start
    ticker.cancel()
    return late, taken


async def main(count: int) -> None:
    """Print all figures."""
    clock = SystemClock()
    store = Store(clock)
    for i in range(count):
        trigger = store.register("chat", f"llama-{i}", {"scalerAddress": "s:6000"})
        trigger.publish(decision(clock.now()))
    telemetry = Telemetry()
    collector = DerivedCollector(store, clock)
    with ThreadPoolExecutor(1) as thread:
        renderer = Renderer([collector, telemetry.registry], thread)
        body = await renderer.render(Format.TEXT, compress=False)
        series = sum(not line.startswith(b"#") for line in body.splitlines())
        print(f"{count} triggers: {series} series, {len(body) / 1e6:.1f} MB, ", end="")
        print(f"{len(gzip.compress(body, 4)) / 1e6:.2f} MB compressed")
        print(f"collect            {best(lambda: list(collector.collect())) * 1e3:8.1f} ms")
        for form in Format:
            taken = best(lambda form=form: renderer.generate(form, compress=False))  # type: ignore[misc]
            print(f"render {form.name:11} {taken * 1e3:8.1f} ms")
        late, taken = await longest_stall(renderer)
        print(f"in its thread, gzip{taken * 1e3:8.1f} ms; the loop was late by {late * 1e3:.1f} ms")
    seen = look(store, clock.now())
    print(f"/decisions         {best(lambda: to_json(seen)) * 1e3:8.1f} ms")
    print(f"page, as a table   {best(lambda: render_page(seen)) * 1e3:8.1f} ms")
    for name, call in (
        ("scrape", lambda: telemetry.scrape(None, 0.004)),
        ("decision", lambda: telemetry.decision(Reason.LOAD, 0.0002)),
        ("rpc", lambda: telemetry.rpc("GetMetrics", "OK", 0.001)),
    ):
        taken = best(lambda call=call: [call() for _ in range(CALLS)])  # type: ignore[misc]
        print(f"telemetry.{name:9}{taken / CALLS * 1e6:8.2f} us")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 500))
