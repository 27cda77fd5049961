"""Endpoints by name: where the name may lead, and what a name service that hangs may cost."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from fakes_dns import hanging

from scaler.core.model import PodSample, ScrapeCause, ScrapeFailure
from scaler.discovery.static import StaticDiscovery
from scaler.resolver import Resolver

if TYPE_CHECKING:
    from pathlib import Path

    from vllm.conftest import Servers

pytestmark = pytest.mark.timeout(20)

SMALL = b"vllm:num_requests_running 2\nvllm:num_requests_waiting 3\n"
INWARD = "rebound.svc leads to loopback, link-local or multicast addresses only"


class Seen:
    """A server that must not be reached, and what it got."""

    def __init__(self) -> None:
        self.tokens: list[str | None] = []

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        self.tokens.append(request.headers.get("Authorization"))
        return web.Response(body=SMALL)


def leading_to(*addresses: str) -> Resolver:
    return Resolver(lambda _: addresses)


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.9.9.9",
        "::1",
        "::ffff:127.0.0.1",
        "0.0.0.0",
        "::",
        "169.254.169.254",
        "fe80::1%1",
        "224.0.0.1",
        "ff02::1%1",
    ],
)
async def test_a_name_that_leads_inward_is_not_connected_to(
    servers: Servers, tmp_path: Path, address: str
) -> None:
    seen = Seen()
    port = (await servers.http(seen)).rpartition(":")[2]
    token = tmp_path / "token"
    token.write_text("secret-1")
    names = {"resolve": leading_to(address), "admits": StaticDiscovery(["*.svc"]).admits}
    scraper = servers.scraper(names=names, token_file=token)
    outcomes = [await scraper.scrape(f"http://rebound.svc:{port}/metrics") for _ in range(2)]

    assert outcomes == [ScrapeFailure(ScrapeCause.DNS, INWARD)] * 2
    assert seen.tokens == []


async def test_a_name_that_is_rebound_after_it_was_good_is_not_followed(servers: Servers) -> None:
    seen = Seen()
    port = (await servers.http(seen)).rpartition(":")[2]
    answers = ["10.255.255.1"]
    names = {
        "resolve": Resolver(lambda _: answers),
        "admits": StaticDiscovery(["*.svc"]).admits,
    }
    scraper = servers.scraper(names=names, connect_timeout=0.1)
    first = await scraper.scrape(f"http://rebound.svc:{port}/metrics")
    answers[:] = ["127.0.0.1"]
    scraper._fetcher._open().connector.clear_dns_cache()  # type: ignore[union-attr]
    second = await scraper.scrape(f"http://rebound.svc:{port}/metrics")

    assert isinstance(first, ScrapeFailure)
    assert second == ScrapeFailure(ScrapeCause.DNS, INWARD)
    assert seen.tokens == []


@pytest.mark.parametrize(
    "allow",
    [["*.svc", "127.0.0.1"], ["*.svc", "127.*:{port}"], ["*"]],
    ids=["address", "address and port", "everything"],
)
async def test_an_address_that_is_allowed_too_is_followed(
    servers: Servers, allow: list[str]
) -> None:
    port = (await servers.http(Seen())).rpartition(":")[2]
    globs = [glob.format(port=port) for glob in allow]
    names = {"resolve": leading_to("127.0.0.1"), "admits": StaticDiscovery(globs).admits}
    outcome = await servers.scraper(names=names).scrape(f"http://rebound.svc:{port}/metrics")

    assert isinstance(outcome, PodSample)


async def test_the_port_of_an_allowed_address_counts(servers: Servers) -> None:
    seen = Seen()
    port = (await servers.http(seen)).rpartition(":")[2]
    allow = StaticDiscovery(["*.svc", "127.0.0.1:1"])
    names = {"resolve": leading_to("127.0.0.1"), "admits": allow.admits}
    outcome = await servers.scraper(names=names).scrape(f"http://rebound.svc:{port}/metrics")

    assert outcome == ScrapeFailure(ScrapeCause.DNS, INWARD)
    assert seen.tokens == []


async def test_localhost_by_name_needs_no_second_permission(servers: Servers) -> None:
    url = (await servers.http(Seen())).replace("127.0.0.1", "localhost")
    names = {"admits": StaticDiscovery(["localhost"]).admits}

    assert isinstance(await servers.scraper(names=names).scrape(f"{url}/metrics"), PodSample)


async def test_only_the_inward_addresses_of_a_name_are_left_out(servers: Servers) -> None:
    seen = Seen()
    port = (await servers.http(seen)).rpartition(":")[2]
    names = {
        "resolve": leading_to("127.0.0.1", "192.0.2.1"),
        "admits": StaticDiscovery(["*.svc"]).admits,
    }
    scraper = servers.scraper(names=names, connect_timeout=0.1)
    outcome = await scraper.scrape(f"http://rebound.svc:{port}/metrics")

    assert isinstance(outcome, ScrapeFailure)
    assert outcome.cause in {ScrapeCause.TIMEOUT, ScrapeCause.REFUSED}  # the other was tried
    assert seen.tokens == []


async def test_names_that_hang_are_told_and_cost_no_other_name_and_no_address(
    servers: Servers,
) -> None:
    url = await servers.http(Seen())
    hung = [f"hung-{n}.svc" for n in range(12)]
    with hanging("127.0.0.1", names=hung) as look_up:
        names = {"resolve": Resolver(look_up)}
        scraper = servers.scraper(names=names)
        waiting = [asyncio.create_task(scraper.scrape(f"http://{n}:8000/metrics")) for n in hung]
        others = [url, url.replace("127.0.0.1", "good.svc")]
        good = [await scraper.scrape(f"{other}/metrics") for other in others]
        free = await asyncio.wait_for(asyncio.to_thread(lambda: "free"), 5)
        still = [not task.done() for task in waiting]
        outcomes = await asyncio.gather(*waiting)

    assert all(isinstance(outcome, PodSample) for outcome in good)
    assert (free, all(still)) == ("free", True)
    assert outcomes == [
        ScrapeFailure(ScrapeCause.TIMEOUT, f"cannot resolve {name}: no answer within 1.5 s")
        for name in hung
    ]
