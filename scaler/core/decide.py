"""The decision: (snapshot, state, policy, now) -> (Decision, ScalerState)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler.core.answer import Case, active, answer
from scaler.core.floors import read_floors
from scaler.core.measure import measure, waiting_since
from scaler.core.model import Decision, PodState, Reason
from scaler.core.pods import read_pods
from scaler.core.sight import SIGHTED, Sight, look
from scaler.core.signal import SignalInputs, binding, read_signals
from scaler.core.state import ScalerState, initial_state

if TYPE_CHECKING:
    from scaler.core.answer import Answer
    from scaler.core.model import Now, Snapshot
    from scaler.core.pods import FleetReading
    from scaler.core.policy import TriggerPolicy

__all__ = ["decide", "initial_state"]


def decide(
    snapshot: Snapshot, state: ScalerState, policy: TriggerPolicy, now: Now
) -> tuple[Decision, ScalerState]:
    """Return the answer for this snapshot, and the memory for the next one. Pure."""
    at = now.monotonic
    reading = read_pods(snapshot, state, policy, at)
    window = state.window.push(reading.deltas, at)
    since = waiting_since(state.waiting_since, reading.load, at)
    fleet, pace = measure(
        reading, window, policy, at, since=since, known_tokens=state.tokens_per_request
    )
    inputs = SignalInputs(
        fleet=fleet,
        pace=pace,
        kv_used=None if reading.load is None else reading.load.kv_used,
        serving=reading.counts.serving,
        complete=reading.counts.fresh == reading.counts.ready,
    )
    signals, infeasible = read_signals(inputs, policy)
    bound, composite = binding(signals)
    sight, trouble = look(snapshot, reading, policy, composite)
    # Where no pod can show demand, its absence is no sign that a spike stayed away.
    seen = sight is Sight.CLEAR and reading.counts.serving > 0
    demand = composite if seen else None
    floors, schedule, spikes = read_floors(snapshot, state, policy, demand, now)
    case = Case(
        snapshot=snapshot,
        state=state,
        policy=policy,
        reading=reading,
        signals=signals,
        composite=composite,
        sight=sight,
        trouble=trouble,
        floors=floors,
        busy_at=at if _busy(reading) else state.busy_at,
        at=at,
    )
    given = answer(case)
    decision = Decision(
        sequence=snapshot.sequence,
        at=now,
        valid=given.valid,
        desired=given.desired,
        active=active(case),
        reason=given.reason,
        message=given.message or (trouble[1] if trouble else ""),
        binding=bound,
        composite=composite if sight in SIGHTED else None,
        pressure=_pressure(case),
        signals=signals,
        guards=tuple(given.guards),
        floors=floors,
        counts=reading.counts,
        fleet=fleet,
        pods=reading.views,
        model=reading.model,
        notes=_notes(case, infeasible=infeasible),
        infeasible_promise=infeasible,
        oldest_sample_age=reading.oldest_age,
        resets=reading.resets,
    )
    remembered = ScalerState(
        window=window,
        # Pods that cannot be listed are not gone.
        pods=state.pods if snapshot.discovery_error is not None else reading.memories,
        desired=given.desired if _rests_on_data(case, given) else state.desired,
        sighted_at=at if sight in (Sight.CLEAR, Sight.EMPTY) else state.sighted_at,
        active=decision.active,
        busy_at=case.busy_at,
        waiting_since=since,
        tokens_per_request=fleet.tokens_per_request or state.tokens_per_request,
        model=reading.model or state.model,
        peak_running=_peak_running(reading, state.peak_running),
        schedule=schedule,
        schedule_lead=policy.lead(snapshot.learned_cold_start),
        spikes=spikes,
    )
    return decision, remembered


def _rests_on_data(case: Case, given: Answer) -> bool:
    if case.sight is Sight.PARTIAL:
        return given.valid and given.reason is not Reason.FLOOR_ONLY
    return case.sight in SIGHTED


def _pressure(case: Case) -> float | None:
    """The composite over the pods that serve; None where either is unknown."""
    if case.sight not in SIGHTED or case.composite is None or not case.counts.serving:
        return None
    return case.composite / case.counts.serving


def _busy(reading: FleetReading) -> bool:
    """Whether work is in flight, or was served between two scrapes that both saw none."""
    in_flight = reading.load is not None and reading.load.in_flight > 0
    return in_flight or any(change.moved for change in reading.deltas)


def _peak_running(reading: FleetReading, before: float | None) -> float | None:
    """Return the most requests one pod was seen to run while others waited there."""
    seen = [
        view.running
        for view in reading.views
        if view.state is PodState.FRESH and view.running is not None and view.waiting
    ]
    return max(seen if before is None else [before, *seen], default=None)


def _notes(case: Case, *, infeasible: bool) -> tuple[str, ...]:
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
        notes.append("released: a window is open whose spike did not come")
    return tuple(notes)
