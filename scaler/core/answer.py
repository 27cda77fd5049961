"""From what was seen to a number: the steps of DESIGN section 3 in their order.

Composite and spare, floors, pods that hold a place without serving, ``downRatio``, the missing-data
rules, bounds. Each step that changes the number says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil
from typing import TYPE_CHECKING

from scaler.core.model import Guard, Reason
from scaler.core.sight import Sight

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scaler.core.model import Floors, PodCounts, Signal, SignalReading, Snapshot
    from scaler.core.pods import FleetReading
    from scaler.core.policy import TriggerPolicy
    from scaler.core.sight import Trouble
    from scaler.core.state import ScalerState

# Float dust from adding loads must not buy a GPU.
DUST = 1e-9


@dataclass(frozen=True, slots=True)
class Case:
    """Everything the answer depends on, gathered once. ``at`` and ``busy_at`` are monotonic."""

    snapshot: Snapshot
    state: ScalerState
    policy: TriggerPolicy
    reading: FleetReading
    signals: Mapping[Signal, SignalReading]
    composite: float | None
    sight: Sight
    trouble: Trouble | None
    floors: Floors
    busy_at: float | None
    at: float

    @property
    def counts(self) -> PodCounts:
        """Pods by state."""
        return self.reading.counts


@dataclass(slots=True)
class Answer:
    """The number on its way out, with the reason and the guards so far."""

    desired: int
    reason: Reason
    valid: bool = True
    message: str = ""
    guards: list[Guard] = field(default_factory=list)

    def raise_to(self, least: int, reason: Reason, guard: Guard | None = None) -> None:
        """Raise the number to ``least`` if it is lower, and say why."""
        if least > self.desired:
            self.desired, self.reason = least, reason
            if guard is not None:
                self.guards.append(guard)


def active(case: Case) -> bool:
    """Answer the 0 to 1 question; it has an answer even when the number has none."""
    if case.floors.highest > 0 or case.policy.min_replicas > 0 or case.snapshot.waking:
        return True
    if case.sight is Sight.BLIND:
        if case.state.active is not None:
            return case.state.active
        return case.counts.total > 0 or case.snapshot.discovery_error is not None
    if case.counts.starting or (case.sight is Sight.PARTIAL and case.state.active):
        return True  # what is not seen may be busy
    return case.busy_at is not None and case.at - case.busy_at <= case.policy.active_hold


def answer(case: Case) -> Answer:
    """Return the number for this case, or an invalid answer that says what is missing."""
    if case.sight is Sight.BLIND:
        return _blind(case)
    given = _recommend(case)
    _apply_down_ratio(case, given)
    if case.sight is Sight.PARTIAL:
        if not _within_hold(case):
            return _without_data(case)
        if case.state.desired is not None and case.state.desired >= given.desired:
            given.desired, given.reason = case.state.desired, Reason.BELOW_QUORUM
            given.guards.append(Guard.UP_ONLY)
    return _bounded(case, given)


def _recommend(case: Case) -> Answer:
    """Composite and spare, floors, occupied places."""
    if case.sight is Sight.STARTING:
        # Demand is unknown until one of them serves: keep what was asked for, and for a while what
        # was answered before they all went back to starting.
        held = case.state.desired if _within_hold(case) and case.state.desired else 0
        given = Answer(max(case.reading.confirmed_starting, held), Reason.STARTING)
    else:
        given = _from_load(case)
    floors = case.floors
    given.raise_to(floors.schedule, Reason.SCHEDULE_FLOOR)
    given.raise_to(floors.forecast, Reason.FORECAST_FLOOR)
    if case.reading.occupied:
        if not given.desired:
            # Not zero: what hangs may be needed, and only the activity decides on zero (case V07).
            given.reason = Reason.OCCUPIED
        given.desired += case.reading.occupied
        given.guards.append(Guard.OCCUPIED)
    return given


def _from_load(case: Case) -> Answer:
    replicas = ceil((case.composite or 0.0) - DUST)
    if not replicas and case.reading.load is not None and case.reading.load.in_flight > 0:
        replicas = 1  # somebody serves it, whatever the signals make of so little
    reason = Reason.LOAD if replicas else Reason.IDLE if case.counts.total else Reason.NO_PODS
    given = Answer(replicas, reason)
    uncapped = max((r.needed for r in case.signals.values() if r.counted is not None), default=0.0)
    if ceil(uncapped - DUST) > replicas:
        given.guards.append(Guard.THROUGHPUT_CAP)
    if case.policy.spare_replicas and active(case) and case.counts.total:
        given.desired += case.policy.spare_replicas
        given.reason = Reason.SPARE
        given.guards.append(Guard.SPARE)
    return given


def _apply_down_ratio(case: Case, given: Answer) -> None:
    """Go down to N only if the composite is at most ``downRatio`` x N."""
    last, ratio = case.state.desired, case.policy.down_ratio
    if last is None or given.desired >= last or ratio >= 1.0 or case.composite is None:
        return
    added = case.policy.spare_replicas if Guard.SPARE in given.guards else 0
    added += case.reading.occupied if Guard.OCCUPIED in given.guards else 0
    lowest = ceil(case.composite / ratio - DUST) + added
    given.raise_to(min(last, lowest), Reason.DOWN_RATIO, Guard.DOWN_RATIO)


def _blind(case: Case) -> Answer:
    """Hold the last good value for a while; then say nothing rather than something false."""
    if case.state.desired is None or not _within_hold(case):
        return _without_data(case)
    given = Answer(case.state.desired, Reason.HOLD, guards=[Guard.HOLD])
    given.raise_to(case.floors.schedule, Reason.SCHEDULE_FLOOR)
    given.raise_to(case.floors.forecast, Reason.FORECAST_FLOOR)
    return _bounded(case, given)


def _without_data(case: Case) -> Answer:
    """A floor above what runs stays answerable: an outage at 08:56 must not lose the spike."""
    floor, running = case.floors.highest, _current_replicas(case)
    if floor and (running is None or floor > running):
        return _bounded(case, Answer(floor, Reason.FLOOR_ONLY))
    reason, text = case.trouble or (Reason.NO_DATA, "no data")
    return Answer(case.state.desired or 0, reason, valid=False, message=text)


def _current_replicas(case: Case) -> int | None:
    if case.snapshot.current_replicas is not None:
        return case.snapshot.current_replicas
    return case.counts.total if case.snapshot.discovery_error is None else case.state.desired


def _within_hold(case: Case) -> bool:
    seen = case.state.sighted_at
    return seen is not None and case.at - seen <= case.policy.hold_seconds


def _bounded(case: Case, given: Answer) -> Answer:
    policy = case.policy
    given.raise_to(policy.min_replicas, Reason.MIN_REPLICAS, Guard.MIN_REPLICAS)
    if policy.max_replicas is not None and given.desired > policy.max_replicas:
        given.desired, given.reason = policy.max_replicas, Reason.MAX_REPLICAS
        given.guards.append(Guard.MAX_REPLICAS)
    return given
