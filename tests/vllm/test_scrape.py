"""One scrape, against servers that answer, answer oddly, or do not."""

from __future__ import annotations

import asyncio
import errno
import gzip
import os
import socket
import ssl
import threading
import zlib
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from recordings.corpus import single

from scaler.config.settings import ScrapeSettings
from scaler.core.model import PodSample, ScrapeCause, ScrapeFailure
from scaler.errors import InvalidSettings
from scaler.vllm import fetch
from scaler.vllm import scrape as scrape_module
from scaler.vllm.exposition import read_exposition

if TYPE_CHECKING:
    from pathlib import Path

    from vllm.conftest import Servers

BODY = single("0.32.0-v1/loaded")
SMALL = b"vllm:num_requests_running 2\nvllm:num_requests_waiting 3\n"
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n"


async def body(_: web.BaseRequest) -> web.StreamResponse:
    return web.Response(body=BODY)


def failed(outcome: PodSample | ScrapeFailure) -> ScrapeFailure:
    assert isinstance(outcome, ScrapeFailure), outcome
    return outcome


async def test_a_real_body_over_http(servers: Servers) -> None:
    url = await servers.http(body)

    assert await servers.scraper().scrape(f"{url}/metrics") == read_exposition(BODY)


async def test_d10_ipv6_literals(servers: Servers) -> None:
    """On a machine without IPv6 this fails, rather than pass for having been tested."""
    port = (await servers.http(body, host="::1")).rpartition(":")[2]

    assert isinstance(await servers.scraper().scrape(f"http://[::1]:{port}/metrics"), PodSample)


# --- causes ---------------------------------------------------------------------------------------


async def test_d04_nobody_listens_is_refused(servers: Servers) -> None:
    with socket.socket() as held:  # bound, not listening: what a loading vLLM does
        held.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{held.getsockname()[1]}/metrics"
        outcome = failed(await servers.scraper().scrape(url))

    assert outcome == ScrapeFailure(ScrapeCause.REFUSED, "connection refused")


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        (401, ScrapeCause.UNAUTHORIZED),
        (403, ScrapeCause.UNAUTHORIZED),
        (204, ScrapeCause.HTTP_STATUS),
        (404, ScrapeCause.HTTP_STATUS),
        (500, ScrapeCause.HTTP_STATUS),
        pytest.param(503, ScrapeCause.HTTP_STATUS, id="d17 a sidecar refuses"),
    ],
)
async def test_d17_a_status_is_told_and_no_body_is_read(
    servers: Servers, status: int, cause: ScrapeCause
) -> None:
    async def handler(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=status, body=BODY if status != 204 else None)

    url = await servers.http(handler)

    assert await servers.scraper().scrape(f"{url}/metrics") == ScrapeFailure(
        cause, f"HTTP {status}"
    )


async def test_d17_metrics_merged_by_a_sidecar_are_read_and_without_the_pods_are_none(
    servers: Servers,
) -> None:
    """Istio's agent puts its own before the application's; it answers 200 when that is down."""
    sidecar = (
        b"# TYPE istio_requests_total counter\n"
        b'istio_requests_total{reporter="destination",response_code="200"} 7\n'
        b"# TYPE envoy_server_live gauge\nenvoy_server_live{} 1\n"
    )

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        assert request.path.endswith("/stats/prometheus")
        return web.Response(body=sidecar + (BODY if request.path.startswith("/up/") else b""))

    url = await servers.http(handler)
    scraper = servers.scraper()

    assert await scraper.scrape(f"{url}/up/stats/prometheus") == read_exposition(BODY)
    alone = failed(await scraper.scrape(f"{url}/down/stats/prometheus"))
    assert alone.cause is ScrapeCause.NO_VLLM_METRICS


async def test_d17_a_connection_that_is_reset(servers: Servers) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        linger = b"\x01\x00\x00\x00\x00\x00\x00\x00"  # on, 0 s: close() sends RST
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)

    url = await servers.raw(talk)

    assert failed(await servers.scraper().scrape(f"{url}/metrics")).cause is ScrapeCause.RESET


async def test_a_connection_closed_without_an_answer(servers: Servers) -> None:
    async def talk(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")

    url = await servers.raw(talk)

    assert failed(await servers.scraper().scrape(f"{url}/metrics")).cause is ScrapeCause.RESET


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(HEAD + b"Content-Length: 9999\r\n\r\n" + SMALL, id="content-length"),
        pytest.param(
            HEAD + b"Transfer-Encoding: chunked\r\n\r\n3a\r\n" + SMALL + b"\r\n", id="chunked"
        ),
        pytest.param(HEAD + b"Connection: close\r\n\r\n" + SMALL[:-4], id="up to the close"),
        pytest.param(
            HEAD
            + b"Connection: close\r\nContent-Encoding: gzip\r\n\r\n"
            + gzip.compress(SMALL)[:-4],
            id="gzip",
        ),
    ],
)
async def test_a_body_cut_on_the_way_is_truncated(servers: Servers, answer: bytes) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        await writer.drain()

    url = await servers.raw(talk)

    assert failed(await servers.scraper().scrape(f"{url}/metrics")).cause is ScrapeCause.TRUNCATED


async def test_what_is_no_http_is_no_metrics(servers: Servers) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(b"\x00\x00\x12\x04\x00\x00\x00\x00\x00 an HTTP/2 settings frame\r\n\r\n")
        await writer.drain()

    url = await servers.raw(talk)

    assert failed(await servers.scraper().scrape(f"{url}/metrics")).cause is ScrapeCause.NOT_METRICS


async def test_a_name_that_does_not_resolve(servers: Servers) -> None:
    outcome = failed(await servers.scraper().scrape("http://vllm.invalid:8000/metrics"))

    assert outcome == ScrapeFailure(ScrapeCause.DNS, "cannot resolve vllm.invalid")


@pytest.mark.parametrize("url", ["http://", "ftp://h/metrics", "http://h:99999/metrics", "", "h"])
async def test_a_url_that_is_none_is_told_by_its_error(servers: Servers, url: str) -> None:
    outcome = failed(await servers.scraper().scrape(url))

    assert outcome.cause is ScrapeCause.OTHER
    assert outcome.detail.isidentifier()


@pytest.mark.parametrize(
    ("error", "cause"),
    [
        (OSError(errno.ECONNREFUSED, "x"), ScrapeCause.REFUSED),
        (OSError(errno.EHOSTUNREACH, "x"), ScrapeCause.REFUSED),
        (OSError(errno.ENETUNREACH, "x"), ScrapeCause.REFUSED),
        (OSError(errno.ETIMEDOUT, "x"), ScrapeCause.TIMEOUT),
        (TimeoutError(), ScrapeCause.TIMEOUT),
        (OSError(errno.EPIPE, "x"), ScrapeCause.RESET),
        (ConnectionResetError("Cannot write to closing transport"), ScrapeCause.RESET),
        (OSError(errno.EMFILE, "x"), ScrapeCause.OTHER),
        (ssl.SSLError(1, "x"), ScrapeCause.TLS),
        (KeyError("secret"), ScrapeCause.OTHER),
    ],
    ids=repr,
)
def test_every_error_has_a_cause_and_no_message_of_its_own(
    error: Exception, cause: ScrapeCause
) -> None:
    failure = fetch.failure_of(error, ScrapeSettings())

    assert failure.cause is cause
    assert "secret" not in failure.detail


# --- deadlines ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "first",
    [b"", HEAD, HEAD + b"Content-Length: 9999\r\n\r\n" + SMALL],
    ids=["ear", "head", "body"],
)
async def test_d12_a_pod_that_stops_within_its_answer_ends_at_the_deadline(
    servers: Servers, first: bytes
) -> None:
    asked = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(first)
        asked.set()
        await reader.read()  # until the scraper hangs up

    url = await servers.raw(talk)
    outcome = failed(await servers.scraper(timeout=0.2).scrape(f"{url}/metrics"))

    assert asked.is_set()
    assert outcome == ScrapeFailure(ScrapeCause.TIMEOUT, "no complete answer within 0.2 s")


async def test_d12_a_pod_that_drips_cannot_outlast_the_deadline(servers: Servers) -> None:
    async def talk(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(HEAD + b"Content-Length: 99999\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"#\n")
            await writer.drain()
            await asyncio.sleep(0.02)

    url = await servers.raw(talk)
    started = asyncio.get_running_loop().time()
    outcome = failed(await servers.scraper(timeout=0.3).scrape(f"{url}/metrics"))

    assert outcome.cause is ScrapeCause.TIMEOUT
    assert asyncio.get_running_loop().time() - started < 2


async def test_d18_dropped_packets_end_at_the_connect_timeout(servers: Servers) -> None:
    """A full backlog drops SYNs, as a NetworkPolicy does: nothing answers, nothing refuses."""
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        deaf.listen(0)
        address = deaf.getsockname()
        with socket.create_connection(address), socket.socket() as second:
            second.setblocking(False)
            second.connect_ex(address)
            url = f"http://127.0.0.1:{address[1]}/metrics"
            scraper = servers.scraper(connect_timeout=0.2, timeout=30.0)
            outcome = failed(await scraper.scrape(url))
            by_default = failed(await servers.scraper().scrape(url))

    assert outcome == ScrapeFailure(ScrapeCause.TIMEOUT, "no connection within 0.2 s")
    assert ScrapeSettings().connect_timeout <= 2.0
    assert by_default == ScrapeFailure(ScrapeCause.TIMEOUT, "no connection within 2 s")


async def test_cancellation_passes_through(servers: Servers) -> None:
    asked = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, _: asyncio.StreamWriter) -> None:
        asked.set()
        await reader.read()

    url = await servers.raw(talk)
    task = asyncio.create_task(servers.scraper().scrape(f"{url}/metrics"))
    await asked.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_d12_as_many_scrapes_run_at_once_as_are_asked_for(servers: Servers) -> None:
    everybody = asyncio.Barrier(150)

    async def handler(_: web.BaseRequest) -> web.StreamResponse:
        await everybody.wait()
        return web.Response(body=SMALL)

    url = await servers.http(handler)
    scraper = servers.scraper(timeout=30.0)
    outcomes = await asyncio.gather(*(scraper.scrape(f"{url}/{n}/m") for n in range(150)))

    assert all(isinstance(outcome, PodSample) for outcome in outcomes)


# --- size -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["identity", "gzip"])
async def test_a_body_beyond_the_bound_is_refused_and_at_the_bound_is_read(
    servers: Servers, encoding: str
) -> None:
    async def handler(_: web.BaseRequest) -> web.StreamResponse:
        sent = gzip.compress(BODY) if encoding == "gzip" else BODY
        return web.Response(body=sent, headers={"Content-Encoding": encoding})

    url = await servers.http(handler)
    fits = await servers.scraper(max_body_bytes=len(BODY)).scrape(f"{url}/metrics")
    above = await servers.scraper(max_body_bytes=len(BODY) - 1).scrape(f"{url}/metrics")

    assert isinstance(fits, PodSample)
    assert failed(above).cause is ScrapeCause.TOO_LARGE


async def test_a_gzip_bomb_is_refused_before_it_unfolds(servers: Servers) -> None:
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(b"#" * (1 << 20)) for _ in range(300)) + packer.flush()

    async def handler(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=bomb, headers={"Content-Encoding": "gzip"})

    url = await servers.http(handler)
    outcome = failed(await servers.scraper(max_body_bytes=1 << 20).scrape(f"{url}/metrics"))

    assert outcome == ScrapeFailure(ScrapeCause.TOO_LARGE, "the body is larger than 1048576 bytes")


async def test_a_body_without_an_end_is_refused(servers: Servers) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for _ in range(10_000):
            await response.write(b"# and so on\n" * 1000)
        return response

    url = await servers.http(handler)
    outcome = failed(await servers.scraper().scrape(f"{url}/metrics"))

    assert outcome.cause is ScrapeCause.TOO_LARGE


@pytest.mark.parametrize("encoding", ["br", "deflate", "zstd", "gzip, gzip"])
async def test_an_encoding_nobody_asked_for_is_refused(servers: Servers, encoding: str) -> None:
    async def handler(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=SMALL, headers={"Content-Encoding": encoding})

    url = await servers.http(handler)
    outcome = failed(await servers.scraper().scrape(f"{url}/metrics"))

    assert outcome.cause is ScrapeCause.NOT_METRICS
    assert encoding in outcome.detail


async def test_a_body_that_says_gzip_and_is_not(servers: Servers) -> None:
    async def handler(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(body=SMALL, headers={"Content-Encoding": "gzip"})

    url = await servers.http(handler)
    outcome = failed(await servers.scraper().scrape(f"{url}/metrics"))

    assert outcome == ScrapeFailure(ScrapeCause.NOT_METRICS, "the body is no gzip")


async def test_d12_large_bodies_are_parsed_off_the_loop(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[str] = []

    def spy(body: bytes, *, openmetrics: bool | None = None) -> PodSample | ScrapeFailure:
        threads.append(threading.current_thread().name)
        return read_exposition(body, openmetrics=openmetrics)

    monkeypatch.setattr(scrape_module, "read_exposition", spy)

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        size = scrape_module._LARGE if request.path == "/large" else scrape_module._LARGE // 2
        return web.Response(body=SMALL + b"# 1\n" * (size // 4))

    url = await servers.http(handler)
    for path in ("small", "large"):
        assert isinstance(await servers.scraper().scrape(f"{url}/{path}"), PodSample)

    assert threads[0] == threading.main_thread().name
    assert threads[1].startswith("exposition")


# --- redirects ------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [301, 302, 307, 308])
async def test_d16_a_redirect_on_the_same_host_is_followed_once(
    servers: Servers, status: int
) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/metrics":
            return web.Response(status=status, headers={"Location": "/metrics/"})
        return web.Response(body=BODY)

    url = await servers.http(handler)

    assert isinstance(await servers.scraper().scrape(f"{url}/metrics"), PodSample)


async def test_d16_a_second_redirect_is_refused(servers: Servers) -> None:
    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=307, headers={"Location": f"{request.path}/"})

    url = await servers.http(handler)

    assert failed(await servers.scraper().scrape(f"{url}/metrics")).cause is ScrapeCause.REDIRECT


@pytest.mark.parametrize(
    "location",
    [
        "http://127.0.0.1:{other}/metrics",
        "http://localhost:{port}/metrics",
        "//evil/",
        "file:///x",
        "",
    ],
)
async def test_d16_a_redirect_elsewhere_is_refused_and_gets_no_token(
    servers: Servers, tmp_path: Path, location: str
) -> None:
    seen: list[str | None] = []

    async def elsewhere(request: web.BaseRequest) -> web.StreamResponse:
        seen.append(request.headers.get("Authorization"))
        return web.Response(body=BODY)

    other = await servers.http(elsewhere)

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        where = location.format(other=other.rpartition(":")[2], port=request.url.port)
        return web.Response(status=307, headers={"Location": where})

    url = await servers.http(handler)
    token = tmp_path / "token"
    token.write_text("secret-1")
    outcome = failed(await servers.scraper(token_file=token).scrape(f"{url}/metrics"))

    assert outcome.cause is ScrapeCause.REDIRECT
    assert seen == []


# --- tokens ---------------------------------------------------------------------------------------


class Guard:
    """A proxy that wants one token."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.asked: list[str] = []

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        self.asked.append(request.headers.get("Authorization", ""))
        wanted = self.asked[-1] == f"Bearer {self.token}"
        return web.Response(body=SMALL) if wanted else web.Response(status=401, text="go away")


async def test_d14_a_rotated_token_is_read_again(servers: Servers, tmp_path: Path) -> None:
    guard, token = Guard("first"), tmp_path / "token"
    token.write_text("first\n")
    url = f"{await servers.http(guard)}/m"
    scraper = servers.scraper(token_file=token)
    assert isinstance(await scraper.scrape(url), PodSample)
    for value in ("second", "third-and-longer", "fourth.with-_~+/chars=="):
        new = tmp_path / "new"
        new.write_text(value)
        new.rename(token)
        guard.token = value
        assert isinstance(await scraper.scrape(url), PodSample)

    assert len(guard.asked) == 4  # a change of the file is seen before anybody says 401


async def test_d14_a_401_is_told_and_the_token_is_not(servers: Servers, tmp_path: Path) -> None:
    guard, token = Guard("right"), tmp_path / "token"
    token.write_text("stale-secret")
    url = f"{await servers.http(guard)}/m"
    scraper = servers.scraper(token_file=token)
    for _ in range(3):
        outcome = failed(await scraper.scrape(url))
        assert outcome == ScrapeFailure(ScrapeCause.UNAUTHORIZED, "HTTP 401")

    token.write_text("right")
    assert isinstance(await scraper.scrape(url), PodSample)


async def test_d14_a_token_file_that_breaks_keeps_the_last_good_token(
    servers: Servers, tmp_path: Path
) -> None:
    guard, token = Guard("right"), tmp_path / "token"
    token.write_text("right")
    url = f"{await servers.http(guard)}/m"
    scraper = servers.scraper(token_file=token)
    for broken in ("", "two words\r\nX-Evil: 1"):
        token.write_text(broken)
        assert isinstance(await scraper.scrape(url), PodSample)
    token.unlink()

    assert isinstance(await scraper.scrape(url), PodSample)


async def test_d14_a_401_has_the_token_read_again_even_if_the_file_looks_the_same(
    servers: Servers, tmp_path: Path
) -> None:
    guard, token = Guard("aaaa"), tmp_path / "token"
    token.write_text("aaaa")
    before = token.stat()
    url = f"{await servers.http(guard)}/m"
    scraper = servers.scraper(token_file=token)
    assert isinstance(await scraper.scrape(url), PodSample)
    guard.token = "bbbb"
    token.write_text("bbbb")
    os.utime(token, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert isinstance(await scraper.scrape(url), PodSample)
    assert guard.asked == ["Bearer aaaa", "Bearer aaaa", "Bearer bbbb"]


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (None, "cannot be read: No such file or directory"),
        (b"", "holds no bearer token"),
        (b"a b", "holds no bearer token"),
        (b"tok\xe9n", "holds no plain text"),
    ],
)
def test_d14_a_token_file_without_a_token_is_a_mistake_at_the_start(
    servers: Servers, tmp_path: Path, content: bytes | None, reason: str
) -> None:
    token = tmp_path / "token"
    if content is not None:
        token.write_bytes(content)

    with pytest.raises(InvalidSettings, match=f"--scrape-token-file.*{reason}"):
        servers.scraper(token_file=token)


# --- connections ----------------------------------------------------------------------------------


async def test_a_connection_is_kept_and_one_that_was_closed_meanwhile_costs_nothing(
    servers: Servers,
) -> None:
    connections = 0

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        for _ in range(2):  # then closes without a word, as uvicorn does after 5 s
            await reader.readuntil(b"\r\n\r\n")
            writer.write(HEAD + f"Content-Length: {len(SMALL)}\r\n\r\n".encode() + SMALL)
            await writer.drain()

    url = await servers.raw(talk)
    scraper = servers.scraper()
    for _ in range(6):
        assert isinstance(await scraper.scrape(f"{url}/m"), PodSample)

    assert connections == 3


@pytest.mark.parametrize(("host", "connections"), [("127.0.0.1", 1), ("localhost", 4)])
async def test_d11_connections_to_a_name_are_made_anew_so_that_it_is_looked_up_again(
    servers: Servers, monkeypatch: pytest.MonkeyPatch, host: str, connections: int
) -> None:
    monkeypatch.setattr(fetch, "_LONGEST_CONNECTION", 0.0)
    peers: set[int] = set()

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        assert request.transport is not None
        peers.add(request.transport.get_extra_info("peername")[1])
        return web.Response(body=SMALL)

    url = (await servers.http(handler)).replace("127.0.0.1", host)
    scraper = servers.scraper()
    for _ in range(4):
        assert isinstance(await scraper.scrape(f"{url}/m"), PodSample)

    assert len(peers) == connections
