"""A fleet that is not there: HTTP servers that play a recording of ``/metrics`` in real time.

The recording is of one server. Each pod plays it from a little further on, and over again when it
ends; the counters then start anew, as after a restart of the container. The pods cannot react:
more replicas do not shorten their queues.
"""

from __future__ import annotations

import asyncio
import zlib
from bisect import bisect_right
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

from scaler.vllm.recording import read_recording

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from scaler.clock import Clock
    from scaler.vllm.recording import RecordedScrape

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
STAGGER = 2.0  # seconds from one pod to the next, so that no two say the same


@dataclass(frozen=True, slots=True)
class Frame:
    """One recorded scrape: when (seconds from the start), how long it took, and what it said.

    ``status`` 0 is a scrape that got no answer. ``packed`` is the body, compressed: a recording of
    four minutes is 12 MB of text.
    """

    at: float
    took: float
    status: int
    packed: bytes


class Reel:
    """A whole recording, ready to be asked for any instant."""

    def __init__(self, scrapes: Iterable[RecordedScrape]) -> None:
        self._frames = tuple(_frames(scrapes))
        if not self._frames:
            raise ValueError("the recording is empty")
        self._starts = [frame.at for frame in self._frames]
        # The last frame lasts as long as the others do on average.
        count = len(self._frames)
        self.seconds = self._starts[-1] * count / (count - 1) if count > 1 else 1.0

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read ``NAME.metrics.jsonl.xz``. Raises OSError and ValueError."""
        return cls(read_recording(path))

    def at(self, seconds: float) -> Frame:
        """Return the frame that plays ``seconds`` after the start, over and over."""
        position = seconds % self.seconds
        return self._frames[bisect_right(self._starts, position) - 1]


def _frames(scrapes: Iterable[RecordedScrape]) -> Iterable[Frame]:
    start: float | None = None
    for scrape in scrapes:
        start = scrape.at if start is None else start
        packed = zlib.compress(scrape.body.encode())
        yield Frame(scrape.at - start, scrape.seconds, scrape.status, packed)


class Pod:
    """One played-back server on a free port of the loopback interface."""

    def __init__(self, reel: Reel, clock: Clock, begin: float) -> None:
        self._reel = reel
        self._clock = clock
        self._began = clock.now().monotonic - begin
        self._runner: web.AppRunner | None = None
        self.url = ""

    async def __aenter__(self) -> Self:
        application = web.Application()
        application.router.add_get("/metrics", self._metrics)
        self._runner = web.AppRunner(application, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        host, port = self._runner.addresses[0][:2]
        self.url = f"http://{host}:{port}"
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._runner is not None:
            await self._runner.cleanup()

    async def _metrics(self, request: web.Request) -> web.Response:
        frame = self._reel.at(self._clock.now().monotonic - self._began)
        await asyncio.sleep(frame.took)  # a loaded vLLM is slow to say so, too
        if frame.status == 0:
            if request.transport is not None:
                request.transport.abort()  # as then: no answer at all
            return web.Response(status=503)
        body = zlib.decompress(frame.packed)
        return web.Response(body=body, status=frame.status, headers={"Content-Type": CONTENT_TYPE})


class Fleet:
    """Several pods that play one reel: ``async with Fleet(reel, clock, pods=3) as fleet``."""

    def __init__(self, reel: Reel, clock: Clock, *, pods: int, begin: float = 0.0) -> None:
        self._pods = tuple(Pod(reel, clock, begin + n * STAGGER) for n in range(pods))
        self._stack = AsyncExitStack()

    @property
    def urls(self) -> tuple[str, ...]:
        """Base URLs, one a pod."""
        return tuple(pod.url for pod in self._pods)

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            for pod in self._pods:
                await stack.enter_async_context(pod)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self._stack.aclose()
