"""KEDA's own part of the loop, as pure functions: activation, cooldown and fallback.

Source: ``pkg/scaling/executor/scale_scaledobjects.go`` and ``pkg/fallback/fallback.go`` of KEDA
2.20; in words, section 3.7 of the reference on KEDA. KEDA moves a workload between zero (or idle)
and its first replicas; everything above is the HPA's (:mod:`scaler.replay.hpa`).

``now`` is any clock in seconds that only moves forward; ``created`` is on the same clock.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


class FallbackBehavior(StrEnum):
    """Which replicas a failing metric stands for."""

    STATIC = "static"
    CURRENT = "currentReplicas"
    CURRENT_IF_HIGHER = "currentReplicasIfHigher"
    CURRENT_IF_LOWER = "currentReplicasIfLower"


@dataclass(frozen=True, slots=True)
class Fallback:
    """``spec.fallback``. Use ``replicas`` of 1 or more: see :func:`poll`."""

    failure_threshold: int
    replicas: int
    behavior: FallbackBehavior = FallbackBehavior.STATIC

    def stands_for(self, current: int) -> int:
        """Return the replicas that a failing metric asks for while ``current`` are set."""
        match self.behavior:
            case FallbackBehavior.CURRENT:
                return current
            case FallbackBehavior.CURRENT_IF_HIGHER:
                return max(current, self.replicas)
            case FallbackBehavior.CURRENT_IF_LOWER:
                return min(current, self.replicas)
            case FallbackBehavior.STATIC:
                return self.replicas


@dataclass(frozen=True, slots=True)
class ScaledObject:
    """The fields of a ScaledObject that the loop reads; seconds."""

    min_replicas: int = 0
    max_replicas: int = 100
    idle_replicas: int | None = None
    polling_interval: float = 30.0
    cooldown: float = 300.0
    initial_cooldown: float = 0.0
    fallback: Fallback | None = None

    @property
    def hpa_min(self) -> int:
        """``minReplicas`` of the HPA that KEDA keeps: never zero."""
        return max(1, self.min_replicas)


@dataclass(frozen=True, slots=True)
class Activity:
    """What KEDA remembers of an object. ``last_active`` None: never active."""

    created: float
    last_active: float | None = None


@dataclass(frozen=True, slots=True)
class Health:
    """Consecutive failures of one metric; polls and HPA requests both count."""

    failures: int = 0


def poll(
    scaled: ScaledObject, replicas: int, active: Sequence[bool | None], memory: Activity, now: float
) -> tuple[int, Activity]:
    """Do one poll: return the replicas to set, and the memory.

    ``active`` holds each trigger's ``IsActive``, None for an error. An error blocks going to zero,
    except (a trap of KEDA's) with a fallback of zero replicas.
    """
    failed = any(answer is None for answer in active)
    idle = scaled.idle_replicas
    if any(active):
        if replicas == 0 or (idle is not None and replicas < scaled.min_replicas):
            return scaled.hpa_min, replace(memory, last_active=now)
        return replicas, memory if failed else replace(memory, last_active=now)
    if failed and (scaled.fallback is None or scaled.fallback.replicas != 0):
        return replicas, memory
    rest = 0 if idle is None else idle
    if replicas > rest and (idle is not None or scaled.min_replicas == 0):
        return (rest if _cooled_down(scaled, memory, now) else replicas), memory
    if idle is None and replicas < scaled.min_replicas:
        return scaled.min_replicas, memory
    return replicas, memory


def push(scaled: ScaledObject, replicas: int, memory: Activity, now: float) -> tuple[int, Activity]:
    """Take a ``true`` from a ``StreamIsActive`` stream; a ``false`` is ignored since KEDA 2.18."""
    return poll(scaled, replicas, (True,), memory, now)


def _cooled_down(scaled: ScaledObject, memory: Activity, now: float) -> bool:
    if memory.last_active is None:
        return now > memory.created + scaled.initial_cooldown
    return now > memory.last_active + scaled.cooldown


def served_value(
    scaled: ScaledObject, value: float | None, target: float, current: int, health: Health
) -> tuple[float | None, Health]:
    """Return what KEDA serves for a metric of type AverageValue, and its health.

    ``value`` None is a failed ``GetMetrics``. Past the threshold the fallback's replicas, times
    ``target``, take its place; before that, and without a fallback, the failure is passed on.
    """
    if value is not None:
        return quantity(value), Health()
    health = Health(health.failures + 1)
    if scaled.fallback is None or health.failures <= scaled.fallback.failure_threshold:
        return None, health
    return target * scaled.fallback.stands_for(current), health


def quantity(value: float) -> float:
    """Return what becomes of a scaler's float: NaN, Inf and negatives are 0 since KEDA 2.20.2."""
    return value if math.isfinite(value) and value > 0 else 0.0
