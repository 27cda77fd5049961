"""``record`` and the recorder: what is written is what was answered, and it can be read again."""

from __future__ import annotations

import asyncio
import os
import pty
import signal
import subprocess
import sys
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import TYPE_CHECKING

import aiohttp
import pytest
from aiohttp import web
from click.testing import CliRunner

from scaler.clock import SystemClock
from scaler.commands.record import Recording, file_names, read_urls, record, record_until
from scaler.vllm.recorder import LONGEST_BODY, Recorder
from scaler.vllm.recording import RecordedScrape, read_recording

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable
    from pathlib import Path

    from aiohttp.typedefs import Handler

BODY = 'vllm:num_requests_running{model_name="münchen"} 3.0\n'


@asynccontextmanager
async def server(handler: Handler) -> AsyncIterator[str]:
    """A server on a free port that answers /metrics; its base URL."""
    application = web.Application()
    application.router.add_get("/metrics", handler)
    runner = web.AppRunner(application, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def once(handler: Handler, *, timeout: float = 5.0) -> RecordedScrape:
    """One scrape of a server with this handler."""
    async with (
        server(handler) as url,
        aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=timeout)) as session,
    ):
        return await Recorder(url, session, SystemClock(), lambda _: None).scrape()


def answering(response: Callable[[], web.StreamResponse]) -> Handler:
    async def handler(_: web.Request) -> web.StreamResponse:
        return response()

    return handler


async def hang(_: web.Request) -> web.StreamResponse:
    await asyncio.Event().wait()
    raise AssertionError("never")


async def drop(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


async def test_the_whole_body_is_asked_for_and_kept() -> None:
    asked: list[web.Request] = []

    async def handler(request: web.Request) -> web.Response:
        asked.append(request)
        return web.Response(text=BODY)

    scrape = await once(handler)

    assert (scrape.status, scrape.body) == (200, BODY)
    assert 0 < scrape.seconds < 5
    assert asked[0].path_qs == "/metrics"
    assert asked[0].headers["Accept-Encoding"] == "identity"


@pytest.mark.parametrize(
    ("handler", "status", "body"),
    [
        pytest.param(
            answering(lambda: web.Response(status=503, text="loading")), 503, "loading", id="503"
        ),
        pytest.param(answering(lambda: web.Response(body=b"a\xffb")), 200, "a\ufffdb", id="bytes"),
        pytest.param(drop, 0, "ServerDisconnectedError", id="dropped"),
        pytest.param(
            answering(lambda: web.Response(body=b"x" * (LONGEST_BODY + 1))),
            0,
            "BodyTooLarge",
            id="too large",
        ),
        pytest.param(
            answering(lambda: web.Response(status=302, headers={"Location": "/metrics"})),
            0,
            "TooManyRedirects",
            id="in circles",
        ),
    ],
)
async def test_odd_answers(handler: Handler, status: int, body: str) -> None:
    scrape = await once(handler)

    assert (scrape.status, scrape.body) == (status, body)


async def test_a_hanging_server_is_an_error_by_name() -> None:
    scrape = await once(hang, timeout=0.1)

    assert scrape.status == 0
    assert "Timeout" in scrape.body
    assert scrape.seconds >= 0.1


async def test_nobody_there_is_an_error_by_name() -> None:
    async with server(hang) as url:
        pass  # the port is free again
    async with aiohttp.ClientSession() as session:
        scrape = await Recorder(url, session, SystemClock(), lambda _: None).scrape()

    assert (scrape.status, scrape.body) == (0, "ClientConnectorError")


async def test_scrapes_never_overlap_and_missed_ones_are_left_out() -> None:
    """Each answer takes three and a half intervals: the server is that slow."""
    under_way, most, starts = 0, 0, list[float]()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def handler(_: web.Request) -> web.Response:
        nonlocal under_way, most
        starts.append(loop.time())
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.07)
        under_way -= 1
        if len(starts) == 4:
            stop.set()
        return web.Response(text=BODY)

    written: list[RecordedScrape] = []
    async with server(handler) as url, aiohttp.ClientSession() as session:
        await Recorder(url, session, SystemClock(), written.append).run(0.02, stop)

    assert most == 1
    assert len(written) == 4  # the one under way when it was stopped, too
    assert all(later - earlier >= 0.07 for earlier, later in pairwise(starts))


async def record_some(count: int, path: Path, *, interval: float = 0.02) -> Recording:
    """Record ``count`` scrapes of a server that answers ``BODY``."""
    stop, answered = asyncio.Event(), 0

    async def handler(_: web.Request) -> web.Response:
        nonlocal answered
        answered += 1
        if answered == count:
            stop.set()
        return web.Response(text=BODY)

    async with server(handler) as url:
        recording = Recording(url, path)
        await record_until(stop, [recording], interval, 5.0)
    return recording


async def test_what_was_recorded_can_be_read(tmp_path: Path) -> None:
    recording = await record_some(5, tmp_path / "a.metrics.jsonl.xz")

    scrapes = list(read_recording(recording.path))
    assert [(s.status, s.body) for s in scrapes] == [(200, BODY)] * 5
    assert [s.at for s in scrapes] == sorted(s.at for s in scrapes)
    assert (recording.scrapes, recording.failures) == (5, 0)


async def test_one_dead_endpoint_costs_the_other_nothing(tmp_path: Path) -> None:
    stop, answered = asyncio.Event(), 0

    async def handler(_: web.Request) -> web.Response:
        nonlocal answered
        answered += 1
        if answered == 3:
            stop.set()
        return web.Response(text=BODY)

    async with server(handler) as good, server(hang) as bad:
        alive, dead = Recording(good, tmp_path / "a.xz"), Recording(bad, tmp_path / "b.xz")
        await record_until(stop, [alive, dead], 0.02, 0.2)

    assert [s.status for s in read_recording(alive.path)] == [200] * 3
    assert {s.status for s in read_recording(dead.path)} == {0}
    assert dead.failures == dead.scrapes > 0


async def test_nothing_is_written_over(tmp_path: Path) -> None:
    path = tmp_path / "a.metrics.jsonl.xz"
    path.write_bytes(b"precious")

    with pytest.raises(FileExistsError):
        await record_until(asyncio.Event(), [Recording("http://127.0.0.1:1", path)], 1.0, 1.0)

    assert path.read_bytes() == b"precious"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param(["--endpoints", "localhost:8000"], "'localhost:8000': must be base", id="url"),
        pytest.param(["--endpoints", "ftp://a,http://b:x"], "'ftp://a', 'http://b:x'", id="all"),
        pytest.param(["--endpoints", " , "], "nothing: must be base URLs", id="nothing"),
        pytest.param(["--endpoints", "http://a,http://a/"], "http://a: named twice", id="twice"),
        pytest.param(["--endpoints", "http://a", "--interval", "0"], "at least 50ms", id="often"),
    ],
)
def test_wrong_arguments_are_named(tmp_path: Path, arguments: list[str], told: str) -> None:
    result = CliRunner().invoke(record, [*arguments, "--out", str(tmp_path)])

    assert result.exit_code == 2
    assert told in " ".join(result.output.split())


def test_an_existing_file_is_named_before_anything_is_asked(tmp_path: Path) -> None:
    (tmp_path / "run-2.metrics.jsonl.xz").touch()

    result = CliRunner().invoke(
        record, ["--endpoints", "http://a,http://b", "--out", str(tmp_path), "--name", "run"]
    )

    assert result.exit_code == 1
    assert "run-2.metrics.jsonl.xz: exists, and is not overwritten" in result.output
    assert not (tmp_path / "run-1.metrics.jsonl.xz").exists()


@pytest.mark.parametrize(
    ("urls", "name", "expected"),
    [
        (["http://localhost:8000"], None, ["localhost-8000"]),
        (["http://[fd00::7]:8000/x"], None, ["fd00-7-8000-x"]),
        (["http://a:1"], "run", ["run"]),
        (["http://a:1", "http://b:1"], "run", ["run-1", "run-2"]),
    ],
)
def test_file_names(urls: list[str], name: str | None, expected: list[str]) -> None:
    assert file_names(urls, name) == [stem + ".metrics.jsonl.xz" for stem in expected]


def test_urls_lose_spaces_and_a_last_slash() -> None:
    assert read_urls(" http://a:1/ ,https://b") == ("http://a:1", "https://b")


async def run_command(
    *arguments: str, output: int, until: Callable[[], Awaitable[None]], number: signal.Signals
) -> int:
    """Run ``record`` as people do, send it a signal, return its exit status."""
    command = [sys.executable, "-m", "scaler", "record", *arguments]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=output, stderr=subprocess.STDOUT, env={**os.environ, "TERM": "xterm"}
    )
    try:
        async with asyncio.timeout(30):
            await until()
            process.send_signal(number)
            return await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_ctrl_c_ends_cleanly_with_a_readable_file(
    tmp_path: Path, number: signal.Signals
) -> None:
    answered = asyncio.Event()

    async def handler(_: web.Request) -> web.Response:
        answered.set()
        return web.Response(text=BODY)

    async def some_answers() -> None:
        await answered.wait()
        answered.clear()
        await answered.wait()

    with (tmp_path / "output").open("wb") as output:
        async with server(handler) as url:
            arguments = (
                "--endpoints",
                url,
                "--out",
                str(tmp_path),
                "--name",
                "r",
                "--interval=50ms",
            )
            status = await run_command(
                *arguments, output=output.fileno(), until=some_answers, number=number
            )

    scrapes = list(read_recording(tmp_path / "r.metrics.jsonl.xz"))
    assert status == 0
    assert len(scrapes) >= 2
    first, last = (tmp_path / "output").read_text().splitlines()
    assert first == f"recording {url} to {tmp_path}/r.metrics.jsonl.xz"
    assert last.endswith(f": {len(scrapes)} scrapes, 0 without an answer of 200")


async def test_a_terminal_shows_progress(tmp_path: Path) -> None:
    answered = asyncio.Event()

    async def handler(_: web.Request) -> web.Response:
        answered.set()
        return web.Response(text=BODY)

    leader, follower = pty.openpty()
    try:
        async with server(handler) as url:
            arguments = ("--endpoints", url, "--out", str(tmp_path), "--name", "r")

            async def answer() -> None:
                await answered.wait()

            status = await run_command(
                *arguments, output=follower, until=answer, number=signal.SIGINT
            )
        shown = os.read(leader, 1 << 16).decode()
    finally:
        os.close(leader)
        os.close(follower)

    assert status == 0
    assert "Ctrl-C ends" in shown
    assert "\x1b[" in shown


@pytest.mark.parametrize("name", ["a/../../b", "../x", "", ".hidden", "two words"])
def test_a_name_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    arguments = ["--endpoints", "http://127.0.0.1:1", "--out", str(tmp_path), "--name", name]
    result = CliRunner().invoke(record, arguments)

    assert result.exit_code == 2
    assert "must be letters, digits" in result.output
