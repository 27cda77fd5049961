"""Who hears how the calls went."""

from __future__ import annotations

from typing import Protocol


class RpcObserver(Protocol):
    """Hears how calls went; the exporter counts them."""

    def rpc(self, method: str, code: str, seconds: float | None) -> None:
        """Note one finished call of the contract: RPC name, gRPC code name (``OK`` …), duration.

        A stream is noted when it ends, without a duration: how long it was open says nothing.
        """
        ...

    def streams(self, delta: int) -> None:
        """Note that a stream opened (+1) or ended (-1)."""
        ...


class Unobserved:
    """The observer that does nothing."""

    def rpc(self, method: str, code: str, seconds: float | None) -> None:
        """Ignore the call."""

    def streams(self, delta: int) -> None:
        """Ignore the stream."""
