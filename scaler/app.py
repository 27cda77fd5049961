"""The composition root: builds the objects, starts and stops them in order."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scaler.clock import SystemClock
from scaler.discovery.static import StaticDiscovery
from scaler.exporter.derived import DerivedCollector
from scaler.exporter.http import HttpServer
from scaler.exporter.telemetry import Telemetry
from scaler.keda.server import GrpcServer
from scaler.keda.service import Service
from scaler.keepsake import Keepsake
from scaler.logs import EventLog
from scaler.poller import Poller
from scaler.resolver import Resolver
from scaler.store import Store
from scaler.targets import Targets
from scaler.vllm.scrape import Scraper

if TYPE_CHECKING:
    from types import TracebackType
    from typing import Self

    from scaler.clock import Clock
    from scaler.config.settings import Settings

# Within a pod's default grace period of 30 s, and long enough for KEDA to see streams end with OK.
STOP_SECONDS = 1.0
# A decision comes each scrape interval. One this much older than any fresh sample has no successor.
STALE_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class AppAddresses:
    """The ports the servers listen on, where 0 asked for any free one."""

    grpc_port: int
    http_port: int
    page_port: int


class App:
    """The scaler as one object: ``async with App(settings) as app``."""

    def __init__(self, settings: Settings, *, clock: Clock | None = None) -> None:
        clock = clock or SystemClock()
        self.settings = settings
        self.store = Store(clock, ttl=settings.registration_ttl, limit=settings.max_triggers)
        self._log = EventLog()
        self._telemetry = Telemetry()
        self._grpc = GrpcServer(
            settings.grpc_address,
            self.store,
            clock,
            tls=settings.tls,
            service=Service(
                self.store,
                clock,
                observer=self._telemetry,
                stale_after=settings.scrape.fresh_for + STALE_SECONDS,
            ),
        )
        self._http = HttpServer(
            settings.http_address,
            settings.page_address,
            self.store,
            clock,
            collectors=[
                DerivedCollector(self.store, clock, pod_detail=settings.pod_metrics),
                self._telemetry.registry,
            ],
            unready=self._unready,
        )
        self._clock = clock
        self._scraper: Scraper | None = None
        self._targets: Targets | None = None
        self._poller: Poller | None = None
        self._polling: asyncio.Task[None] | None = None
        self.addresses: AppAddresses | None = None

    async def start(self) -> AppAddresses:
        """Listen and begin to poll. Serving never depends on vLLM.

        Raises InvalidSettings or OSError, naming the flag or the address, when it cannot.
        """
        try:
            resolver = Resolver()
            discovery = StaticDiscovery(self.settings.allow_endpoints, resolve=resolver)
            self._scraper = Scraper(self.settings.scrape, resolve=resolver, admits=discovery.admits)
            self._targets = Targets(
                self._scraper,
                self.settings.scrape,
                clock=self._clock,
                observer=self._telemetry,
                log=self._log,
            )
            keepsake = None
            if self.settings.state_dir is not None:
                keepsake = Keepsake(self.settings.state_dir, self._log)
                keepsake.read()
            self._poller = Poller(
                self.store,
                discovery,
                self._targets,
                self.settings.scrape,
                clock=self._clock,
                observer=self._telemetry,
                log=self._log,
                keeper=keepsake,
            )
            http_port, page_port = await self._http.start()
            grpc_port = await self._grpc.start()
            self._polling = asyncio.create_task(self._poller.run(), name="poller")
        except BaseException:
            await self.stop()
            raise
        self.addresses = AppAddresses(grpc_port, http_port, page_port)
        return self.addresses

    async def run(self, stop: asyncio.Event) -> None:
        """Serve until ``stop`` is set. Raises what ended the poller, should it ever end."""
        if self._polling is None:
            raise RuntimeError("start() comes first")
        stopping = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({self._polling, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if self._polling.done():
                self._polling.result()
        finally:
            stopping.cancel()

    async def stop(self) -> None:
        """Stop: tell KEDA first (streams end with OK), then the poller, then the pages."""
        await self._grpc.stop(STOP_SECONDS)
        if self._polling is not None:
            self._polling.cancel()
            await asyncio.gather(self._polling, return_exceptions=True)
            self._polling = None
        if self._poller is not None:
            if self.addresses is not None:  # else nothing was learned that the file should hold
                self._poller.close()
            self._poller = None
        if self._targets is not None:
            await self._targets.close()
        if self._scraper is not None:
            await self._scraper.close()
        await self._http.stop()
        self.addresses = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.stop()

    def _unready(self) -> str | None:
        return None if self.addresses is not None else "gRPC is not serving"
