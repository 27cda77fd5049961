"""Kubernetes' HPA v2 for external metrics, as a pure function: one call is one sync.

Source: ``pkg/controller/podautoscaler/{horizontal,replica_calculator}.go`` of Kubernetes (with the
tolerances by direction of 1.33 and later) and ``pkg/apis/autoscaling/v2/defaults.go``; the rules in
words stand in the reference on KEDA, section 3. Metrics are compared in milli-units and floats, as
there. Left out: resource and pod metrics, and ``minReplicas: 0``, which KEDA never asks for.

``now`` is any clock in seconds that only moves forward.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SYNC_PERIOD = 15.0  # --horizontal-pod-autoscaler-sync-period
TOLERANCE = 0.1  # --horizontal-pod-autoscaler-tolerance
DOWNSCALE_WINDOW = 300.0  # --horizontal-pod-autoscaler-downscale-stabilization


class TargetType(StrEnum):
    """How a metric is compared with its target."""

    AVERAGE_VALUE = "AverageValue"  # the value is a total; divided by status.replicas
    VALUE = "Value"  # the ratio multiplies the ready pods


class PolicyType(StrEnum):
    """The unit of a rate policy."""

    PODS = "Pods"
    PERCENT = "Percent"


class Select(StrEnum):
    """Which of several policies rules: the largest change, the smallest, none."""

    MAX = "Max"
    MIN = "Min"
    DISABLED = "Disabled"


class Outcome(StrEnum):
    """Why the replicas are what they are: the reason of the condition Kubernetes would set."""

    WITHIN_RANGE = "DesiredWithinRange"
    UP_STABILIZED = "ScaleUpStabilized"
    DOWN_STABILIZED = "ScaleDownStabilized"
    UP_LIMIT = "ScaleUpLimit"
    DOWN_LIMIT = "ScaleDownLimit"
    TOO_MANY = "TooManyReplicas"
    TOO_FEW = "TooFewReplicas"
    DISABLED = "ScalingDisabled"
    FAILED = "FailedComputeMetricsReplicas"


@dataclass(frozen=True, slots=True)
class Policy:
    """At most ``value`` pods, or per cent, of change within ``period`` seconds."""

    type: PolicyType
    value: int
    period: float


@dataclass(frozen=True, slots=True)
class Rules:
    """One direction of ``behavior``. ``tolerance`` None: the controller's own."""

    window: float
    policies: tuple[Policy, ...]
    select: Select = Select.MAX
    tolerance: float | None = None


DEFAULT_UP = Rules(0.0, (Policy(PolicyType.PODS, 4, 15.0), Policy(PolicyType.PERCENT, 100, 15.0)))
DEFAULT_DOWN = Rules(DOWNSCALE_WINDOW, (Policy(PolicyType.PERCENT, 100, 15.0),))


@dataclass(frozen=True, slots=True)
class Behavior:
    """``spec.behavior``, with the defaults of a section that is given at all."""

    up: Rules = DEFAULT_UP
    down: Rules = DEFAULT_DOWN


@dataclass(frozen=True, slots=True)
class Metric:
    """One external metric of the HPA."""

    target: float
    type: TargetType = TargetType.AVERAGE_VALUE

    @property
    def milli_target(self) -> int:
        """The target as KEDA writes it, with three decimals."""
        return int(f"{self.target:.3f}".replace(".", ""))


@dataclass(frozen=True, slots=True)
class Hpa:
    """The object. ``behavior`` None takes the controller's older path, as in Kubernetes."""

    metrics: tuple[Metric, ...]
    min_replicas: int = 1
    max_replicas: int = 100
    behavior: Behavior | None = None
    tolerance: float = TOLERANCE

    def within(self, ratio: float) -> bool:
        """Tell whether a usage ratio is near enough to 1 to change nothing. NaN is not."""
        up = down = self.tolerance
        if self.behavior is not None:
            up = up if self.behavior.up.tolerance is None else self.behavior.up.tolerance
            down = down if self.behavior.down.tolerance is None else self.behavior.down.tolerance
        return 1.0 - down <= ratio <= 1.0 + up


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale target: replicas asked for, pods that exist (starting too), pods that are ready."""

    spec: int
    status: int
    ready: int


@dataclass(frozen=True, slots=True)
class Stamped:
    """A recommendation or a change of ``replicas``, at an instant."""

    at: float
    replicas: int


@dataclass(frozen=True, slots=True)
class State:
    """The controller's memory. It is lost on a restart: then begin with an empty one."""

    recommendations: tuple[Stamped, ...] = ()
    ups: tuple[Stamped, ...] = ()
    downs: tuple[Stamped, ...] = ()


@dataclass(frozen=True, slots=True)
class Sync:
    """One sync: the replicas to ask for, why, and what the metrics alone proposed."""

    replicas: int
    outcome: Outcome
    proposed: int | None


def sync(
    hpa: Hpa, scale: Scale, values: Sequence[float | None], state: State, now: float
) -> tuple[Sync, State]:
    """Do one sync. ``values`` holds each metric's total, None where it could not be had."""
    current = scale.spec
    if not state.recommendations:
        state = replace(state, recommendations=(Stamped(now, current),))
    if current == 0:
        return Sync(0, Outcome.DISABLED, None), state
    if current > hpa.max_replicas:
        done = Sync(hpa.max_replicas, Outcome.TOO_MANY, None)
    elif current < hpa.min_replicas:
        done = Sync(hpa.min_replicas, Outcome.TOO_FEW, None)
    else:
        proposed = propose(hpa, scale, values)
        if proposed is None:
            return Sync(current, Outcome.FAILED, None), state
        stabilized, why = _stabilize(hpa.behavior, current, proposed, state, now)
        state = _remember(hpa.behavior, proposed, state, now)
        replicas, limit = _limit(hpa, current, stabilized, state, now)
        done = Sync(replicas, limit or why, proposed)
    return done, _record(hpa.behavior, current, done.replicas, state, now)


def propose(hpa: Hpa, scale: Scale, values: Sequence[float | None]) -> int | None:
    """Return what the metrics ask for: their maximum, or None when nothing may be concluded.

    A metric that failed blocks going down, never up.
    """
    proposals = [
        _of_metric(hpa, metric, scale, value)
        for metric, value in zip(hpa.metrics, values, strict=True)
    ]
    known = [proposal for proposal in proposals if proposal is not None]
    if not known or (len(known) < len(proposals) and max(known) < scale.spec):
        return None
    return max(known)


def _of_metric(hpa: Hpa, metric: Metric, scale: Scale, value: float | None) -> int | None:
    if value is None:
        return None
    usage = int(value * 1000)  # KEDA's quantity: truncated to milli-units
    target = metric.milli_target
    if metric.type is TargetType.AVERAGE_VALUE:
        # No pods: the ratio is Inf or NaN there, and never within the tolerance.
        if scale.status and hpa.within(usage / (target * scale.status)):
            return scale.status
        return math.ceil(usage / target)
    if scale.status == 0:
        return None  # "no pods returned by selector"
    return scale.spec if hpa.within(usage / target) else math.ceil(usage / target * scale.ready)


def _stabilize(
    behavior: Behavior | None, current: int, proposed: int, state: State, now: float
) -> tuple[int, Outcome]:
    past = state.recommendations
    if behavior is None:
        recent = [r.replicas for r in past if r.at >= now - DOWNSCALE_WINDOW]
        stabilized = max([proposed, *recent])
        changed = Outcome.DOWN_STABILIZED
    else:
        lowest = min([proposed, *_since(past, now - behavior.up.window)])
        highest = max([proposed, *_since(past, now - behavior.down.window)])
        stabilized = min(max(current, lowest), highest)
        changed = Outcome.UP_STABILIZED if proposed >= current else Outcome.DOWN_STABILIZED
    return stabilized, Outcome.WITHIN_RANGE if stabilized == proposed else changed


def _limit(
    hpa: Hpa, current: int, desired: int, state: State, now: float
) -> tuple[int, Outcome | None]:
    """Apply the rate policies and the bounds; the outcome is None when neither binds."""
    if hpa.behavior is None:
        fastest, slowest = max(2 * current, 4), 0
    else:
        fastest = max(current, _rate_limit(hpa.behavior.up, 1, current, state, now))
        slowest = min(current, _rate_limit(hpa.behavior.down, -1, current, state, now))
    if desired > min(hpa.max_replicas, fastest):
        limited = fastest < hpa.max_replicas
        return min(hpa.max_replicas, fastest), Outcome.UP_LIMIT if limited else Outcome.TOO_MANY
    if desired < max(hpa.min_replicas, slowest):
        limited = slowest > hpa.min_replicas
        return max(hpa.min_replicas, slowest), Outcome.DOWN_LIMIT if limited else Outcome.TOO_FEW
    return desired, None


def _rate_limit(rules: Rules, direction: int, current: int, state: State, now: float) -> int:
    """Return how far one sync may go: up for ``direction`` 1, down for -1."""
    if rules.select is Select.DISABLED or not rules.policies:
        return current
    limits: list[int] = []
    for policy in rules.policies:
        since = now - policy.period
        start = current - sum(_since(state.ups, since)) + sum(_since(state.downs, since))
        if policy.type is PolicyType.PODS:
            limits.append(start + direction * policy.value)
        else:
            exact = start * (1 + direction * policy.value / 100)
            limits.append(math.ceil(exact) if direction > 0 else int(exact))
    largest_change = rules.select is Select.MAX
    return max(limits) if largest_change == (direction > 0) else min(limits)


def _remember(behavior: Behavior | None, proposed: int, state: State, now: float) -> State:
    window = DOWNSCALE_WINDOW if behavior is None else max(behavior.up.window, behavior.down.window)
    kept = tuple(r for r in state.recommendations if r.at >= now - window)
    return replace(state, recommendations=(*kept, Stamped(now, proposed)))


def _record(
    behavior: Behavior | None, current: int, replicas: int, state: State, now: float
) -> State:
    if behavior is None or replicas == current:
        return state
    if replicas > current:
        change = Stamped(now, replicas - current)
        return replace(state, ups=_store(behavior.up, state.ups, change))
    change = Stamped(now, current - replicas)
    return replace(state, downs=_store(behavior.down, state.downs, change))


def _store(rules: Rules, changes: tuple[Stamped, ...], new: Stamped) -> tuple[Stamped, ...]:
    """Add a change, in the place of one that its own direction counts no more, if there is one.

    So it is there, though a longer period of the other direction might still count the old one.
    """
    longest = max((policy.period for policy in rules.policies), default=0.0)
    outdated = [i for i, change in enumerate(changes) if change.at < new.at - longest]
    if not outdated:
        return (*changes, new)
    return (*changes[: outdated[-1]], new, *changes[outdated[-1] + 1 :])


def _since(stamped: Iterable[Stamped], cutoff: float) -> list[int]:
    """Return the numbers stamped after ``cutoff``, which itself is too old."""
    return [one.replicas for one in stamped if one.at > cutoff]
