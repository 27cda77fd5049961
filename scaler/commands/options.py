"""Parameter types and options that several commands share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from scaler.config.durations import format_duration, parse_duration
from scaler.config.settings import Address

if TYPE_CHECKING:
    from collections.abc import Callable


class DurationType(click.ParamType[float]):
    """``5s``, ``500ms``, ``1m30s`` or plain seconds; at least ``least`` seconds."""

    name = "duration"

    def __init__(self, least: float = 0.0) -> None:
        self._least = least

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Return seconds."""
        if isinstance(value, int | float):
            return float(value)
        try:
            seconds = parse_duration(value)
        except ValueError as error:
            self.fail(f"{value!r} {error}", param, ctx)
        if seconds < self._least:
            self.fail(f"{value!r} must be at least {format_duration(self._least)}", param, ctx)
        return seconds


class AddressType(click.ParamType[Address]):
    """``HOST:PORT``, ``[IPV6]:PORT`` or ``:PORT`` (all interfaces); port 0 asks for a free one."""

    name = "host:port"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Address:
        """Return the address."""
        if isinstance(value, Address):
            return value
        host, _, port = str(value).rpartition(":")
        if not port.isascii() or not port.isdigit() or not 0 <= int(port) <= 65535:
            self.fail(f"{value!r} must be HOST:PORT with a port from 0 to 65535", param, ctx)
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        elif ":" in host:
            self.fail(f"{value!r}: write an IPv6 host in brackets, as [::1]:6000", param, ctx)
        return Address(host or "0.0.0.0", int(port))  # noqa: S104 - ":8080" means everywhere


DURATION = DurationType()
POSITIVE_DURATION = DurationType(least=0.05)
ADDRESS = AddressType()


def from_environment(name: str) -> str:
    """Return a flag's variable: ``--grpc-address`` is VLLM_SCALER_GRPC_ADDRESS."""
    return "VLLM_SCALER_" + name.lstrip("-").replace("-", "_").upper()


def setting(flag: str, **attributes: Any) -> Callable[[Any], Any]:
    """A click option that can also be given in the environment, and says so in its help."""
    return click.option(flag, envvar=from_environment(flag), show_envvar=True, **attributes)
