"""Pods that the trigger names itself: ``endpoints``, only where the operator allows their hosts.

``dns+http://name:port`` stands for every address of a name, looked up anew each time: a headless
Service, or a load-balancing name. Who writes the trigger also writes the DNS, perhaps; so a name
that leads to this machine or its link needs a second permission, for the address.
"""

from __future__ import annotations

import asyncio
import ipaddress
import re
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult, urlsplit

from scaler.discovery.pods import Found, FoundPod
from scaler.errors import EndpointNotAllowed
from scaler.resolver import INWARD, LOOKUP_SECONDS, Resolver, admitted

if TYPE_CHECKING:
    from collections.abc import Sequence

    from scaler.core.policy import TriggerPolicy
    from scaler.resolver import Address, Resolve

MOST_ADDRESSES: Final = 2000
_PORTS: Final = {"http": 80, "https": 443}
_DNS: Final = "dns+"


class StaticDiscovery:
    """Takes the pods from ``endpoints``. ``allow`` holds host globs, each perhaps with a port."""

    def __init__(
        self,
        allow: Sequence[str],
        *,
        resolve: Resolve | None = None,
        lookup_seconds: float = LOOKUP_SECONDS,
    ) -> None:
        self._shown = ", ".join(allow) or "none"
        self._allow = tuple(_host_and_port(pattern.strip().lower()) for pattern in allow)
        self._resolve = resolve or Resolver()
        self._lookup_seconds = lookup_seconds

    async def find(self, namespace: str, name: str, policy: TriggerPolicy) -> Found:
        """Return the pods now; an unknown life for all, since nobody watches them.

        Raises EndpointNotAllowed, naming every host that is barred.
        """
        del namespace, name  # the endpoints are the trigger's own
        if policy.endpoints is None:
            return Found(error="the trigger has no `endpoints`, and Kubernetes is not available")
        endpoints = [urlsplit(endpoint) for endpoint in policy.endpoints]
        self._check(endpoints)
        lookups = [self._bases(endpoint) for endpoint in endpoints]
        try:
            bases = [base for found in await asyncio.gather(*lookups) for base in found]
        except _LookupFailed as error:
            return Found(error=str(error))
        pods = {base: FoundPod(base, base + policy.metrics_path) for base in bases}
        return Found(pods=tuple(pods.values()))

    def _check(self, endpoints: Sequence[SplitResult]) -> None:
        barred = [_shown(endpoint) for endpoint in endpoints if not self._allows(endpoint)]
        if barred:
            hosts = ", ".join(dict.fromkeys(barred))
            message = f"{hosts}: not allowed by --allow-endpoints ({self._shown})"
            raise EndpointNotAllowed(message)

    def _allows(self, endpoint: SplitResult) -> bool:
        return self.admits(_host(endpoint), _port(endpoint))

    def admits(self, host: str, port: int) -> bool:
        """Whether one of the globs names the host, or the address, at the port."""
        return any(
            fnmatchcase(host, hosts) and fnmatchcase(str(port), ports)
            for hosts, ports in self._allow
        )

    async def _bases(self, endpoint: SplitResult) -> list[str]:
        scheme, host = endpoint.scheme, _host(endpoint)
        if not scheme.startswith(_DNS):
            return [_base(scheme, host, endpoint)]
        addresses = await self._addresses(host, _port(endpoint))
        return [_base(scheme.removeprefix(_DNS), str(address), endpoint) for address in addresses]

    async def _addresses(self, host: str, port: int) -> list[Address]:
        """Look a name up. No answer is not "no pods": a broken DNS looks like an idle Service."""
        try:
            async with asyncio.timeout(self._lookup_seconds):
                answers = list(await self._resolve(host))
        except TimeoutError:
            waited = f"no answer within {self._lookup_seconds:g} s"
            raise _LookupFailed(f"cannot resolve {host}: {waited}") from None
        except (OSError, UnicodeError):
            answers = []
        if not answers:
            raise _LookupFailed(f"cannot resolve {host}: the name has no address")
        allowed = admitted(host, port, answers, self.admits)
        if not allowed:
            raise _LookupFailed(f"{host} leads to {INWARD} only")
        # With two families each pod has an address of both: it is still one pod.
        four, six = ([a for a in allowed if a.version == version] for version in (4, 6))
        addresses = sorted(six if len(six) > len(four) else four, key=int)
        if len(addresses) > MOST_ADDRESSES:
            raise _LookupFailed(f"{host} has more than {MOST_ADDRESSES} addresses")
        return addresses


class _LookupFailed(Exception):
    """A name could not be looked up. The message is for a person."""


def _base(scheme: str, host: str, endpoint: SplitResult) -> str:
    port = _port(endpoint)
    suffix = "" if port == _PORTS[scheme] else f":{port}"
    return f"{scheme}://{_bracketed(host)}{suffix}{endpoint.path.rstrip('/')}"


def _port(endpoint: SplitResult) -> int:
    return endpoint.port or _PORTS[endpoint.scheme.removeprefix(_DNS)]


def _host(endpoint: SplitResult) -> str:
    """Return the host without brackets, addresses in their shortest form."""
    host = (endpoint.hostname or "").rstrip(".")
    try:
        return str(ipaddress.ip_address(host))
    except ValueError:
        return host


def _host_and_port(pattern: str) -> tuple[str, str]:
    """Split ``host``, ``host:port``, ``[v6]``, ``[v6]:port`` or a bare v6 address, all globs."""
    bracketed = re.fullmatch(r"\[([^\]]*:[^\]]*)\](?::(.+))?", pattern)
    if bracketed:
        return bracketed[1], bracketed[2] or "*"
    host, colon, port = pattern.partition(":")
    return (host, port) if colon and ":" not in port else (pattern, "*")


def _bracketed(host: str) -> str:
    return f"[{host.replace('%', '%25')}]" if ":" in host else host


def _shown(endpoint: SplitResult) -> str:
    return f"{_bracketed(_host(endpoint))}:{_port(endpoint)}"
