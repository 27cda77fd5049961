"""What a discovery answers: which pods a trigger has, and where to scrape them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from scaler.core.model import PodLife

if TYPE_CHECKING:
    from scaler.core.policy import TriggerPolicy


@dataclass(frozen=True, slots=True)
class FoundPod:
    """One pod. ``pod`` is stable and never reused for another process; ``url`` is what to GET."""

    pod: str
    url: str
    life: PodLife = PodLife.UNKNOWN


@dataclass(frozen=True, slots=True)
class Found:
    """The pods of a trigger now. ``error`` says why the list cannot be trusted; it is then empty.

    ``current_replicas`` is what the scale target asks for, where that is known; ``waking`` says
    that a wake source fires; ``cold_start`` is the learned p90 from created to Ready, seconds.
    """

    pods: tuple[FoundPod, ...] = ()
    error: str | None = None
    current_replicas: int | None = None
    waking: bool = False
    cold_start: float | None = None


class Discovery(Protocol):
    """Finds the pods of a trigger."""

    async def find(self, namespace: str, name: str, policy: TriggerPolicy) -> Found:
        """Return the pods now. Raises EndpointNotAllowed when the metadata names a barred host."""
        ...
