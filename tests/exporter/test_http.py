"""The HTTP servers, asked over real sockets."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import socket
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import aiohttp
import pytest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from scaler.config.settings import Address
from scaler.errors import InvalidSettings
from scaler.exporter.http import PAGES_AT_ONCE, HttpServer, _is_loopback
from scaler.exporter.telemetry import Telemetry

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator, Sequence

    from exporter.conftest import Fleet

TEXT = "text/plain; version=0.0.4; charset=utf-8"
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,"
    "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
LOOPBACK = Address("127.0.0.1", 0)
LOOPBACK_2 = Address("127.0.0.2", 0)  # another value, so that there are two servers


class Site:
    """A started server and a client of it."""

    def __init__(self, client: aiohttp.ClientSession, http: Address, page: Address) -> None:
        self.client = client
        self.http, self.page = f"http://{http}", f"http://{page}"


@asynccontextmanager
async def serving(
    fleet: Fleet,
    *,
    collectors: Sequence[Collector] | None = None,
    unready: Callable[[], str | None] = lambda: None,
    http_address: Address = LOOPBACK,
    page_address: Address = LOOPBACK_2,
) -> AsyncIterator[Site]:
    server = HttpServer(
        http_address,
        page_address,
        fleet.store,
        fleet.clock,
        collectors=[fleet.collector(), Telemetry().registry] if collectors is None else collectors,
        unready=unready,
    )
    http_port, page_port = await server.start()
    try:
        async with aiohttp.ClientSession(
            auto_decompress=False,
            headers={"Accept-Encoding": "identity"},
            timeout=aiohttp.ClientTimeout(total=20),
        ) as client:
            yield Site(
                client,
                Address(http_address.host, http_port),
                Address(page_address.host, page_port),
            )
    finally:
        await server.stop()


@pytest.mark.parametrize("path", ["/metrics", "/metrics/"])
async def test_d16_metrics_with_and_without_slash(fleet: Fleet, path: str) -> None:
    """Both are answered; neither is a redirect."""
    fleet.publish(fleet.busy())
    async with (
        serving(fleet) as site,
        site.client.get(site.http + path, allow_redirects=False) as answer,
    ):
        body = await answer.text()

    assert answer.status == 200
    assert "vllm_scaler_desired_replicas{" in body
    assert "vllm_scaler_rpcs_total" in body


@pytest.mark.parametrize(
    ("accept", "content_type"),
    [
        pytest.param("*/*", TEXT, id="anything"),
        pytest.param(PROMETHEUS_3, OPENMETRICS, id="prometheus-3"),
        pytest.param("text/plain; version=9.x", TEXT, id="hostile-version"),
    ],
)
@pytest.mark.parametrize("encoding", ["gzip", "identity"])
async def test_p13_content_type_and_encoding(
    fleet: Fleet, accept: str, content_type: str, encoding: str
) -> None:
    fleet.publish(fleet.busy())
    headers = {"Accept": accept, "Accept-Encoding": encoding}
    async with (
        serving(fleet) as site,
        site.client.get(f"{site.http}/metrics", headers=headers) as answer,
    ):
        body = await answer.read()
    text = gzip.decompress(body) if encoding == "gzip" else body

    assert answer.headers["Content-Type"] == content_type
    assert answer.headers.get("Content-Encoding") == ("gzip" if encoding == "gzip" else None)
    assert text.endswith(b"# EOF\n") is (content_type == OPENMETRICS)
    assert text.startswith(b"# HELP vllm_scaler_registered_triggers ")


async def test_p13_head_says_what_get_would(fleet: Fleet) -> None:
    async with serving(fleet, collectors=[fleet.collector()]) as site:
        async with site.client.get(f"{site.http}/metrics") as get:
            length = len(await get.read())
        async with site.client.head(f"{site.http}/metrics") as head:
            body = await head.read()

    assert head.status == 200
    assert head.headers["Content-Type"] == TEXT
    assert int(head.headers["Content-Length"]) == length
    assert body == b""


class Slow(Collector):
    """Keeps the rendering thread until the test lets it go."""

    def __init__(self, held: asyncio.Event, loop: asyncio.AbstractEventLoop) -> None:
        self.held = held
        self.loop = loop
        self.release = asyncio.Event()
        self.times = 0

    def collect(self) -> Iterator[GaugeMetricFamily]:
        self.times += 1
        self.loop.call_soon_threadsafe(self.held.set)
        asyncio.run_coroutine_threadsafe(self.release.wait(), self.loop).result(10)
        yield GaugeMetricFamily("slow", "Slow.", value=self.times)


async def test_p14_200_parallel_scrapes_leave_the_loop_free(fleet: Fleet) -> None:
    """While a rendering is stuck, health answers; then all 200 are served by two renderings."""
    slow = Slow(asyncio.Event(), asyncio.get_running_loop())
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        serving(fleet, collectors=[slow]) as site,
        aiohttp.ClientSession(connector=connector) as flood,
    ):

        async def scrape() -> str:
            async with flood.get(f"{site.http}/metrics") as answer:
                return await answer.text()

        scrapes = [asyncio.create_task(scrape()) for _ in range(200)]
        await asyncio.wait_for(slow.held.wait(), 10)
        async with site.client.get(f"{site.http}/healthz") as health:
            assert health.status == 200
        assert not any(task.done() for task in scrapes)
        slow.release.set()
        bodies = await asyncio.gather(*scrapes)

    assert len(bodies) == 200
    assert all("slow " in body for body in bodies)
    # Two where all have asked by then (test_exposition); late connections may cost a few more.
    assert slow.times <= 20


async def test_p14_no_metadata_in_labels(fleet: Fleet) -> None:
    """Endpoints, addresses and the like stay out of /metrics, which the whole cluster can read."""
    fleet.trigger(endpoints="http://secret-host:8000").publish(fleet.busy())
    async with (
        serving(fleet, collectors=[fleet.collector()]) as site,
        site.client.get(f"{site.http}/metrics") as answer,
    ):
        body = await answer.text()

    assert "secret-host" not in body
    assert "6000" not in body


async def test_health_and_readiness(fleet: Fleet) -> None:
    reason: str | None = "gRPC is not serving"
    async with serving(fleet, unready=lambda: reason) as site:
        async with site.client.get(f"{site.http}/healthz") as answer:
            assert (answer.status, await answer.text()) == (200, "ok\n")
        async with site.client.get(f"{site.http}/readyz") as answer:
            assert (answer.status, await answer.text()) == (503, "not ready: gRPC is not serving\n")
        reason = None
        async with site.client.get(f"{site.http}/readyz") as answer:
            assert (answer.status, await answer.text()) == (200, "ready\n")


async def test_the_two_addresses_serve_different_things(fleet: Fleet) -> None:
    async with serving(fleet) as site:
        for url in (f"{site.http}/", f"{site.http}/decisions", f"{site.page}/metrics"):
            async with site.client.get(url) as answer:
                assert answer.status == 404, url


async def test_the_same_address_serves_all_on_one_port(fleet: Fleet) -> None:
    async with serving(fleet, http_address=LOOPBACK, page_address=LOOPBACK) as site:
        assert site.http == site.page
        for path in ("/", "/decisions", "/metrics", "/healthz", "/readyz"):
            async with site.client.get(site.http + path) as answer:
                assert answer.status == 200, path


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH"])
async def test_only_get_and_head(fleet: Fleet, method: str) -> None:
    async with serving(fleet) as site:
        for url in (f"{site.http}/metrics", f"{site.page}/", f"{site.page}/decisions"):
            async with site.client.request(method, url) as answer:
                assert answer.status == 405, url
                assert answer.headers["Allow"] == "GET,HEAD"


async def test_every_answer_has_strict_headers(fleet: Fleet) -> None:
    async with serving(fleet) as site:
        for url in (f"{site.page}/", f"{site.page}/decisions", f"{site.page}/nothing-here"):
            async with site.client.get(url) as answer:
                headers = answer.headers
                assert headers["Cache-Control"] == "no-store"
                assert headers["X-Content-Type-Options"] == "nosniff"
                assert headers["X-Frame-Options"] == "DENY"
                assert headers["Referrer-Policy"] == "no-referrer"
                assert headers["Content-Security-Policy"].startswith("default-src 'none'; ")
                assert "unsafe" not in headers["Content-Security-Policy"]
                assert headers["Server"] == "vllm-scaler"


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("127.0.0.1:8081", 200),
        ("localhost", 200),
        ("scaler.localhost:1234", 200),
        ("[::1]:8081", 200),
        ("[::1]", 200),
        ("192.0.2.7", 200),
        ("attacker.example", 421),
        ("attacker.example:8081", 421),
        ("localhost.attacker.example", 421),
    ],
)
async def test_foreign_names_are_refused_on_loopback(fleet: Fleet, host: str, status: int) -> None:
    """DNS rebinding: a web page whose name now leads to loopback must not read the decisions."""
    async with (
        serving(fleet) as site,
        site.client.get(f"{site.page}/decisions", headers={"Host": host}) as answer,
    ):
        assert answer.status == status


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("localhost", True),
        ("127.0.0.1", True),
        ("::1", True),
        ("0.0.0.0", False),
        ("::", False),
        ("scaler.example", False),
    ],
)
def test_which_addresses_are_loopback(host: str, loopback: bool) -> None:
    assert _is_loopback(host) is loopback


async def test_any_name_is_served_off_loopback(fleet: Fleet) -> None:
    """In a cluster Prometheus and an Ingress use names, and the operator chose to listen there."""
    address = Address("0.0.0.0", 0)
    async with (
        serving(fleet, http_address=address) as site,
        site.client.get(f"{site.http}/healthz", headers={"Host": "scaler.keda.svc"}) as answer,
    ):
        assert answer.status == 200


@pytest.mark.parametrize("which", ["--http-address", "--page-address"])
async def test_a_taken_address_is_named(fleet: Fleet, which: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = Address("127.0.0.1", taken.getsockname()[1])
        addresses = (address, LOOPBACK) if which == "--http-address" else (LOOPBACK, address)
        server = HttpServer(*addresses, fleet.store, fleet.clock, collectors=[])
        with pytest.raises(InvalidSettings, match=f"{which}='{address}': cannot listen there: "):
            await server.start()
        await server.stop()


async def test_a_host_that_does_not_exist_is_named(fleet: Fleet) -> None:
    address = Address("192.0.2.1", 0)
    server = HttpServer(address, LOOPBACK, fleet.store, fleet.clock, collectors=[])
    with pytest.raises(InvalidSettings, match=r"--http-address='192\.0\.2\.1:0': cannot listen"):
        await server.start()


async def test_stopping_twice_or_before_the_start_is_fine(fleet: Fleet) -> None:
    server = HttpServer(LOOPBACK, LOOPBACK, fleet.store, fleet.clock, collectors=[])
    await server.stop()
    await server.stop()


async def test_nothing_is_logged_for_a_request(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with serving(fleet) as site:
        for path in ("/metrics", "/nothing"):
            async with site.client.get(site.http + path) as answer:
                await answer.read()

    assert not [record for record in caplog.records if record.name.startswith("aiohttp")]


# --- /decisions ---------------------------------------------------------------------------------


async def test_decisions_filter_by_namespace_and_name(fleet: Fleet) -> None:
    for namespace, name in (("a", "x"), ("a", "y"), ("b", "x")):
        fleet.publish(fleet.busy(), name, namespace)
    async with serving(fleet) as site:

        async def names(query: str) -> list[tuple[str, str]]:
            async with site.client.get(f"{site.page}/decisions{query}") as answer:
                assert answer.headers["Content-Type"] == "application/json"
                body = json.loads(await answer.read())
            return [(t["namespace"], t["name"]) for t in body["triggers"]]

        assert await names("") == [("a", "x"), ("a", "y"), ("b", "x")]
        assert await names("?namespace=a") == [("a", "x"), ("a", "y")]
        assert await names("?name=x") == [("a", "x"), ("b", "x")]
        assert await names("?namespace=b&name=x") == [("b", "x")]
        assert await names("?namespace=b&name=y") == []


async def test_a_flood_of_pages_is_told_to_come_back(fleet: Fleet) -> None:
    """The thread is held by a scrape; pages queue up to a bound, the rest get 503."""
    slow = Slow(asyncio.Event(), asyncio.get_running_loop())
    connector = aiohttp.TCPConnector(limit=0)
    async with (
        serving(fleet, collectors=[slow]) as site,
        aiohttp.ClientSession(connector=connector) as flood,
    ):

        async def status(url: str) -> int:
            async with flood.get(url) as answer:
                return answer.status

        scrape = asyncio.create_task(status(f"{site.http}/metrics"))
        await asyncio.wait_for(slow.held.wait(), 10)
        pages = [asyncio.create_task(status(f"{site.page}/")) for _ in range(PAGES_AT_ONCE + 8)]
        done, _ = await asyncio.wait(pages, return_when=asyncio.FIRST_COMPLETED, timeout=10)
        assert {task.result() for task in done} == {503}
        slow.release.set()
        statuses = sorted(await asyncio.gather(*pages))
        assert await scrape == 200

    assert statuses == [200] * PAGES_AT_ONCE + [503] * 8
