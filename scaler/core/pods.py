"""From observations to readings: which pods count, as what, and with which numbers.

The missing-data rules of a single pod live here, beside the lines that apply them. What the fleet
may answer while pods are missing is decided in ``decide.py``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scaler.core.delta import NOTHING, Delta, delta
from scaler.core.model import (
    Count,
    ModelSample,
    PodCounts,
    PodLife,
    PodObservation,
    PodState,
    PodView,
    ScrapeCause,
    ScrapeFailure,
)
from scaler.core.state import PodMemory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scaler.core.model import PodSample, Snapshot
    from scaler.core.policy import TriggerPolicy

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


@dataclass(frozen=True, slots=True)
class _Limits:
    """How long a pod may be silent, frozen or loading before it counts as such, seconds."""

    fresh_for: float
    stall_after: float
    patience: float

    @classmethod
    def of(cls, snapshot: Snapshot, policy: TriggerPolicy) -> _Limits:
        return cls(snapshot.fresh_for, policy.stall_after, OVERDUE_COLD_STARTS * policy.cold_start)


@dataclass(slots=True)
class _Gathered:
    """What reading the pods one after the other collects."""

    views: list[PodView] = field(default_factory=list)
    memories: dict[str, PodMemory] = field(default_factory=dict)
    deltas: list[Delta] = field(default_factory=list)
    fresh: list[ModelSample] = field(default_factory=list)
    held: list[ModelSample] = field(default_factory=list)  # stale, but within the hold
    unknown: int = 0  # expected pods to be filled with the fleet's mean


def read_pods(
    snapshot: Snapshot, memories: Mapping[str, PodMemory], policy: TriggerPolicy, now: float
) -> FleetReading:
    """Return every pod's state and the fleet's load at ``now`` (monotonic seconds).

    A ready pod without data counts with its last value for ``holdSeconds`` and then with the
    fleet's mean: a level may be replayed, and a pod that stopped answering under load is not idle.
    """
    model, models = _choose_model(snapshot.pods, policy.model)
    limits = _Limits.of(snapshot, policy)
    gathered = _Gathered()
    confirmed = 0
    for observation in snapshot.pods:
        memory, change, failure = _remember(observation, memories, model, now)
        gathered.memories[observation.pod] = memory
        if change is not None:
            gathered.deltas.append(change)
        state = _state(observation, memory, failure, limits, now)
        confirmed += state is PodState.STARTING and observation.life is PodLife.STARTING
        _gather(gathered, state, memory, policy, now)
        gathered.views.append(_view(observation, state, memory, failure, now))
    return FleetReading(
        views=tuple(gathered.views),
        counts=_count([view.state for view in gathered.views]),
        memories=gathered.memories,
        deltas=tuple(gathered.deltas),
        load=None if snapshot.discovery_error is not None else _load(gathered),
        model=model,
        models=models,
        confirmed_starting=confirmed,
        occupied=sum(view.state in _OCCUPYING for view in gathered.views),
        oldest_age=max(
            (v.age for v in gathered.views if v.state in _EXPECTED and v.age is not None),
            default=None,
        ),
    )


def _choose_model(
    pods: Sequence[PodObservation], wanted: str | None
) -> tuple[str | None, tuple[str, ...]]:
    """Return the model to read, and all models where that choice is the user's to make."""
    if wanted is not None:
        return wanted, ()
    names = {name for pod in pods if pod.sample is not None for name in pod.sample.models}
    if len(names) > 1:
        return None, tuple(sorted(names))
    return next(iter(names), None), ()


def _remember(
    observation: PodObservation, memories: Mapping[str, PodMemory], model: str | None, now: float
) -> tuple[PodMemory, Delta | None, ScrapeFailure | None]:
    """Return the pod's memory after this observation, what changed, and why it has no data."""
    memory = memories.get(observation.pod) or PodMemory(first_seen=now)
    sample, sampled_at = observation.sample, observation.sampled_at
    if sample is None or sampled_at is None or sampled_at == memory.sampled_at:
        return memory, None, observation.failure
    picked = _pick(sample, model)
    if picked is None:
        return memory, None, _other_model(sample, model)
    change = None
    moved = True
    if memory.sample is not None and memory.sampled_at is not None:
        restarted = _restarted(memory.process_start, sample.process_start)
        change = delta(memory.sample, picked, memory.sampled_at, sampled_at, restarted=restarted)
        moved = bool(restarted) or _moved(memory.sample, picked)
    idle = picked.running + picked.waiting == 0
    moved_at = sampled_at if moved or idle else memory.moved_at
    newer = PodMemory(memory.first_seen, picked, sampled_at, moved_at, sample.process_start)
    return newer, change, observation.failure


def _pick(sample: PodSample, model: str | None) -> ModelSample | None:
    if not sample.models:
        return NOTHING  # families declared, nothing served yet: idle
    return sample.models.get(model) if model is not None else None


def _other_model(sample: PodSample, model: str | None) -> ScrapeFailure:
    served = ", ".join(sorted(sample.models))
    wanted = "no `model` is given" if model is None else f"the trigger wants {model!r}"
    return ScrapeFailure(ScrapeCause.OTHER_MODEL, f"serves {served}; {wanted}")


def _restarted(before: float | None, after: float | None) -> bool | None:
    """Whether the process is a new one; None when the server does not export its start."""
    if before is None or after is None:
        return None
    return abs(after - before) > 1.0


def _moved(before: ModelSample, after: ModelSample) -> bool:
    """Whether any counter moved.

    Finished requests and their histograms stand still for minutes under long answers; tokens do
    not. A body without token counters gives no reason to doubt its gauges (cases V07, V09).
    """
    if Count.GENERATION_TOKENS not in after.counts:
        return True
    if before.counts != after.counts:
        return True
    return any(
        kind not in before.latencies or before.latencies[kind].count != histogram.count
        for kind, histogram in after.latencies.items()
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
    if memory.sample.sleeping:
        return PodState.SLEEPING
    if now - memory.sampled_at > limits.fresh_for:
        return PodState.STALE
    # A pod whose gauges are frozen is no demand and no capacity (vllm #22545, case V07).
    frozen_for = memory.sampled_at - (memory.moved_at or memory.sampled_at)
    return PodState.STALLED if frozen_for > limits.stall_after else PodState.FRESH


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
            gathered.held.append(memory.sample)
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
        # Only frozen pods, or none that is expected to serve: they carry no demand.
        return None if gathered.unknown else Load(0.0, 0.0, {}, None, None, None)
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
