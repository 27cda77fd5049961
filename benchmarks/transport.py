"""What one scrape costs in CPU: aiohttp as the scraper uses it, against the standard library.

A fleet in another process serves a real 53 KB body at ``/metrics`` and its filtered, compressed
form at ``/metrics/``. Measured is this process's CPU time alone, per 1,000 scrapes, rounds in turn.
``http.client`` keeps its connections, in as many threads as scrapes run at once; ``urllib`` opens
one a request. Run: ``python benchmarks/transport.py``.
"""

from __future__ import annotations

import asyncio
import gzip
import http.client
import multiprocessing
import sys
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from threading import local
from time import process_time
from typing import TYPE_CHECKING

from aiohttp import web

from scaler.config.settings import ScrapeSettings
from scaler.core.model import PodSample
from scaler.resolver import Resolver
from scaler.vllm import names
from scaler.vllm.exposition import read_exposition
from scaler.vllm.fetch import Answer, Fetcher
from scaler.vllm.scrape import Scraper

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from recordings.corpus import scrapes
from yarl import URL

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from multiprocessing.connection import Connection

SCRAPES = 1000
AT_ONCE = 16
ROUNDS = 5


def bodies() -> tuple[bytes, bytes]:
    """The whole body, and what the filter leaves of it."""
    whole = max((s.body for s in scrapes("h200/h200-8b.standup")), key=len)
    wanted = set(names.SAMPLE_NAMES)
    lines = [ln for ln in whole.splitlines() if ln.partition("{")[0].partition(" ")[0] in wanted]
    return whole.encode(), "\n".join([*lines, ""]).encode()


def fleet(ready: Connection) -> None:
    """Serve until killed."""

    async def serve() -> None:
        whole, part = bodies()
        packed = gzip.compress(part, 6)

        async def handler(request: web.BaseRequest) -> web.StreamResponse:
            if request.path == "/metrics":
                return web.Response(body=whole)
            return web.Response(body=packed, headers={"Content-Encoding": "gzip"})

        runner = web.ServerRunner(web.Server(handler))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        ready.send(runner.addresses[0][1])
        await asyncio.Event().wait()

    asyncio.run(serve())


async def many(one: Callable[[], Awaitable[object]]) -> None:
    """Run all scrapes, so many at once."""

    async def lane() -> None:
        for _ in range(SCRAPES // AT_ONCE):
            await one()

    await asyncio.gather(*(lane() for _ in range(AT_ONCE)))


def with_aiohttp(port: int) -> float:
    """GET as the scraper does, without reading what came."""

    async def run() -> float:
        fetcher = Fetcher(ScrapeSettings(timeout=30), Resolver(), lambda *_: True)
        url = URL(f"http://127.0.0.1:{port}/metrics")

        async def one() -> None:
            assert isinstance(await fetcher.get(url, gzip=False), Answer)

        await one()
        started = process_time()
        await many(one)
        spent = process_time() - started
        await fetcher.close()
        return spent

    return asyncio.run(run())


def with_scraper(port: int) -> float:
    """Scrape as the product does: filtered, compressed, and parsed."""

    async def run() -> float:
        scraper = Scraper(ScrapeSettings(timeout=30))

        async def one() -> None:
            assert isinstance(await scraper.scrape(f"http://127.0.0.1:{port}/metrics"), PodSample)

        for _ in range(2):
            await one()
        started = process_time()
        await many(one)
        spent = process_time() - started
        await scraper.close()
        return spent

    return asyncio.run(run())


def with_threads(get: Callable[[int], bytes], port: int) -> float:
    """GET from a pool of threads."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        started = process_time()
        sizes = set(map(len, pool.map(get, [port] * SCRAPES)))
        spent = process_time() - started
    assert len(sizes) == 1
    return spent


_kept = local()


def by_http_client(port: int) -> bytes:
    """GET on a kept connection."""
    if getattr(_kept, "port", None) != port:
        _kept.port, _kept.connection = port, http.client.HTTPConnection("127.0.0.1", port)
    _kept.connection.request("GET", "/metrics")
    body = _kept.connection.getresponse().read()
    assert isinstance(body, bytes)
    return body


def by_urllib(port: int) -> bytes:
    """GET on a new connection."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as response:
        body = response.read()
    assert isinstance(body, bytes)
    return body


def main() -> None:
    """Print CPU seconds per 1,000 scrapes, and ratios to aiohttp's."""
    whole, part = bodies()
    assert read_exposition(whole) == read_exposition(part), "the filter loses something"
    here, there = multiprocessing.Pipe()
    server = multiprocessing.get_context("spawn").Process(target=fleet, args=(there,), daemon=True)
    server.start()
    port = here.recv()
    ways = {
        "aiohttp, whole body": with_aiohttp,
        "http.client, kept connections": lambda p: with_threads(by_http_client, p),
        "urllib, new connections": lambda p: with_threads(by_urllib, p),
        "scraper: filtered, gzip, parsed": with_scraper,
    }
    try:
        rounds = [{name: way(port) for name, way in ways.items()} for _ in range(ROUNDS)]
    finally:
        server.kill()
        server.join()
    base = "aiohttp, whole body"
    for name in ways:
        spent = median(r[name] for r in rounds) * 1000 / (SCRAPES // AT_ONCE * AT_ONCE)
        ratio = median(r[name] / r[base] for r in rounds)
        print(f"{name:<34} {spent:6.3f} CPU-s per 1,000 scrapes  {ratio:5.2f} x aiohttp's")


if __name__ == "__main__":
    main()
