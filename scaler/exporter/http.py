"""The HTTP servers: ``/metrics`` and health on one address, the page and ``/decisions`` on another.

Given the same address twice, one server has it all. Only GET and HEAD; no access log. Bodies are
made in one thread, so that however many ask, the event loop that answers KEDA stays free.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address
from typing import TYPE_CHECKING

from aiohttp import web

from scaler.errors import InvalidSettings, Problem
from scaler.exporter import page
from scaler.exporter.exposition import Renderer, accepts_gzip, choose_format
from scaler.exporter.view import look, to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aiohttp.typedefs import Handler
    from prometheus_client.registry import Collector

    from scaler.clock import Clock
    from scaler.config.settings import Address
    from scaler.exporter.view import FleetOfTriggers
    from scaler.store import Store

PAGES_AT_ONCE = 32  # requests for pages under way; more are told to come back
SHUTDOWN_SECONDS = 2.0

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": page.CONTENT_SECURITY_POLICY,
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Server": "vllm-scaler",
}


class HttpServer:
    """Serves what the store holds.

    ``collectors`` make up ``/metrics``. ``unready`` says why ``/readyz`` should fail, None when it
    should not; ``/healthz`` succeeds for as long as the event loop turns.
    """

    def __init__(
        self,
        http_address: Address,
        page_address: Address,
        store: Store,
        clock: Clock,
        *,
        collectors: Sequence[Collector],
        unready: Callable[[], str | None] = lambda: None,
    ) -> None:
        self._addresses = (http_address, page_address)
        self._store = store
        self._clock = clock
        self._unready = unready
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="http")
        self._renderer = Renderer(collectors, self._thread)
        self._runners: list[web.AppRunner] = []
        self._pages = 0

    async def start(self) -> tuple[int, int]:
        """Listen; return the ports of /metrics and of the page.

        Raises InvalidSettings, naming the address, when one cannot be listened on.
        """
        http_address, page_address = self._addresses
        metrics_routes = [
            web.get("/metrics", self._metrics),
            web.get("/metrics/", self._metrics),
            web.get("/healthz", self._healthz),
            web.get("/readyz", self._readyz),
        ]
        page_routes = [web.get("/", self._page), web.get("/decisions", self._decisions)]
        try:
            if http_address == page_address:
                both = [*metrics_routes, *page_routes]
                port = await self._listen("--http-address", http_address, both)
                return port, port
            return (
                await self._listen("--http-address", http_address, metrics_routes),
                await self._listen("--page-address", page_address, page_routes),
            )
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        """Stop listening, give requests under way two seconds, and free the ports."""
        for runner in self._runners:
            await runner.cleanup()
        self._runners.clear()
        self._thread.shutdown(wait=True, cancel_futures=True)

    async def _listen(self, flag: str, address: Address, routes: Sequence[web.RouteDef]) -> int:
        app = web.Application(middlewares=[_host_check] if _is_loopback(address.host) else [])
        app.add_routes(routes)
        app.on_response_prepare.append(_add_headers)
        runner = web.AppRunner(
            app, access_log=None, handle_signals=False, shutdown_timeout=SHUTDOWN_SECONDS
        )
        await runner.setup()
        self._runners.append(runner)
        try:
            await web.TCPSite(runner, address.host, address.port).start()
        except OSError as error:
            reason = f"cannot listen there: {error.strerror or error}"
            raise InvalidSettings([Problem(flag, str(address), reason)]) from error
        port: int = runner.addresses[0][1]
        return port

    async def _metrics(self, request: web.Request) -> web.Response:
        form = choose_format(request.headers.get("Accept", ""))
        compress = accepts_gzip(request.headers.get("Accept-Encoding", ""))
        body = await self._renderer.render(form, compress=compress)
        headers = {"Content-Type": form.value, "Vary": "Accept, Accept-Encoding"}
        if compress:
            headers["Content-Encoding"] = "gzip"
        return web.Response(body=body, headers=headers)

    async def _healthz(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _readyz(self, _: web.Request) -> web.Response:
        reason = self._unready()
        if reason is None:
            return web.Response(text="ready\n")
        return web.Response(status=503, text=f"not ready: {reason}\n")

    async def _page(self, request: web.Request) -> web.Response:
        filtered = bool(request.query.keys() & {"namespace", "name"})
        body = await self._make(request, lambda seen: page.render(seen, filtered=filtered))
        return web.Response(body=body, headers={"Content-Type": "text/html; charset=utf-8"})

    async def _decisions(self, request: web.Request) -> web.Response:
        body = await self._make(request, to_json)
        return web.Response(body=body, content_type="application/json")

    async def _make(self, request: web.Request, make: Callable[[FleetOfTriggers], bytes]) -> bytes:
        if self._pages >= PAGES_AT_ONCE:
            raise web.HTTPServiceUnavailable(headers={"Retry-After": "5"})
        query = request.query
        seen = look(
            self._store, self._clock.now(), query.get("namespace", ""), query.get("name", "")
        )
        self._pages += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, make, seen)
        finally:
            self._pages -= 1


async def _add_headers(_: web.Request, response: web.StreamResponse) -> None:
    response.headers.update(HEADERS)


@web.middleware
async def _host_check(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse names that lead here by somebody's DNS: loopback is for this machine's browser."""
    if not _names_loopback(request.host):
        raise web.HTTPMisdirectedRequest(text="open this page as localhost or by IP address\n")
    return await handler(request)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _names_loopback(host: str) -> bool:
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    name = name.strip("[]").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
