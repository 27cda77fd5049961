"""A thousand pods for a minute: CPU, memory, sweep time, and what KEDA waits meanwhile.

    python benchmarks/fleet.py [PODS] [SECONDS]

Three processes: the fleet (one listener a pod on loopback addresses, answering as vLLM does: whole
at ``/metrics``, filtered and compressed at ``/metrics/?name[]=``), the scaler as users run it, and
this one, which asks as KEDA does. CPU is the operating system's account of the scaler's process.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import os
import re
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from itertools import cycle
from pathlib import Path

import grpc.aio

from scaler.keda._pb.externalscaler_pb2 import GetMetricsRequest, ScaledObjectRef
from scaler.keda._pb.externalscaler_pb2_grpc import ExternalScalerStub
from scaler.vllm.names import SAMPLE_NAMES
from scaler.vllm.recording import read_recording

RECORDING = Path(__file__).parent.parent / "scaler/demo/data/h200-8b.standup.metrics.jsonl.xz"
INTERVAL = 5.0
RATE = 200  # RPCs a second while the sweeps go on
SMALL = 50  # ScaledObjects of two pods each, beside the large one
BUDGETS = {"cpu": 0.30, "sweep": INTERVAL, "rss": 300.0, "p99": 5.0}
NAME = "s0-vllm-desired-replicas"


def address(pod: int) -> str:
    """Return the loopback address of a pod."""
    return f"127.{1 + pod // 62500}.{pod // 250 % 250}.{1 + pod % 250}"


# --- the fleet ------------------------------------------------------------------------------------


def answers() -> list[tuple[bytes, bytes]]:
    """Return (whole, filtered) HTTP answers of twenty moments of the recording."""
    wanted = re.compile(
        rb"^(?:# (?:HELP|TYPE) )?(?:" + b"|".join(n.encode() for n in SAMPLE_NAMES) + rb")[ {]"
    )
    made = []
    for scrape in list(read_recording(RECORDING))[::12]:
        body = scrape.body.encode()
        lines = [line for line in body.splitlines(keepends=True) if wanted.match(line)]
        head = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=1.0.0; charset=utf-8\r\n"
        small = gzip.compress(b"".join(lines), 6)
        made.append(
            (
                head + b"Content-Length: %d\r\n\r\n" % len(body) + body,
                head + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(small) + small,
            )
        )
    return made


class Pod(asyncio.Protocol):
    """Answers GETs on one connection."""

    def __init__(self, made: cycle[tuple[bytes, bytes]]) -> None:
        self._made = made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer a request; clients send each in one piece."""
        whole, filtered = next(self._made)
        self._transport.write(filtered if data.startswith(b"GET /metrics/?name") else whole)


async def serve(pods: int, port: int) -> None:
    """Listen on all addresses until terminated."""
    loop, made = asyncio.get_running_loop(), answers()
    for pod in range(pods):
        one = cycle(made[pod % len(made) :] + made[: pod % len(made)])
        await loop.create_server(lambda one=one: Pod(one), address(pod), port)  # type: ignore[misc]
    print("ready", flush=True)
    await asyncio.Event().wait()


# --- the measurement ------------------------------------------------------------------------------


def free_port() -> int:
    """Return a port that is free on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def cpu_seconds(pid: int) -> float:
    """Return user and system time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_mib(pid: int) -> float:
    """Return the resident memory of a process."""
    return (
        int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20
    )


def metrics(port: int) -> dict[str, float]:
    """Return the scaler's own series, by name with labels."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    return {
        name: float(value)
        for name, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))
    }


def trigger(name: str, endpoints: str) -> GetMetricsRequest:
    """Return what KEDA asks of one ScaledObject."""
    metadata = {"endpoints": endpoints, "targetInFlight": "128", "targetTokenRate": "39649"}
    ref = ScaledObjectRef(name=name, namespace="bench", scalerMetadata=metadata)
    return GetMetricsRequest(scaledObjectRef=ref, metricName=NAME)


async def ask(
    port: int, pods: int, fleet_port: int, *, seconds: float, rate: int
) -> tuple[list[float], float]:
    """Ask for ``seconds``, ``rate`` calls a second; return their latencies in ms and a value.

    One call a second is about the large ScaledObject of ``pods`` pods, whose last value is
    returned; the others are about small ones of two.
    """
    urls = [f"http://{address(n)}:{fleet_port}" for n in range(max(pods, 2 * SMALL))]
    large = trigger("large", ",".join(urls[:pods]))
    small = [trigger(f"small-{n}", ",".join(urls[2 * n : 2 * n + 2])) for n in range(SMALL)]
    took: list[float] = []
    value = -1.0
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        stub = ExternalScalerStub(channel)

        async def once(request: GetMetricsRequest) -> None:
            nonlocal value
            begun = time.perf_counter()
            try:
                answer = await stub.GetMetrics(request)
            except grpc.aio.AioRpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
            else:
                if request is large:
                    value = answer.metricValues[0].metricValueFloat
            took.append((time.perf_counter() - begun) * 1e3)

        begun, calls = time.perf_counter(), set[asyncio.Task[None]]()
        for n in range(int(seconds * rate)):
            await asyncio.sleep(max(0.0, begun + n / rate - time.perf_counter()))
            request = large if n % rate == 0 else small[n % SMALL]
            calls.add(task := asyncio.create_task(once(request)))
            task.add_done_callback(calls.discard)
        await asyncio.gather(*calls)
    return took, value


def start(*arguments: str) -> subprocess.Popen[bytes]:
    """Start a process of this interpreter."""
    return subprocess.Popen([sys.executable, *arguments], stdout=subprocess.PIPE)


def p99(took: list[float]) -> float:
    """Return the 99th percentile."""
    return statistics.quantiles(took, n=100)[98]


async def measure(pods: int, seconds: float) -> dict[str, float]:
    """Run all three and return the figures."""
    fleet_port, grpc_port, http_port = free_port(), free_port(), free_port()
    fleet = start(__file__, "--serve", str(pods), str(fleet_port))
    assert fleet.stdout is not None
    scaler = None
    try:
        assert fleet.stdout.readline() == b"ready\n"
        flags = ["--grpc-address", f"127.0.0.1:{grpc_port}", "--log-level", "warning"]
        flags += ["--http-address", f"127.0.0.1:{http_port}", "--page-address", "127.0.0.1:0"]
        flags += ["--allow-endpoints", "127.*", "--scrape-interval", f"{INTERVAL:g}s"]
        scaler = start("-m", "scaler", "serve", *flags)
        await wait_until_open(grpc_port)
        alone, _ = await ask(grpc_port, 0, fleet_port, seconds=seconds / 2, rate=RATE)
        # Warm: filters learned, caches filled. Then the sweeps alone, then with RPCs.
        await ask(grpc_port, pods, fleet_port, seconds=3 * INTERVAL, rate=2)
        before = metrics(http_port)
        cpu, wall = cpu_seconds(scaler.pid), time.perf_counter()
        await ask(grpc_port, pods, fleet_port, seconds=seconds, rate=2)
        cpu, wall = cpu_seconds(scaler.pid) - cpu, time.perf_counter() - wall
        after = metrics(http_port)
        took, value = await ask(grpc_port, pods, fleet_port, seconds=seconds, rate=RATE)
        rss = rss_mib(scaler.pid)
    finally:
        for process in (scaler, fleet):
            if process is not None:
                process.send_signal(signal.SIGTERM)
                process.wait(10)
    change = {name: after[name] - before.get(name, 0.0) for name in after}
    sweep = "vllm_scaler_sweep_duration_seconds"
    sweeps = {k: v for k, v in change.items() if k.startswith(f"{sweep}_bucket")}
    longest = min(float(k.split('"')[1]) for k, v in sweeps.items() if v == max(sweeps.values()))
    scrapes = {k: v for k, v in change.items() if k.startswith("vllm_scaler_scrapes_total{")}
    return {
        "cpu": cpu / wall,
        "rss": rss,
        "sweep": longest,  # the upper edge of the bucket that holds the longest
        "sweeps": change[f"{sweep}_count"],
        "scrapes": sum(scrapes.values()),
        "failed": sum(v for k, v in scrapes.items() if 'cause="ok"' not in k),
        "ms_per_scrape": 1e3 * cpu / sum(scrapes.values()),
        "p50": statistics.median(took),
        "p99": p99(took),
        "p99_without_the_large_fleet": p99(alone),
        "desired": value,
    }


async def wait_until_open(port: int) -> None:
    """Wait for a listener, ten seconds at most."""
    async with asyncio.timeout(10):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


def main() -> int:
    """Print the figures; exit 1 when a budget is missed."""
    if sys.argv[1:2] == ["--serve"]:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
        asyncio.run(serve(int(sys.argv[2]), int(sys.argv[3])))
        return 0
    pods = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    seconds = float(sys.argv[2]) if len(sys.argv) > 2 else 25.0
    figures = asyncio.run(measure(pods, seconds))
    print(json.dumps({name: round(value, 3) for name, value in figures.items()}))
    missed = 0
    for name, budget in BUDGETS.items():
        met = figures[name] <= budget
        missed += not met
        print(f"{name:6} {figures[name]:8.2f}  budget {budget:g}  {'met' if met else 'MISSED'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
