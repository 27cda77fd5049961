"""The addresses that an endpoint's name leads to, for the connector: none that is not admitted.

A check when the trigger is read would not hold: the name may lead elsewhere a second later. Here it
is made on the very answers that are then connected to.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from aiohttp.abc import AbstractResolver, ResolveResult

from scaler.core.model import ScrapeCause, ScrapeFailure
from scaler.resolver import INWARD, LOOKUP_SECONDS, admitted

if TYPE_CHECKING:
    from scaler.resolver import Admits, Resolve


class Unresolved(OSError):
    """A name leads nowhere; ``failure`` says why."""

    def __init__(self, cause: ScrapeCause, detail: str) -> None:
        self.failure = ScrapeFailure(cause, detail)
        super().__init__(detail)


class AdmittedAddresses(AbstractResolver):
    """aiohttp's way to look up a name, through ``resolve`` and past ``admits``."""

    def __init__(self, resolve: Resolve, admits: Admits) -> None:
        self._resolve = resolve
        self._admits = admits

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the addresses to connect to. Raises Unresolved when there are none."""
        try:
            async with asyncio.timeout(LOOKUP_SECONDS):
                answers = list(await self._resolve(host))
        except TimeoutError:
            detail = f"cannot resolve {host}: no answer within {LOOKUP_SECONDS:g} s"
            # A time-out in name too, so that it waits among those and not before the others.
            raise Unresolved(ScrapeCause.TIMEOUT, detail) from None
        except OSError:
            answers = []
        if not answers:
            raise Unresolved(ScrapeCause.DNS, f"cannot resolve {host}")
        results = [
            ResolveResult(
                hostname=host,
                host=str(address),
                port=port,
                family=socket.AF_INET6 if address.version == 6 else socket.AF_INET,
                proto=0,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in admitted(host.rstrip("."), port, answers, self._admits)
        ]
        if not results:
            raise Unresolved(ScrapeCause.DNS, f"{host} leads to {INWARD} only")
        return [r for r in results if family in {socket.AF_UNSPEC, r["family"]}]

    async def close(self) -> None:
        """Nothing: the resolver belongs to whoever made it."""
