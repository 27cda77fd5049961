"""Host names: looked up without holding up anything else, and which answers may be followed.

The system's resolver blocks a thread for as long as a name server is silent, 15 s and more, and no
time-out frees that thread. So look-ups have threads of their own, never the default executor's;
a name has one look-up in flight however many ask; and names that hung last time wait in a lane of
their own, as pods do (``targets.py``).
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import ipaddress
import socket
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

LOOKUP_SECONDS: Final = 1.5  # what an asker waits
LANE: Final = 32  # look-ups at once
SLOW_LANE: Final = 8  # of names that hung last time
_MOST_HUNG: Final = 10_000

INWARD: Final = "loopback, link-local or multicast addresses"

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Resolve(Protocol):
    """Looks up a host name."""

    async def __call__(self, host: str, /) -> Iterable[str]:
        """Return the addresses of the name now. Raises OSError when there is no answer."""
        ...


class Admits(Protocol):
    """Says what the operator allows by ``--allow-endpoints``."""

    def __call__(self, host: str, port: int, /) -> bool:
        """Whether a host, or an address, is named by one of the globs."""
        ...


@dataclass(slots=True, eq=False)
class _LookUp:
    """One name being looked up, and for how many."""

    task: asyncio.Task[Sequence[str]] | None = None
    askers: int = 0
    started: bool = False


class Resolver:
    """Looks names up in daemon threads. Askers set their own deadline, by cancelling.

    ``look_up`` blocks, and raises OSError when there is no answer. One event loop each.
    """

    def __init__(
        self,
        look_up: Callable[[str], Sequence[str]] | None = None,
        *,
        lane: int = LANE,
        slow_lane: int = SLOW_LANE,
    ) -> None:
        self._look_up = look_up or system_addresses
        self._fast = asyncio.Semaphore(lane)
        self._slow = asyncio.Semaphore(slow_lane)
        self._running: dict[str, _LookUp] = {}
        self._hung: dict[str, None] = {}

    async def __call__(self, host: str, /) -> Sequence[str]:
        """Return the addresses of a name now. Raises OSError when there is no answer."""
        running = self._running.get(host)
        if running is None:
            running = self._running[host] = _LookUp()
            running.task = asyncio.create_task(self._run(host, running), name=f"look up {host}")
            running.task.add_done_callback(_retrieve)
        assert running.task is not None  # noqa: S101 - set with the entry
        running.askers += 1
        try:
            return await asyncio.shield(running.task)
        finally:
            running.askers -= 1
            if not running.askers and not running.task.done():
                self._abandon(host, running)

    def close(self) -> None:
        """Let go of all look-ups. A thread ends when the system answers, or with the process."""
        for running in self._running.values():
            if running.task is not None:
                running.task.cancel()

    def _abandon(self, host: str, running: _LookUp) -> None:
        """Nobody waits any more: a look-up that runs hung, one that only waits is not needed."""
        if running.started:
            if len(self._hung) >= _MOST_HUNG:
                self._hung.pop(next(iter(self._hung)))
            self._hung[host] = None
        elif running.task is not None:
            del self._running[host]
            running.task.cancel()

    async def _run(self, host: str, running: _LookUp) -> Sequence[str]:
        try:
            async with self._slow if host in self._hung else self._fast:
                running.started = True
                return await asyncio.wrap_future(_in_thread(self._look_up, host))
        finally:
            if self._running.get(host) is running:
                del self._running[host]
                if running.askers:
                    self._hung.pop(host, None)


def _in_thread(
    look_up: Callable[[str], Sequence[str]], host: str
) -> concurrent.futures.Future[Sequence[str]]:
    """Start a look-up in a thread that does not hold up the end of the process."""
    future: concurrent.futures.Future[Sequence[str]] = concurrent.futures.Future()
    future.set_running_or_notify_cancel()

    def run() -> None:
        try:
            future.set_result(look_up(host))
        except Exception as error:  # noqa: BLE001 - whoever asked is told
            future.set_exception(error)

    threading.Thread(target=run, name="resolver", daemon=True).start()
    return future


def _retrieve(task: asyncio.Task[Sequence[str]]) -> None:
    """Take note of an error that nobody waits for any more."""
    if not task.cancelled():
        task.exception()


def system_addresses(host: str) -> Sequence[str]:
    """Ask the system's resolver, which honours /etc/hosts and search domains. Blocks."""
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_ADDRCONFIG)
    except UnicodeError as error:
        raise OSError("no host name") from error
    return [_scoped(address) for *_, address in found]


def _scoped(address: tuple[object, ...]) -> str:
    """Return the address of a socket address, with the zone that a link-local one needs."""
    zone = address[3] if len(address) == 4 else 0
    return f"{address[0]}%{zone}" if zone and "%" not in str(address[0]) else str(address[0])


def admitted(host: str, port: int, answers: Iterable[str], admits: Admits) -> list[Address]:
    """Return those answers for a name that may be followed, each once, in order.

    Who writes a trigger writes the DNS too, perhaps. A name that leads to this machine, its link
    (cloud metadata: 169.254.169.254) or a group needs a second permission, for the address;
    ``localhost`` says itself where it leads (RFC 6761, section 6.3).
    """
    addresses = dict.fromkeys(_address(answer) for answer in answers)
    local = host == "localhost" or host.endswith(".localhost")
    return [
        address
        for address in addresses
        if not _is_inward(address) or (local and address.is_loopback) or admits(str(address), port)
    ]


# Where clouds answer instances about themselves, beside 169.254.169.254.
_METADATA = frozenset(
    map(ipaddress.ip_address, ("fd00:ec2::254", "100.100.100.200", "168.63.129.16"))
)
_NAT64 = ipaddress.ip_network("64:ff9b::/96")
_COMPATIBLE = ipaddress.ip_network("::/96")


def _is_inward(address: Address) -> bool:
    return (
        address in _METADATA
        or address.is_loopback
        or address.is_link_local
        or address.is_unspecified
        or address.is_multicast
    )


def _address(answer: str) -> Address:
    """Read an address; ``::ffff:127.0.0.1`` is 127.0.0.1 in disguise.

    Other wrappings of an IPv4 address are taken off only where what is inside leads inward: the
    rest is reached as it is written.
    """
    address = ipaddress.ip_address(answer)
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    wrapped = address.sixtofour
    if address in _NAT64 or (address in _COMPATIBLE and int(address) > 1):
        wrapped = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return wrapped if wrapped is not None and _is_inward(wrapped) else address
