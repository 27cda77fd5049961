"""How much of the fleet is seen, and what is wrong when that is not enough."""

from __future__ import annotations

from enum import Enum
from math import ceil
from typing import TYPE_CHECKING

from scaler.core.model import PodState, Reason

if TYPE_CHECKING:
    from scaler.core.model import Snapshot
    from scaler.core.pods import FleetReading
    from scaler.core.policy import TriggerPolicy

Trouble = tuple[Reason, str]

# 0.55 of 100 is 55, whatever floating point makes of it.
DUST = 1e-9


class Sight(Enum):
    """How much of the fleet is seen."""

    CLEAR = "clear"  # a quorum of ready pods has fresh data
    EMPTY = "empty"  # no pod is expected to serve: a legal state
    STARTING = "starting"  # none serves yet, some will
    PARTIAL = "partial"  # below quorum
    BLIND = "blind"


SIGHTED = frozenset({Sight.CLEAR, Sight.EMPTY, Sight.STARTING})


def look(
    snapshot: Snapshot, reading: FleetReading, policy: TriggerPolicy, composite: float | None
) -> tuple[Sight, Trouble | None]:
    """Say how much is seen, and what is wrong when that is not enough."""
    if snapshot.discovery_error is not None:
        text = f"cannot list pods: {snapshot.discovery_error}"
        return Sight.BLIND, (Reason.CANNOT_LIST_PODS, text)
    if reading.models:
        text = f"the pods serve several models ({', '.join(reading.models)}): set `model` to one"
        return Sight.BLIND, (Reason.AMBIGUOUS_MODEL, text)
    if reading.counts.ready == 0:
        return _look_without_ready_pods(reading)
    return _look_at_ready_pods(reading, policy, composite)


def _look_at_ready_pods(
    reading: FleetReading, policy: TriggerPolicy, composite: float | None
) -> tuple[Sight, Trouble | None]:
    counts = reading.counts
    if counts.fresh == 0:
        return Sight.BLIND, (Reason.NO_DATA, _usable(reading))
    if counts.fresh < ceil(policy.quorum * counts.ready - DUST):
        text = f"{_usable(reading)}, quorum {policy.quorum:.0%}"
        return Sight.PARTIAL, (Reason.QUORUM_LOST, text)
    if composite is None and policy.asks_for_load:
        return Sight.BLIND, (Reason.NO_DATA, "no signal can be computed yet from what is there")
    return Sight.CLEAR, None


def _look_without_ready_pods(reading: FleetReading) -> tuple[Sight, Trouble | None]:
    if reading.confirmed_starting:
        return Sight.STARTING, None
    if reading.counts.starting:
        text = (
            f"no endpoint has answered yet: {reading.counts.starting} refuse connections "
            "(still loading, or the wrong port?)"
        )
        return Sight.BLIND, (Reason.NO_DATA, text)
    return Sight.EMPTY, None


def _usable(reading: FleetReading) -> str:
    """Say how many targets are usable, and why one of the others is not."""
    counts = reading.counts
    view = next(v for v in reading.views if v.state in (PodState.STALE, PodState.MISSING))
    why = "not scraped yet" if view.failure is None else view.failure.detail
    return f"{counts.fresh}/{counts.ready} targets usable ({view.pod}: {why})"
