"""What was decided, and what settled it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler.core.model import Guard, Reason
from scaler.exporter.family import Family, label_value, one, pods_are_known

if TYPE_CHECKING:
    from scaler.exporter.family import Points, Scene


def _reasons(scene: Scene) -> Points:
    return (((reason,), float(reason is scene.decision.reason)) for reason in Reason)


def _guards(scene: Scene) -> Points:
    return (((guard,), float(guard in scene.decision.guards)) for guard in Guard)


def _needed(scene: Scene) -> Points:
    return (((name,), reading.needed) for name, reading in scene.decision.signals.items())


def _counted(scene: Scene) -> Points:
    return (((name,), reading.counted) for name, reading in scene.decision.signals.items())


def _oldest_sample(scene: Scene) -> float | None:
    age = scene.decision.oldest_sample_age
    return None if age is None else age + scene.age


def _floors(scene: Scene) -> Points:
    floors = scene.decision.floors
    return ((("schedule",), floors.schedule), (("forecast",), floors.forecast))


def _floor_unmet(scene: Scene) -> float | None:
    """K18: the HPA's tolerance can leave the fleet short of a floor, silently."""
    if not pods_are_known(scene.decision):
        return None
    counts = scene.decision.counts
    return max(0, scene.decision.floors.highest - counts.ready - counts.starting)


def _model(scene: Scene) -> Points:
    if scene.decision.model is not None:
        yield (label_value(scene.decision.model),), 1


DECISION = (
    Family(
        "desired_replicas",
        "Replicas that KEDA is told. Absent while the decision is invalid.",
        one(lambda s: s.decision.desired if s.decision.valid else None),
    ),
    Family(
        "decision_valid",
        "1 when KEDA gets a number, 0 when it gets an error and its fallback works.",
        one(lambda s: float(s.decision.valid)),
        undecided=0,
    ),
    Family(
        "active",
        "1 when KEDA is told that the scale target must not be scaled to zero.",
        one(lambda s: float(s.decision.active)),
    ),
    Family(
        "decision_reason",
        "State set: 1 for the reason that set the number, or why there is none; 0 for all others.",
        _reasons,
        ("reason",),
    ),
    Family(
        "decision_guard",
        "State set: 1 for each rule that changed the number on its way out; 0 for all others.",
        _guards,
        ("guard",),
    ),
    Family("decision_age_seconds", "Time since the decision was made.", one(lambda s: s.age)),
    Family(
        "oldest_sample_age_seconds",
        "Age of the oldest sample that the decision rests on.",
        one(_oldest_sample),
    ),
    Family(
        "needed_replicas",
        "Replicas that each signal needs, before anything caps it.",
        _needed,
        ("signal",),
    ),
    Family(
        "counted_replicas",
        "Replicas with which each signal entered the composite. Absent when it did not count.",
        _counted,
        ("signal",),
    ),
    Family(
        "composite_replicas",
        "The largest counted signal.",
        one(lambda s: s.decision.composite),
    ),
    Family(
        "pressure_ratio",
        "The composite over the serving pods: 1 is exactly enough.",
        one(lambda s: s.decision.pressure),
    ),
    Family(
        "floor_replicas",
        "Least replicas that a schedule or a forecast asks for now.",
        _floors,
        ("source",),
    ),
    Family(
        "floor_unmet_replicas",
        "How far ready and starting pods are below the floor.",
        one(_floor_unmet),
    ),
    Family(
        "min_replicas",
        "The least replicas the trigger allows.",
        one(lambda s: s.policy.min_replicas),
    ),
    Family(
        "max_replicas",
        "The most replicas the trigger allows. Absent when it sets no bound.",
        one(lambda s: s.policy.max_replicas),
    ),
    Family(
        "infeasible_promise",
        "1 when the time to first token breaks the promise without a queue: no replica can help.",
        one(lambda s: float(s.decision.infeasible_promise)),
    ),
    Family(
        "replica_seconds_total",
        "Replicas times seconds, while the pods were watched.",
        one(lambda s: s.usage.replica_seconds),
    ),
    Family(
        "static_replica_seconds_total",
        "What a static fleet at max replicas would have used in the same time.",
        one(lambda s: s.usage.static_replica_seconds if s.policy.max_replicas else None),
    ),
    Family("model_info", "The model that the trigger watches.", _model, ("model",)),
)
