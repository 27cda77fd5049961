"""Records ``/metrics`` of one server, scrape after scrape, exactly as it answers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import aiohttp

from scaler.vllm.recording import RecordedScrape

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler.clock import Clock

LONGEST_BODY: Final = 4 * 1024 * 1024  # bytes
_HEADERS: Final = {"Accept": "text/plain", "Accept-Encoding": "identity"}


class Recorder:
    """Scrapes ``url`` + ``/metrics`` at an interval and hands each scrape to ``write``.

    The whole plain body is asked for, without the filter that the scaler itself uses, since a
    recording is for questions nobody has asked yet. Two scrapes never overlap: those that a slow
    answer makes impossible are left out.
    """

    def __init__(
        self,
        url: str,
        session: aiohttp.ClientSession,
        clock: Clock,
        write: Callable[[RecordedScrape], None],
    ) -> None:
        self._url = url + "/metrics"
        self._session = session
        self._clock = clock
        self._write = write

    async def run(self, interval: float, stop: asyncio.Event) -> None:
        """Record until ``stop`` is set; a scrape under way then is finished and written."""
        loop = asyncio.get_running_loop()
        due = loop.time()
        while not stop.is_set():
            self._write(await self.scrape())
            missed = max(0.0, loop.time() - due) // interval
            due += (missed + 1) * interval
            try:
                async with asyncio.timeout_at(due):
                    await stop.wait()
            except TimeoutError:
                continue

    async def scrape(self) -> RecordedScrape:
        """Scrape once. No answer is one too: status 0, and the name of the error as the body."""
        began = self._clock.now()
        try:
            status, body = await self._get()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            status, body = 0, type(error).__name__
        took = self._clock.now().monotonic - began.monotonic
        return RecordedScrape(began.wall.timestamp(), took, status, body)

    async def _get(self) -> tuple[int, str]:
        parts, length = [], 0
        async with self._session.get(self._url, headers=_HEADERS, max_redirects=2) as response:
            async for chunk in response.content.iter_any():
                parts.append(chunk)
                length += len(chunk)
                if length > LONGEST_BODY:
                    return 0, "BodyTooLarge"
            return response.status, b"".join(parts).decode(errors="replace")
