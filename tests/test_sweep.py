"""D12: hundreds of pods with large bodies that are slow to answer, over real HTTP."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from recordings.corpus import single
from test_poller import FakeDiscovery, Notes, until

from scaler.clock import SystemClock
from scaler.config.settings import ScrapeSettings
from scaler.poller import Poller
from scaler.store import Store
from scaler.targets import Targets
from scaler.vllm.scrape import Scraper

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.timeout(60)

PODS, LIMIT = 300, 40
SHARE = LIMIT // 2  # of one trigger
BODY = single("0.32.0-v1/loaded")
BODY += b"# and so on\n" * ((300_000 - len(BODY)) // 12)


class SlowFleet:
    """Pods that answer only when as many are asked at once as one trigger may.

    A sweep that asks one after the other never ends here, and one that asks more than its share
    at once, or a pod twice, is seen.
    """

    def __init__(self) -> None:
        self.full = asyncio.Barrier(SHARE)
        self.in_flight: Counter[str] = Counter()
        self.answered: Counter[str] = Counter()
        self.most = self.most_of_one = 0

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        pod = request.path.split("/")[1]
        self.in_flight[pod] += 1
        self.most = max(self.most, self.in_flight.total())
        self.most_of_one = max(self.most_of_one, self.in_flight[pod])
        try:
            await self.full.wait()
        finally:
            self.in_flight[pod] -= 1
        self.answered[pod] += 1
        return web.Response(body=BODY)


@asynccontextmanager
async def serving(fleet: SlowFleet) -> AsyncIterator[str]:
    runner = web.ServerRunner(web.Server(fleet), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}"
    finally:
        await runner.cleanup()


async def test_d12_a_sweep_of_300_slow_pods_completes_within_its_bounds() -> None:
    fleet, clock, notes = SlowFleet(), SystemClock(), Notes()
    settings = ScrapeSettings(interval=20.0, timeout=19.0, concurrency=LIMIT)
    store, scraper = Store(clock), Scraper(settings)
    targets = Targets(scraper, settings, clock=clock, observer=notes, log=notes)
    async with serving(fleet) as url:
        # A path of their own each, without a filtering sibling: whole bodies in every scrape.
        discovery = FakeDiscovery(tuple(f"{url}/{n}/stats" for n in range(PODS)))
        poller = Poller(store, discovery, targets, settings, clock=clock, observer=notes, log=notes)
        polling = asyncio.create_task(poller.run())
        one, two = (store.register("team", name, {"scalerAddress": "s:1"}) for name in "ab")
        decisions = [await until(t, lambda d: d.counts.fresh == PODS) for t in (one, two)]
        polling.cancel()
        await asyncio.gather(polling, return_exceptions=True)
        await targets.close()
        await scraper.close()

    assert all(decision.valid for decision in decisions)
    assert fleet.most == SHARE
    assert fleet.most_of_one == 1
    assert fleet.answered == {str(n): 1 for n in range(PODS)}  # two triggers share each scrape
    assert notes.scrapes == [None] * PODS
