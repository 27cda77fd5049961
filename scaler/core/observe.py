"""One pod's newest sample against its memory: what changed, and why it may say nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler.core.delta import NOTHING, Delta, delta
from scaler.core.model import Count, PodLife, ScrapeCause, ScrapeFailure
from scaler.core.state import PodMemory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scaler.core.model import ModelSample, PodObservation, PodSample


def choose_model(
    pods: Sequence[PodObservation],
    wanted: str | None,
    known: str | None,
    *,
    fresh_since: float,
) -> tuple[str | None, tuple[str, ...]]:
    """Return the model to read, and all models where that choice is the user's to make.

    Only pods that answered since ``fresh_since`` (monotonic) and are not leaving have a say: a dead
    pod must not blind the fleet to the model that replaced its own. Without any, ``known`` stays.
    """
    if wanted is not None:
        return wanted, ()
    names = {
        name
        for pod in pods
        if pod.sample is not None
        and pod.sampled_at is not None
        and pod.sampled_at >= fresh_since
        and pod.life is not PodLife.TERMINATING
        for name in pod.sample.models
    }
    if len(names) > 1:
        return None, tuple(sorted(names))
    return next(iter(names), known), ()


def remember(
    observation: PodObservation, memories: Mapping[str, PodMemory], model: str | None, now: float
) -> tuple[PodMemory, Delta | None, ScrapeFailure | None]:
    """Return the pod's memory after this observation, what changed, and why it has no data."""
    memory = memories.get(observation.pod) or PodMemory(first_seen=now)
    sample, sampled_at = observation.sample, observation.sampled_at
    if sample is None or sampled_at is None or sampled_at == memory.sampled_at:
        return memory, None, observation.failure
    restarted = _restarted(memory.process_start, sample.process_start)
    picked = _pick(sample, model, memory.sample, restarted=restarted)
    if isinstance(picked, ScrapeFailure):
        return memory, None, picked
    change = None
    moved = True
    if memory.sample is not None and memory.sampled_at is not None:
        change = delta(memory.sample, picked, memory.sampled_at, sampled_at, restarted=restarted)
        moved = bool(restarted) or _moved(memory.sample, picked)
    idle = picked.running + picked.waiting == 0
    moved_at = sampled_at if moved or idle else memory.moved_at
    newer = PodMemory(memory.first_seen, picked, sampled_at, moved_at, sample.process_start)
    return newer, change, observation.failure


def _pick(
    sample: PodSample, model: str | None, before: ModelSample | None, *, restarted: bool | None
) -> ModelSample | ScrapeFailure:
    if not sample.models:
        # Families declared, nothing served yet: idle. A process that has served keeps its series.
        if restarted is False and before is not None and any(before.counts.values()):
            text = "the series of a pod that has served are gone"
            return ScrapeFailure(ScrapeCause.NO_VLLM_METRICS, text)
        return NOTHING
    picked = None if model is None else sample.models.get(model)
    if picked is not None:
        return picked
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
