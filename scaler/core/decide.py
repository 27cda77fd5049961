"""The decision: (snapshot, state, policy, now) -> (Decision, ScalerState).

The order of the steps is DESIGN's: composite and spare, floors, pods that hold a place without
serving, ``downRatio``, the missing-data rules, bounds. Each step that changes the number says so.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from math import ceil
from typing import TYPE_CHECKING

from scaler.core.floors import read_floors
from scaler.core.measure import measure, waiting_since
from scaler.core.model import Decision, Guard, PodState, Reason
from scaler.core.pods import read_pods
from scaler.core.signal import SignalInputs, binding, read_signals
from scaler.core.state import ScalerState, initial_state

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scaler.core.model import (
        FleetView,
        Floors,
        Now,
        PodCounts,
        Signal,
        SignalReading,
        Snapshot,
    )
    from scaler.core.pods import FleetReading
    from scaler.core.policy import TriggerPolicy

__all__ = ["decide", "initial_state"]

# Float dust from adding loads must not buy a GPU.
DUST = 1e-9


class Sight(Enum):
    """How much of the fleet is seen."""

    CLEAR = "clear"  # a quorum of ready pods has fresh data
    EMPTY = "empty"  # no pod is expected to serve: a legal state
    STARTING = "starting"  # none serves yet, some will
    PARTIAL = "partial"  # below quorum
    BLIND = "blind"


_SIGHTED = frozenset({Sight.CLEAR, Sight.EMPTY, Sight.STARTING})


@dataclass(frozen=True, slots=True)
class _Case:
    """Everything the answer depends on, gathered once."""

    snapshot: Snapshot
    state: ScalerState
    policy: TriggerPolicy
    reading: FleetReading
    signals: Mapping[Signal, SignalReading]
    binding: Signal | None
    composite: float | None
    sight: Sight
    trouble: tuple[Reason, str] | None
    floors: Floors
    active: bool
    at: float

    @property
    def counts(self) -> PodCounts:
        return self.reading.counts


@dataclass(slots=True)
class _Answer:
    """The number on its way out, with the reason and the guards so far."""

    desired: int
    reason: Reason
    valid: bool = True
    message: str = ""
    guards: list[Guard] = field(default_factory=list)

    def raise_to(self, least: int, reason: Reason, guard: Guard | None = None) -> None:
        if least > self.desired:
            self.desired, self.reason = least, reason
            if guard is not None:
                self.guards.append(guard)


def decide(
    snapshot: Snapshot, state: ScalerState, policy: TriggerPolicy, now: Now
) -> tuple[Decision, ScalerState]:
    """Return the answer for this snapshot, and the memory for the next one. Pure."""
    at = now.monotonic
    reading = read_pods(snapshot, state.pods, policy, at)
    window = state.window.push(reading.deltas, at)
    since = waiting_since(state.waiting_since, reading.load, at)
    fleet, first_token_rate = measure(reading, window, since, state.tokens_per_request, policy, at)
    signals, infeasible = read_signals(
        SignalInputs(
            fleet=fleet,
            kv_used=None if reading.load is None else reading.load.kv_used,
            serving=reading.counts.serving,
            first_token_rate=first_token_rate,
            complete=reading.counts.fresh == reading.counts.ready,
        ),
        policy,
    )
    bound, composite = binding(signals)
    sight, trouble = _look(snapshot, reading, policy)
    demand = composite if sight in (Sight.CLEAR, Sight.EMPTY) else None
    floors, schedule, spike = read_floors(snapshot, state, policy, demand, now)
    busy_at = at if _busy(reading) else state.busy_at
    active = _active(snapshot, reading, policy, state, sight, floors, busy_at, at)
    case = _Case(
        snapshot, state, policy, reading, signals, bound, composite,
        sight, trouble, floors, active, at,
    )  # fmt: skip
    answer = _answer(case)
    seen = sight in _SIGHTED
    remembered = ScalerState(
        window=window,
        pods=reading.memories,
        desired=answer.desired if seen or answer.reason is Reason.BELOW_QUORUM else state.desired,
        sighted_at=at if seen else state.sighted_at,
        active=active,
        busy_at=busy_at,
        waiting_since=since,
        tokens_per_request=fleet.tokens_per_request or state.tokens_per_request,
        peak_running=_peak_running(reading, state.peak_running),
        schedule=schedule,
        spike=spike,
    )
    return _publish(case, answer, fleet, infeasible, now), remembered


# --- what is seen ---------------------------------------------------------------------------------


def _look(
    snapshot: Snapshot, reading: FleetReading, policy: TriggerPolicy
) -> tuple[Sight, tuple[Reason, str] | None]:
    """Say how much is seen, and what is wrong when that is not enough."""
    counts = reading.counts
    if snapshot.discovery_error is not None:
        text = f"cannot list pods: {snapshot.discovery_error}"
        return Sight.BLIND, (Reason.CANNOT_LIST_PODS, text)
    if reading.models:
        text = f"the pods serve several models ({', '.join(reading.models)}): set `model` to one"
        return Sight.BLIND, (Reason.AMBIGUOUS_MODEL, text)
    if counts.ready == 0:
        return _look_without_ready_pods(reading)
    if counts.fresh == 0:
        return Sight.BLIND, (Reason.NO_DATA, _usable(reading))
    if counts.fresh < policy.quorum * counts.ready:
        text = f"{_usable(reading)}, quorum {policy.quorum:.0%}"
        return Sight.PARTIAL, (Reason.QUORUM_LOST, text)
    return Sight.CLEAR, None


def _look_without_ready_pods(reading: FleetReading) -> tuple[Sight, tuple[Reason, str] | None]:
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
    counts = reading.counts
    text = f"{counts.fresh}/{counts.ready} targets usable"
    for view in reading.views:
        if view.state in (PodState.STALE, PodState.MISSING):
            why = "not scraped yet" if view.failure is None else view.failure.detail
            return f"{text} ({view.pod}: {why})"
    return text


def _busy(reading: FleetReading) -> bool:
    """Whether work is in flight, or was served between two scrapes that both saw none."""
    in_flight = reading.load is not None and reading.load.in_flight > 0
    return in_flight or any(change.moved for change in reading.deltas)


def _active(
    snapshot: Snapshot,
    reading: FleetReading,
    policy: TriggerPolicy,
    state: ScalerState,
    sight: Sight,
    floors: Floors,
    busy_at: float | None,
    at: float,
) -> bool:
    """Answer the 0 to 1 question; it has an answer even when the number has none."""
    if floors.highest > 0 or policy.min_replicas > 0 or snapshot.waking:
        return True
    if sight is Sight.BLIND:
        if state.active is not None:
            return state.active
        return reading.counts.total > 0 or snapshot.discovery_error is not None
    if reading.counts.starting:
        return True
    return busy_at is not None and at - busy_at <= policy.active_hold


def _peak_running(reading: FleetReading, before: float | None) -> float | None:
    """Return the most requests one pod was seen to run while others waited there."""
    seen = [
        view.running
        for view in reading.views
        if view.state is PodState.FRESH and view.running is not None and view.waiting
    ]
    return max(seen if before is None else [before, *seen], default=None)


# --- the number -----------------------------------------------------------------------------------


def _answer(case: _Case) -> _Answer:
    if case.sight is Sight.BLIND:
        return _blind(case)
    answer = _recommend(case)
    _apply_down_ratio(case, answer)
    if case.sight is Sight.PARTIAL:
        if not _within_hold(case):
            return _without_data(case)
        if case.state.desired is not None and case.state.desired >= answer.desired:
            answer.desired, answer.reason = case.state.desired, Reason.BELOW_QUORUM
            answer.guards.append(Guard.UP_ONLY)
    return _bounded(case, answer)


def _recommend(case: _Case) -> _Answer:
    """Composite and spare, floors, occupied places."""
    if case.sight is Sight.STARTING:
        # Demand is unknown until one of them serves: keep what was asked for.
        answer = _Answer(case.reading.confirmed_starting, Reason.STARTING)
    else:
        answer = _from_load(case)
    floors = case.floors
    answer.raise_to(floors.schedule, Reason.SCHEDULE_FLOOR)
    answer.raise_to(floors.forecast, Reason.FORECAST_FLOOR)
    if answer.desired and case.reading.occupied:
        answer.desired += case.reading.occupied
        answer.guards.append(Guard.OCCUPIED)
    return answer


def _from_load(case: _Case) -> _Answer:
    replicas = ceil((case.composite or 0.0) - DUST)
    reason = Reason.LOAD if replicas else Reason.IDLE if case.counts.total else Reason.NO_PODS
    answer = _Answer(replicas, reason)
    uncapped = max((r.needed for r in case.signals.values() if r.counted is not None), default=0.0)
    if ceil(uncapped - DUST) > replicas:
        answer.guards.append(Guard.THROUGHPUT_CAP)
    if case.policy.spare_replicas and case.active and case.counts.total:
        answer.desired += case.policy.spare_replicas
        answer.reason = Reason.SPARE
        answer.guards.append(Guard.SPARE)
    return answer


def _apply_down_ratio(case: _Case, answer: _Answer) -> None:
    """Go down to N only if the composite is at most ``downRatio`` x N."""
    last, ratio = case.state.desired, case.policy.down_ratio
    if last is None or answer.desired >= last or ratio >= 1.0 or case.composite is None:
        return
    added = case.policy.spare_replicas if Guard.SPARE in answer.guards else 0
    added += case.reading.occupied if Guard.OCCUPIED in answer.guards else 0
    lowest = ceil(case.composite / ratio - DUST) + added
    answer.raise_to(min(last, lowest), Reason.DOWN_RATIO, Guard.DOWN_RATIO)


def _blind(case: _Case) -> _Answer:
    """Hold the last good value for a while; then say nothing rather than something false."""
    if case.state.desired is None or not _within_hold(case):
        return _without_data(case)
    answer = _Answer(case.state.desired, Reason.HOLD, guards=[Guard.HOLD])
    answer.raise_to(case.floors.schedule, Reason.SCHEDULE_FLOOR)
    answer.raise_to(case.floors.forecast, Reason.FORECAST_FLOOR)
    return _bounded(case, answer)


def _without_data(case: _Case) -> _Answer:
    """A floor above what runs stays answerable: an outage at 08:56 must not lose the spike."""
    floor, running = case.floors.highest, _current_replicas(case)
    if floor and (running is None or floor > running):
        return _bounded(case, _Answer(floor, Reason.FLOOR_ONLY))
    reason, text = case.trouble or (Reason.NO_DATA, "no data")
    return _Answer(case.state.desired or 0, reason, valid=False, message=text)


def _current_replicas(case: _Case) -> int | None:
    if case.snapshot.current_replicas is not None:
        return case.snapshot.current_replicas
    return case.counts.total if case.snapshot.discovery_error is None else case.state.desired


def _within_hold(case: _Case) -> bool:
    seen = case.state.sighted_at
    return seen is not None and case.at - seen <= case.policy.hold_seconds


def _bounded(case: _Case, answer: _Answer) -> _Answer:
    policy = case.policy
    answer.raise_to(policy.min_replicas, Reason.MIN_REPLICAS, Guard.MIN_REPLICAS)
    if policy.max_replicas is not None and answer.desired > policy.max_replicas:
        answer.desired, answer.reason = policy.max_replicas, Reason.MAX_REPLICAS
        answer.guards.append(Guard.MAX_REPLICAS)
    return answer


# --- the published answer -------------------------------------------------------------------------


def _publish(
    case: _Case, answer: _Answer, fleet: FleetView, infeasible: bool, now: Now
) -> Decision:
    serving = case.counts.serving
    composite = case.composite if case.sight in _SIGHTED else None
    return Decision(
        sequence=case.snapshot.sequence,
        at=now,
        valid=answer.valid,
        desired=answer.desired,
        active=case.active,
        reason=answer.reason,
        message=answer.message or (case.trouble[1] if case.trouble else ""),
        binding=case.binding,
        composite=composite,
        pressure=composite / serving if composite is not None and serving else None,
        signals=case.signals,
        guards=tuple(answer.guards),
        floors=case.floors,
        counts=case.counts,
        fleet=fleet,
        pods=case.reading.views,
        model=case.reading.model,
        notes=_notes(case, infeasible),
        infeasible_promise=infeasible,
        oldest_sample_age=case.reading.oldest_age,
    )


def _notes(case: _Case, infeasible: bool) -> tuple[str, ...]:
    notes = []
    if infeasible:
        notes.append(
            "infeasible_promise: TTFT is over targetTtft although nothing queues; "
            "more replicas cannot help"
        )
    peak, target = case.state.peak_running, case.policy.target_in_flight
    if peak is not None and target is not None and target > peak and case.counts.serving:
        notes.append(
            f"targetInFlight {target:g} is above the {peak:g} requests a pod was seen to run "
            "while others waited: it is reached late"
        )
    if case.floors.released:
        notes.append(f"released: the spike of {case.floors.window} did not come")
    return tuple(notes)
