"""Servers on loopback that behave, or misbehave, as real ones do."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

import pytest
from aiohttp import web

from scaler.config.settings import ScrapeSettings
from scaler.vllm.scrape import Scraper

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncIterator, Awaitable, Callable

    Handler = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]
    Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Servers:
    """Starts servers on free ports and ends them with the test."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack

    async def http(
        self, handler: Handler, *, tls: ssl.SSLContext | None = None, host: str = "127.0.0.1"
    ) -> str:
        """Serve every path with one handler; return the base URL."""
        runner = web.ServerRunner(web.Server(handler), shutdown_timeout=0.1)
        await runner.setup()
        self._stack.push_async_callback(runner.cleanup)
        await web.TCPSite(runner, host, 0, ssl_context=tls).start()
        return f"http{'s' if tls else ''}://{host}:{runner.addresses[0][1]}"

    async def raw(self, talk: Talk) -> str:
        """Serve bytes; return the base URL."""

        async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            try:
                await talk(reader, writer)
            finally:
                writer.close()

        server = await asyncio.start_server(one, "127.0.0.1", 0)
        self._stack.callback(server.close)
        return f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"

    def scraper(self, *, names: dict[str, Any] | None = None, **settings: Any) -> Scraper:
        """Return a scraper that is closed with the test; ``names`` are its resolver and rules."""
        scraper = Scraper(ScrapeSettings(**settings), **(names or {}))
        self._stack.push_async_callback(scraper.close)
        return scraper


@pytest.fixture
async def servers() -> AsyncIterator[Servers]:
    async with AsyncExitStack() as stack:
        yield Servers(stack)
