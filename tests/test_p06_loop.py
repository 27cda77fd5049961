"""P06: whatever is slow, KEDA and the probes are answered meanwhile.

Each obstruction lasts until a client in another thread has been answered so many times, so nothing
here depends on how fast the machine is: what blocks the event loop blocks its own end.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import structlog
from fakes import VllmServer
from grpc_health.v1 import health_pb2, health_pb2_grpc

from scaler.app import App
from scaler.config.settings import Address, ScrapeSettings, Settings
from scaler.logs import configure_logging
from scaler.vllm import scrape
from scaler.vllm.exposition import read_exposition

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from scaler.store import Trigger

pytestmark = pytest.mark.timeout(40)

ENOUGH = 50  # answers while the obstruction is in place
PATIENCE = 10.0  # seconds until an obstruction gives up, and its test fails
ANY = Address("127.0.0.1", 0)
HANGS = "hangs.test"


class Prober(threading.Thread):
    """Asks for the health of the server, over and over, in a thread of its own."""

    def __init__(self, port: int) -> None:
        super().__init__(name="prober", daemon=True)
        self._port = port
        self._answered = 0
        self._news = threading.Condition()
        self._ended = threading.Event()

    def run(self) -> None:
        with grpc.insecure_channel(f"127.0.0.1:{self._port}") as channel:
            stub = health_pb2_grpc.HealthStub(channel)
            while not self._ended.is_set():
                stub.Check(health_pb2.HealthCheckRequest(), timeout=2 * PATIENCE)
                with self._news:
                    self._answered += 1
                    self._news.notify_all()

    def more(self) -> bool:
        """Wait for ENOUGH more answers; return whether they came. Blocks."""
        with self._news:
            wanted = self._answered + ENOUGH
            return self._news.wait_for(lambda: self._answered >= wanted, PATIENCE)

    async def end(self) -> None:
        self._ended.set()
        await asyncio.to_thread(self.join)


class Obstruction:
    """Blocks whoever runs into it until the prober had ENOUGH answers."""

    def __init__(self) -> None:
        self.prober: Prober | None = None
        self.outlasted: list[bool] = []
        self.passed = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def block(self) -> None:
        assert self.prober is not None
        self.outlasted.append(self.prober.more())
        self._loop.call_soon_threadsafe(self.passed.set)


@asynccontextmanager
async def serving(obstruction: Obstruction | None = None) -> AsyncIterator[tuple[App, Prober]]:
    settings = Settings(
        grpc_address=ANY,
        http_address=ANY,
        page_address=ANY,
        scrape=ScrapeSettings(interval=0.2, timeout=2 * PATIENCE),
        allow_endpoints=("127.0.0.1", HANGS),
    )
    async with App(settings) as app:
        assert app.addresses is not None
        prober = Prober(app.addresses.grpc_port)
        if obstruction is not None:
            obstruction.prober = prober
        prober.start()
        try:
            yield app, prober
        finally:
            await prober.end()


def watch(app: App, endpoints: str) -> Trigger:
    return app.store.register("team", "llama", {"endpoints": endpoints})


async def test_p06_a_body_of_four_megabytes_is_read_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    obstruction = Obstruction()

    def read(*given: Any, **named: Any) -> Any:
        obstruction.block()
        return read_exposition(*given, **named)

    monkeypatch.setattr(scrape, "read_exposition", read)
    pod = VllmServer()
    pod.waiting = 20
    line = 'vllm:some_bucket{engine="0",model_name="llama",le="%d"} 1\n'
    pod.raw = pod.body() + "".join(line % n for n in range(60_000))
    assert 3e6 < len(pod.raw) < 4 * 2**20
    await pod.start()
    try:
        async with serving(obstruction) as (app, _):
            trigger = watch(app, pod.url)
            await obstruction.passed.wait()
            async for decision in trigger.decisions():
                if decision.valid:
                    break
    finally:
        await pod.stop()

    assert obstruction.outlasted[0]
    assert decision.desired == 4  # it was read, and whole


async def test_p06_a_name_whose_look_up_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    obstruction = Obstruction()
    real: Callable[..., Any] = socket.getaddrinfo

    def look_up(host: Any, *given: Any, **named: Any) -> Any:
        if host != HANGS:
            return real(host, *given, **named)
        obstruction.block()
        raise socket.gaierror(socket.EAI_AGAIN, "the name server is silent")

    monkeypatch.setattr(socket, "getaddrinfo", look_up)
    async with serving(obstruction) as (app, _):
        watch(app, f"dns+http://{HANGS}:8000")
        await obstruction.passed.wait()

    assert obstruction.outlasted[0]


@pytest.fixture
def stalled_stderr() -> Iterator[None]:
    """Send log lines to a pipe that is full and that nobody reads."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writer, b"." * 4096)
    os.set_blocking(writer, True)
    before = logging.getLogger().handlers[:]
    lines = configure_logging("json", "debug", descriptor=writer)
    yield
    logging.getLogger().handlers[:] = before
    structlog.reset_defaults()
    os.close(reader)  # the write that hangs fails
    assert lines.close(PATIENCE)
    os.close(writer)


@pytest.mark.usefixtures("stalled_stderr")
@pytest.mark.parametrize("through", ["structlog", "logging"])
async def test_p06_a_reader_of_the_log_that_stalls(through: str) -> None:
    log = structlog.get_logger() if through == "structlog" else logging.getLogger("library")
    async with serving() as (app, prober):
        trigger = watch(app, "http://127.0.0.1:1")  # its story is logged
        answered = asyncio.create_task(asyncio.to_thread(prober.more))
        while not answered.done():
            log.warning("a line")
            await asyncio.sleep(0)
        decision = await anext(trigger.decisions())

    assert answered.result()
    assert decision.sequence >= 1
