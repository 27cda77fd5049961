"""The open streams: how many, what they wait for, and how all of them end in good order."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING

from grpc import StatusCode

from scaler.keda.refusal import Refused

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

    from scaler.core.model import Decision
    from scaler.keda.observer import RpcObserver


class Streams:
    """At most ``limit`` open streams, over all connections."""

    def __init__(self, limit: int, observer: RpcObserver) -> None:
        self._limit = limit
        self._observer = observer
        self._open = 0
        self._waits: set[asyncio.Timeout] = set()
        self._ending = False
        self._quiet = asyncio.Event()  # no stream is open
        self._quiet.set()

    @contextmanager
    def opened(self) -> Iterator[None]:
        """Count a stream while it is open. Raises Refused (RESOURCE_EXHAUSTED) at the limit."""
        if self._open >= self._limit:
            raise Refused(StatusCode.RESOURCE_EXHAUSTED, f"already {self._limit} streams open")
        self._open += 1
        self._quiet.clear()
        self._observer.streams(+1)
        try:
            yield
        finally:
            self._open -= 1
            if not self._open:
                self._quiet.set()
            self._observer.streams(-1)

    async def next(self, decisions: AsyncIterator[Decision]) -> Decision | None:
        """Return the next decision, or None when the streams are to end."""
        if self._ending:
            return None
        # A time-out without a time, until end() gives it one: nothing else can interrupt a wait
        # without cancelling the call, which would end the stream with an error.
        wait = asyncio.timeout(None)
        try:
            async with wait:
                self._waits.add(wait)
                return await anext(decisions)
        except TimeoutError:
            return None
        finally:
            self._waits.discard(wait)

    async def end(self, timeout: float) -> bool:
        """End all waits, now and later; return whether no stream is open within ``timeout`` s."""
        if not self._ending:
            self._ending = True
            for wait in tuple(self._waits):
                wait.reschedule(0)
        try:
            async with asyncio.timeout(timeout):
                await self._quiet.wait()
        except TimeoutError:
            return False
        return True
