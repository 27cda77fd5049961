"""From observations to readings: which pods count, as what, and with which numbers.

The missing-data rules of a single pod live here, beside the lines that apply them. What the fleet
may answer while pods are missing is decided in ``decide.py``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scaler.core.delta import NOTHING, Delta
from scaler.core.model import (
    ModelSample,
    PodCounts,
    PodLife,
    PodObservation,
    PodState,
    PodView,
    ScrapeCause,
    ScrapeFailure,
)
from scaler.core.observe import choose_model, remember

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scaler.core.model import Snapshot
    from scaler.core.policy import TriggerPolicy
    from scaler.core.state import PodMemory, ScalerState

# How many cold starts a pod may take before it is plainly stuck.
OVERDUE_COLD_STARTS = 3

_NOT_SERVING = {
    PodLife.STARTING: PodState.STARTING,
    PodLife.UNSCHEDULABLE: PodState.UNSCHEDULABLE,
    PodLife.CRASH_LOOPING: PodState.CRASH_LOOPING,
    PodLife.OVERDUE: PodState.OVERDUE,
    PodLife.TERMINATING: PodState.TERMINATING,
}
_WITHOUT_DATA = frozenset({PodState.STALE, PodState.MISSING})
_EXPECTED = _WITHOUT_DATA | {PodState.FRESH, PodState.STALLED}
# Pods that are known to carry no load that another replica could serve.
_WITHOUT_LOAD = frozenset({PodState.SLEEPING, PodState.STALLED, PodState.TERMINATING})
# What a pod that stands in one of these states still holds: a place (and a GPU) without serving.
_OCCUPYING = frozenset({PodState.STALLED, PodState.CRASH_LOOPING})


@dataclass(frozen=True, slots=True)
class Load:
    """The fleet's gauges, with pods that lack data filled in. ``kv_used`` is ΣK of busy pods."""

    running: float
    waiting: float
    waiting_by_reason: Mapping[str, float]
    kv_used: float | None
    kv_mean: float | None
    kv_max: float | None

    @property
    def in_flight(self) -> float:
        """Running and waiting requests."""
        return self.running + self.waiting


@dataclass(frozen=True, slots=True)
class FleetReading:
    """All pods, read.

    ``load`` is None when no pod has usable data. ``models`` lists what the pods serve when that is
    ambiguous. ``confirmed_starting`` counts starting pods that the discovery itself reported, not
    those merely inferred from a refused connection.
    """

    views: tuple[PodView, ...]
    counts: PodCounts
    memories: Mapping[str, PodMemory]
    deltas: tuple[Delta, ...]
    load: Load | None
    model: str | None = None
    models: tuple[str, ...] = ()
    confirmed_starting: int = 0
    occupied: int = 0
    oldest_age: float | None = None
    resets: int = 0


@dataclass(frozen=True, slots=True)
class _Limits:
    """How long a pod may be silent, frozen or loading before it counts as such, seconds."""

    fresh_for: float
    stall_after: float
    patience: float

    @classmethod
    def of(cls, snapshot: Snapshot, policy: TriggerPolicy) -> _Limits:
        cold_start = snapshot.learned_cold_start or policy.cold_start
        return cls(snapshot.fresh_for, policy.stall_after, OVERDUE_COLD_STARTS * cold_start)


@dataclass(slots=True)
class _Gathered:
    """What reading the pods one after the other collects."""

    views: list[PodView] = field(default_factory=list)
    memories: dict[str, PodMemory] = field(default_factory=dict)
    deltas: list[Delta] = field(default_factory=list)
    fresh: list[ModelSample] = field(default_factory=list)
    held: list[ModelSample] = field(default_factory=list)  # stale, but within the hold
    frozen: int = 0  # of those, the ones that hung before they fell silent
    unknown: int = 0  # expected pods to be filled with the fleet's mean


def read_pods(
    snapshot: Snapshot, state: ScalerState, policy: TriggerPolicy, now: float
) -> FleetReading:
    """Return every pod's state and the fleet's load at ``now`` (monotonic seconds).

    A ready pod without data counts with its last value for ``holdSeconds`` and then with the
    fleet's mean: a level may be replayed, and a pod that stopped answering under load is not idle.
    """
    model, models = choose_model(
        snapshot.pods, policy.model, state.model, fresh_since=now - snapshot.fresh_for
    )
    limits = _Limits.of(snapshot, policy)
    gathered = _Gathered()
    confirmed = 0
    for observation in snapshot.pods:
        memory, change, failure = remember(observation, state.pods, model, now)
        gathered.memories[observation.pod] = memory
        if change is not None:
            gathered.deltas.append(change)
        stands = _state(observation, memory, failure, limits, now)
        confirmed += stands is PodState.STARTING and observation.life is PodLife.STARTING
        _gather(gathered, stands, memory, policy, now)
        gathered.views.append(_view(observation, stands, memory, failure, now))
    return FleetReading(
        views=tuple(gathered.views),
        counts=_count([view.state for view in gathered.views]),
        memories=gathered.memories,
        deltas=tuple(gathered.deltas),
        load=None if snapshot.discovery_error is not None else _load(gathered),
        resets=sum(change.reset for change in gathered.deltas),
        model=model,
        models=models,
        confirmed_starting=confirmed,
        occupied=gathered.frozen + sum(view.state in _OCCUPYING for view in gathered.views),
        oldest_age=max(
            (v.age for v in gathered.views if v.state in _EXPECTED and v.age is not None),
            default=None,
        ),
    )


def _state(
    observation: PodObservation,
    memory: PodMemory,
    failure: ScrapeFailure | None,
    limits: _Limits,
    now: float,
) -> PodState:
    not_serving = _NOT_SERVING.get(observation.life)
    if not_serving is not None:
        return not_serving
    if memory.sample is None or memory.sampled_at is None:
        return _state_of_unseen(observation, memory, failure, limits, now)
    if now - memory.sampled_at > limits.fresh_for:
        return PodState.STALE
    if memory.sample.sleeping:
        return PodState.SLEEPING
    return PodState.STALLED if _is_frozen(memory, limits.stall_after) else PodState.FRESH


def _is_frozen(memory: PodMemory, stall_after: float) -> bool:
    """Whether the gauges stood still: no demand and no capacity (vllm #22545, case V07)."""
    sampled, moved = memory.sampled_at, memory.moved_at
    return sampled is not None and moved is not None and sampled - moved > stall_after


def _state_of_unseen(
    observation: PodObservation,
    memory: PodMemory,
    failure: ScrapeFailure | None,
    limits: _Limits,
    now: float,
) -> PodState:
    """A static endpoint that refuses connections and never answered is loading, for a while."""
    refused = failure is not None and failure.cause is ScrapeCause.REFUSED
    patient = now - memory.first_seen <= limits.patience
    if observation.life is PodLife.UNKNOWN and refused and patient:
        return PodState.STARTING
    return PodState.MISSING


def _gather(
    gathered: _Gathered, state: PodState, memory: PodMemory, policy: TriggerPolicy, now: float
) -> None:
    if state is PodState.FRESH and memory.sample is not None:
        gathered.fresh.append(memory.sample)
    elif state in _WITHOUT_DATA:
        seen = memory.sampled_at
        if memory.sample is not None and seen is not None and now - seen <= policy.hold_seconds:
            frozen = _is_frozen(memory, policy.stall_after)
            # The gauges of a sleeping or frozen engine say nothing of its load.
            quiet = frozen or memory.sample.sleeping
            gathered.held.append(NOTHING if quiet else memory.sample)
            gathered.frozen += frozen
        else:
            gathered.unknown += 1


def _view(
    observation: PodObservation,
    state: PodState,
    memory: PodMemory,
    failure: ScrapeFailure | None,
    now: float,
) -> PodView:
    sample = memory.sample
    newest = observation.sample
    return PodView(
        pod=observation.pod,
        state=state,
        running=None if sample is None else sample.running,
        waiting=None if sample is None else sample.waiting,
        kv_usage=None if sample is None else sample.kv_usage,
        age=None if memory.sampled_at is None else max(0.0, now - memory.sampled_at),
        failure=failure,
        rejected={} if newest is None else newest.rejected,
        missing=frozenset() if newest is None else newest.missing,
        kv_name=None if newest is None else newest.kv_name,
    )


def _count(states: Sequence[PodState]) -> PodCounts:
    of = Counter(states)
    return PodCounts(
        total=len(states) - of[PodState.TERMINATING],
        ready=sum([of[state] for state in _EXPECTED]),
        fresh=of[PodState.FRESH] + of[PodState.STALLED],
        starting=of[PodState.STARTING],
        unschedulable=of[PodState.UNSCHEDULABLE],
        crash_looping=of[PodState.CRASH_LOOPING],
        overdue=of[PodState.OVERDUE],
        sleeping=of[PodState.SLEEPING],
        stalled=of[PodState.STALLED],
        terminating=of[PodState.TERMINATING],
    )


def _load(gathered: _Gathered) -> Load | None:
    known = gathered.fresh + gathered.held
    if not known:
        # No pod at all, or only such as are known to carry nothing, is zero; the rest is unknown.
        idle = all(view.state in _WITHOUT_LOAD for view in gathered.views)
        return Load(0.0, 0.0, {}, None, None, None) if idle else None
    reasons: dict[str, float] = {}
    for sample in known:
        for reason, value in sample.waiting_by_reason.items():
            reasons[reason] = reasons.get(reason, 0.0) + value
    usages = [sample.kv_usage for sample in known if sample.kv_usage is not None]
    means = gathered.fresh or known
    return Load(
        running=_filled([s.running for s in known], [s.running for s in means], gathered.unknown),
        waiting=_filled([s.waiting for s in known], [s.waiting for s in means], gathered.unknown),
        waiting_by_reason=reasons,
        kv_used=_kv_used(known, gathered.unknown),
        kv_mean=sum(usages) / len(usages) if usages else None,
        kv_max=max(usages, default=None),
    )


def _filled(known: Sequence[float], means: Sequence[float], unknown: int) -> float:
    """Add up what is known, and the mean for each pod of which nothing is known."""
    return sum(known) + unknown * sum(means) / len(means)


def _kv_used(known: Sequence[ModelSample], unknown: int) -> float | None:
    """Add up KV use, the mean standing in for pods that do not tell; None: no pod tells.

    A pod with nothing in flight needs no KV, whatever its gauge says: old versions count the null
    block (production-stack #617), prefill pods hold blocks for a transfer (vllm #46283).
    """
    used = [
        sample.kv_usage if sample.running + sample.waiting > 0 else 0.0
        for sample in known
        if sample.kv_usage is not None
    ]
    if not used:
        return None
    return _filled(used, used, unknown + len(known) - len(used))
