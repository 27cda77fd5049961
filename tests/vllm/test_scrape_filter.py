"""``/metrics/?name[]=…``: used where it says as much as ``/metrics``, and only there.

The filtering server is prometheus_client's own application over our recordings, mounted as vLLM
mounts it: the exact ``/metrics`` never filters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry, make_asgi_app
from prometheus_client.parser import text_string_to_metric_families
from recordings.corpus import single

from scaler.core.model import PodSample, ScrapeCause, ScrapeFailure
from scaler.vllm import fetch
from scaler.vllm import scrape as scrape_module
from scaler.vllm.exposition import read_exposition

if TYPE_CHECKING:
    from collections.abc import Iterable

    from prometheus_client.core import Metric
    from vllm.conftest import Servers


class Recorded:
    """A collector that says what a recorded body says. ``described``: its registry knows names."""

    def __init__(self, body: bytes, *, described: bool = True) -> None:
        self.body = body
        if described:
            self.describe = self.collect

    def collect(self) -> Iterable[Metric]:
        """Yield the families of the body."""
        return list(text_string_to_metric_families(self.body.decode()))


class Vllm:
    """vLLM's front end: a route for ``/metrics`` and the application mounted at ``/metrics/``."""

    def __init__(self, body: bytes, *, described: bool = True) -> None:
        registry = CollectorRegistry()
        self.recorded = Recorded(body, described=described)
        registry.register(self.recorded)
        self._mounted = make_asgi_app(registry)
        self.mounted = True
        self.asked: list[tuple[str, int]] = []

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        if request.path == "/metrics":
            response = web.Response(body=self.recorded.body)
        elif request.path == "/metrics/" and self.mounted:
            response = await self._application(request)
        else:
            response = web.Response(status=404)
        assert isinstance(response.body, bytes | None)
        self.asked.append((request.path, len(response.body or b"")))
        return response

    async def _application(self, request: web.BaseRequest) -> web.Response:
        messages: list[dict[str, Any]] = []
        scope = {
            "type": "http",
            "method": "GET",
            "path": request.path,
            "query_string": request.query_string.encode(),
            "headers": [(k.lower(), v) for k, v in request.raw_headers],
        }

        async def receive() -> dict[str, str]:
            return {"type": "http.request"}

        async def send(message: dict[str, Any]) -> None:
            messages.append(message)

        await self._mounted(scope, receive, send)
        start, body = messages
        headers = {key.decode(): value.decode() for key, value in start["headers"]}
        return web.Response(status=start["status"], headers=headers, body=body["body"])


def paths(server: Vllm) -> list[str]:
    return [path for path, _ in server.asked]


@pytest.mark.parametrize(
    "name",
    [
        "0.9.2-v1/loaded",
        "0.11.0-v1/loaded",
        "0.11.0-v1/loaded-hidden-metrics-0.10",
        "0.32.0-v1/loaded",
    ],
)
async def test_the_filter_is_used_from_the_second_scrape_on_and_changes_nothing(
    servers: Servers, name: str
) -> None:
    server = Vllm(single(name))
    url = f"{await servers.http(server)}/metrics"
    scraper = servers.scraper()
    outcomes = [await scraper.scrape(url) for _ in range(3)]

    assert paths(server) == ["/metrics", "/metrics/", "/metrics/"]
    assert all(outcome == read_exposition(single(name)) for outcome in outcomes)
    assert server.asked[1][1] * 10 < server.asked[0][1]


async def test_a_multiprocess_registry_filters_to_nothing_and_is_read_whole(
    servers: Servers,
) -> None:
    """A registry without names answers a filtered request with an empty 200, busy or not."""
    body = single("0.32.0-v1-dp2/loaded")
    server = Vllm(body, described=False)
    url = f"{await servers.http(server)}/metrics"
    scraper = servers.scraper()
    outcomes = [await scraper.scrape(url) for _ in range(4)]

    assert all(outcome == read_exposition(body) for outcome in outcomes)
    assert paths(server) == ["/metrics", "/metrics/", "/metrics", "/metrics", "/metrics"]
    assert server.asked[1][1] < 100


async def test_a_filter_that_loses_only_some_families_is_not_used(servers: Servers) -> None:
    body = single("0.32.0-v1/loaded")
    server = Vllm(body)
    full = server.recorded.collect()
    server.recorded.collect = lambda: [m for m in full if "kv_cache_usage" not in m.name]  # type: ignore[method-assign]
    url = f"{await servers.http(server)}/metrics"
    scraper = servers.scraper()
    outcomes = [await scraper.scrape(url) for _ in range(3)]

    assert all(outcome == read_exposition(body) for outcome in outcomes)
    assert paths(server) == ["/metrics", "/metrics/", "/metrics", "/metrics"]


async def test_a_server_without_the_mount_is_asked_once(servers: Servers) -> None:
    """The Rust front end has the exact route alone."""
    server = Vllm(single("0.32.0-v1/loaded"))
    server.mounted = False
    url = f"{await servers.http(server)}/metrics"
    scraper = servers.scraper()
    for _ in range(4):
        assert isinstance(await scraper.scrape(url), PodSample)

    assert paths(server) == ["/metrics", "/metrics/", "/metrics", "/metrics", "/metrics"]


async def test_a_mount_that_redirects_to_the_route_is_not_used(servers: Servers) -> None:
    asked: list[str] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        asked.append(request.path)
        if request.path == "/metrics/":
            return web.Response(status=307, headers={"Location": "/metrics"})
        return web.Response(body=single("0.32.0-v1/loaded"))

    url = f"{await servers.http(handler)}/metrics"
    scraper = servers.scraper()
    for _ in range(3):
        assert isinstance(await scraper.scrape(url), PodSample)

    assert asked[:4] == ["/metrics", "/metrics/", "/metrics", "/metrics"]
    assert asked[4:] == ["/metrics"]


async def test_a_filter_that_stops_working_costs_no_scrape(servers: Servers) -> None:
    server = Vllm(single("0.32.0-v1/loaded"))
    url = f"{await servers.http(server)}/metrics"
    scraper = servers.scraper()
    for _ in range(2):
        await scraper.scrape(url)
    server.mounted = False

    assert await scraper.scrape(url) == read_exposition(single("0.32.0-v1/loaded"))
    assert paths(server)[2:] == ["/metrics/", "/metrics"]


async def test_after_a_restart_the_filter_is_tried_anew(servers: Servers) -> None:
    server = Vllm(single("0.32.0-v1/loaded"))
    server.mounted = False
    down = False

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        return web.Response(status=503) if down else await server(request)

    url = f"{await servers.http(handler)}/metrics"
    scraper = servers.scraper()
    for _ in range(2):
        await scraper.scrape(url)
    down = True
    assert isinstance(await scraper.scrape(url), ScrapeFailure)
    down, server.mounted = False, True
    server.asked.clear()
    for _ in range(2):
        await scraper.scrape(url)

    assert paths(server) == ["/metrics", "/metrics/"]


async def test_after_some_time_the_filter_is_tried_anew(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrape_module, "_RETRY_SECONDS", 0.0)
    server = Vllm(single("0.32.0-v1/loaded"))
    server.mounted = False
    url = f"{await servers.http(server)}/metrics"
    scraper = servers.scraper()
    for _ in range(2):
        await scraper.scrape(url)
    server.mounted = True
    server.asked.clear()
    await scraper.scrape(url)

    assert paths(server) == ["/metrics/"]


async def test_a_model_that_appears_is_seen_through_the_filter(servers: Servers) -> None:
    server = Vllm(single("0.32.0-v1/fresh"))
    url = f"{await servers.http(server)}/metrics"
    scraper = servers.scraper()
    for _ in range(2):
        await scraper.scrape(url)
    server.recorded.body = single("0.32.0-v1/loaded")

    assert await scraper.scrape(url) == read_exposition(single("0.32.0-v1/loaded"))


async def test_a_pod_that_is_idle_for_want_of_gauges_is_read_whole(servers: Servers) -> None:
    server = Vllm(single("0.8.5-v0/fresh"))
    url = f"{await servers.http(server)}/metrics"
    scraper = servers.scraper()
    for _ in range(3):
        outcome = await scraper.scrape(url)
        assert isinstance(outcome, PodSample)
        assert outcome.models == {}

    assert paths(server) == ["/metrics"] * 3


async def test_v03_disabled_stats_fail_by_either_path(servers: Servers) -> None:
    server = Vllm(single("0.32.0-v1/loaded"))
    url = f"{await servers.http(server)}/metrics"
    scraper = servers.scraper()
    for _ in range(2):
        await scraper.scrape(url)
    server.recorded.body = single("0.32.0-v1/after-load-disable-log-stats")
    outcome = await scraper.scrape(url)

    assert isinstance(outcome, ScrapeFailure)
    assert outcome.cause is ScrapeCause.NO_VLLM_METRICS


@pytest.mark.parametrize("path", ["/stats/prometheus", "/metrics?x=1", "/", "/metrics/x"])
async def test_other_paths_are_asked_as_they_are(servers: Servers, path: str) -> None:
    asked: list[str] = []

    async def handler(request: web.BaseRequest) -> web.StreamResponse:
        asked.append(request.path_qs)
        return web.Response(body=single("0.32.0-v1/loaded"))

    url = await servers.http(handler)
    scraper = servers.scraper()
    for _ in range(2):
        assert isinstance(await scraper.scrape(f"{url}{path}"), PodSample)

    assert asked == [path, path]


async def test_a_pod_that_goes_down_is_not_asked_twice_in_one_scrape(servers: Servers) -> None:
    server = Vllm(single("0.32.0-v1/loaded"))
    url = f"{await servers.http(server)}/metrics"
    scraper = servers.scraper()
    for _ in range(2):
        await scraper.scrape(url)
    server.asked.clear()
    server.recorded.body = b"vllm:num_requests_running NaN\nvllm:num_requests_waiting 1\n"
    outcome = await scraper.scrape(url)

    assert isinstance(outcome, ScrapeFailure)
    assert outcome.cause is ScrapeCause.NON_FINITE
    assert paths(server) == ["/metrics/"]


async def test_what_is_known_of_urls_stays_within_bounds(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scrape_module, "_MOST_URLS", 3)
    monkeypatch.setattr(fetch, "_MOST_ORIGINS", 1)
    url = await servers.http(Vllm(single("0.32.0-v1/loaded")))
    scraper = servers.scraper()
    for host in (url, url.replace("127.0.0.1", "localhost")):
        assert isinstance(await scraper.scrape(f"{host}/metrics"), PodSample)
    for number in range(5):
        assert isinstance(await scraper.scrape(f"{url}/metrics?{number}"), PodSample)

    assert len(scraper._learned) <= 3
    assert len(scraper._fetcher._connected) <= 1
