"""What a ScaledObject around our trigger gets right or wrong.

Each rule is a generator of remarks. KEDA's and the HPA's behaviour as read from their source:
KEDA v2.20, ``pkg/scalers/external_scaler.go``, ``pkg/fallback``; Kubernetes
``pkg/controller/podautoscaler``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scaler.config.durations import format_duration
from scaler.config.remarks import Level, Remark

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scaler.config.yaml_view import View
    from scaler.core.policy import TriggerPolicy

# KEDA's defaults.
MAX_REPLICA_COUNT = 100
COOLDOWN_SECONDS = 300

# With the HPA's tolerance of 10 %, a step of one is swallowed from ten replicas up.
_SWALLOWS_STEPS_FROM = 10
_LONG_POLL_SECONDS = 60
# Targets that see a load before it queues, or its promise as it breaks.
_TARGETS = frozenset({"targetInFlight", "targetTokenRate", "targetTtft", "targetQueueTime"})
_PAUSES = (
    "autoscaling.keda.sh/paused",
    "autoscaling.keda.sh/paused-replicas",
    "autoscaling.keda.sh/paused-scale-in",
    "autoscaling.keda.sh/paused-scale-out",
)


@dataclass(frozen=True, slots=True)
class Ours:
    """A trigger for this scaler. ``policy`` is None when its metadata is wrong."""

    trigger: View
    metadata: View
    policy: TriggerPolicy | None

    @property
    def floor(self) -> int:
        """The most that its schedule asks for."""
        windows = () if self.policy is None else self.policy.windows
        return max((window.desired_replicas for window in windows), default=0)


def remarks_on(document: View, ours: Sequence[Ours]) -> Iterator[Remark]:
    """Yield every remark on a ScaledObject that has triggers of ours."""
    spec = document.get("spec")
    yield from _whole_numbers(spec)
    for one in ours:
        yield from _bare(one)
        yield from _metric_type(one.trigger)
        yield from _cached(one.trigger)
        yield from _window_bounds(spec, one)
        yield from _cooldown(spec, one)
    yield from _fallback(spec)
    yield from _company(spec, ours)
    yield from _behavior(spec)
    yield from _rhythm(spec)
    yield from _paused(document)


def _warn(view: View, message: str, *, value: str = "") -> Remark:
    return Remark(view.line, Level.WARNING, view.path, value, message)


def _refuse(view: View, message: str, *, value: str = "") -> Remark:
    return Remark(view.line, Level.ERROR, view.path, value, message)


def _whole_numbers(spec: View) -> Iterator[Remark]:
    for path in (
        ("minReplicaCount",),
        ("maxReplicaCount",),
        ("idleReplicaCount",),
        ("pollingInterval",),
        ("cooldownPeriod",),
        ("fallback", "failureThreshold"),
        ("fallback", "replicas"),
    ):
        view = spec.get(*path)
        if view.present and view.whole is None:
            yield _refuse(view, "must be a whole number of 0 or more", value=view.text or "")


# --- the trigger ----------------------------------------------------------------------------------


def _bare(one: Ours) -> Iterator[Remark]:
    # One that cannot be read has a remark of its own.
    children = one.metadata.children()
    if not any(name in _TARGETS and view.text != "off" for name, view in children):
        yield _warn(
            one.metadata,
            "no target is set: 5 waiting requests a replica decides late and swings; "
            "give targetTtft, targetInFlight or targetTokenRate",
        )


def _metric_type(trigger: View) -> Iterator[Remark]:
    view = trigger.get("metricType")
    if view.text == "Utilization":
        message = "must be AverageValue: KEDA refuses Utilization for external triggers"
        yield _refuse(view, message, value=view.text)
    elif view.text == "Value":
        yield _warn(
            view,
            "multiplies the ready pods on every sync, so replicas run away while pods load; "
            "use AverageValue",
            value=view.text,
        )
    elif view.present and view.text != "AverageValue":
        yield _refuse(view, "must be AverageValue", value=view.text or "")


def _cached(trigger: View) -> Iterator[Remark]:
    view = trigger.get("useCachedMetrics")
    if view.text == "true":
        message = "delays each change by up to a polling interval; answers come from memory anyway"
        yield _warn(view, message, value=view.text)


# --- bounds and floors ----------------------------------------------------------------------------


def _window_bounds(spec: View, one: Ours) -> Iterator[Remark]:
    if not one.floor:
        return
    least = spec.get("minReplicaCount")
    if least.whole is not None and least.whole >= one.floor:
        message = f"is never below a window's floor, at most {one.floor}: the schedule does nothing"
        yield _warn(least, message, value=str(least.whole))
    if one.floor > _limit(spec):
        message = f"cuts off a window that asks for {one.floor}"
        yield _warn(spec.get("maxReplicaCount"), message, value=str(_limit(spec)))


def _limit(spec: View) -> int:
    most = spec.get("maxReplicaCount").whole
    return MAX_REPLICA_COUNT if most is None else most


def _cooldown(spec: View, one: Ours) -> Iterator[Remark]:
    if one.policy is None or spec.get("minReplicaCount").whole:
        return
    view = spec.get("cooldownPeriod")
    cooldown = COOLDOWN_SECONDS if view.whole is None else view.whole
    if cooldown < one.policy.cold_start:
        cold_start = format_duration(one.policy.cold_start)
        yield _warn(
            view,
            f"is shorter than a cold start ({cold_start}): a fleet at zero is taken down "
            "sooner than it could be back; cooldownPeriod only governs the way to zero",
            value=str(cooldown),
        )


# --- fallback -------------------------------------------------------------------------------------


def _fallback(spec: View) -> Iterator[Remark]:
    view = spec.get("fallback")
    if not view.present:
        yield _warn(
            view,
            "is missing: while the scaler cannot answer, nothing scales; set failureThreshold, "
            "replicas and behavior: currentReplicasIfHigher",
        )
        return
    for name in ("failureThreshold", "replicas"):
        if not view.get(name).present:
            yield _refuse(view.get(name), "is required by KEDA")
    replicas = view.get("replicas")
    if replicas.whole == 0:
        message = "lets KEDA scale to zero while the scaler cannot answer; use 1 or more"
        yield _warn(replicas, message, value="0")
    behavior = view.get("behavior")
    static = behavior.text in {None, "static"}
    if static and replicas.whole is not None and replicas.whole < _limit(spec):
        yield _warn(
            behavior,
            f"means {replicas.whole} whatever runs, so an outage takes a larger fleet "
            "down; use currentReplicasIfHigher",
            value="static",
        )


# --- what stands beside us ------------------------------------------------------------------------


def _company(spec: View, ours: Sequence[Ours]) -> Iterator[Remark]:
    for extra in ours[1:]:
        message = "is one more trigger for this scaler: the HPA takes the highest of them"
        yield _warn(extra.trigger, message)
    paths = {one.trigger.path for one in ours}
    for trigger in spec.get("triggers").items():
        kind = trigger.get("type")
        if trigger.path in paths or kind.text is None:
            continue
        if kind.text in {"cpu", "memory"}:
            message = "says little about a vLLM pod, and the HPA takes the higher of both"
        elif kind.text == "cron":
            message = (
                "joins by maximum and knows no lead time; "
                "write the window into this scaler's schedule"
            )
        else:
            message = "joins by maximum: this scaler alone cannot bring the replicas down"
        yield _warn(kind, message, value=kind.text)
    modifiers = spec.get("advanced", "scalingModifiers")
    if modifiers.get("formula").present:
        message = "replaces the answer by a formula, and ignores whether this scaler is active"
        yield _warn(modifiers, message)


# --- the HPA --------------------------------------------------------------------------------------


def _behavior(spec: View) -> Iterator[Remark]:
    behavior = spec.get("advanced", "horizontalPodAutoscalerConfig", "behavior")
    window = behavior.get("scaleDown", "stabilizationWindowSeconds")
    if not window.present:
        yield _warn(
            window,
            "is missing: how long the HPA waits before it goes down is then 300 s by default; "
            "write down what you mean (cooldownPeriod is something else)",
        )
    if _limit(spec) < _SWALLOWS_STEPS_FROM:
        return
    for direction in ("scaleUp", "scaleDown"):
        tolerance = behavior.get(direction, "tolerance")
        if not _is_zero(tolerance.text):
            yield _warn(
                tolerance,
                "should be 0: from ten replicas up the HPA's tolerance of 10 % swallows a step "
                "of one (Kubernetes 1.35, or 1.33 with HPAConfigurableTolerance)",
                value=tolerance.text or "",
            )


def _is_zero(text: str | None) -> bool:
    return text is not None and text.strip("0.m") == "" and "0" in text


def _rhythm(spec: View) -> Iterator[Remark]:
    polling = spec.get("pollingInterval")
    if polling.whole is not None and polling.whole > _LONG_POLL_SECONDS:
        message = "is how long a fleet at zero may sleep through a request; 30 is KEDA's default"
        yield _warn(polling, message, value=str(polling.whole))
    idle = spec.get("idleReplicaCount")
    if idle.present:
        message = "takes the fleet to idle whenever this scaler is inactive; only 0 works in KEDA"
        yield _warn(idle, message, value=idle.text or "")


def _paused(document: View) -> Iterator[Remark]:
    annotations = document.get("metadata", "annotations")
    for name, view in annotations.children():
        if name in _PAUSES and view.text != "false":
            yield _warn(view, "stops KEDA from scaling this object", value=view.text or "")
