"""The exported families: one row each, with how it is read from a decision.

A reader gives nothing where the value is not known, so an unknown is an absent series and never a
zero. ``docs/metrics.md`` says the same to people; a test holds the two together.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scaler.core.model import Guard, Latency, Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from scaler.core.model import Decision, FleetView, PodView
    from scaler.core.policy import TriggerPolicy

    # (label values, value); None is "not known" and gives no series.
    Points = Iterable[tuple[tuple[str, ...], float | None]]

PREFIX = "vllm_scaler_"
IDENTITY = ("namespace", "scaledobject", "trigger")
LABEL_LIMIT = 128  # characters; names of models and reasons come from outside
WAITING_REASONS = 8  # vLLM knows two; a pod can say anything


@dataclass(frozen=True, slots=True)
class Scene:
    """What a reader may look at. ``age``: seconds since the decision was made."""

    decision: Decision
    policy: TriggerPolicy
    age: float


@dataclass(frozen=True, slots=True)
class Family:
    """One exported gauge family.

    ``read`` yields (values of ``labels``, value). ``undecided`` is the value of a trigger that has
    no decision yet, where that can be said.
    """

    name: str
    help: str
    read: Callable[[Scene], Points]
    labels: tuple[str, ...] = ()
    undecided: float | None = None

    @property
    def full_name(self) -> str:
        """The name as exposed."""
        return PREFIX + self.name


def _one(read: Callable[[Scene], float | None]) -> Callable[[Scene], Points]:
    return lambda scene: (((), read(scene)),)


def _fleet(read: Callable[[FleetView], float | None]) -> Callable[[Scene], Points]:
    return lambda scene: (((), read(scene.decision.fleet)),)


def label_value(text: str) -> str:
    """Return ``text`` as a label value: bounded, and encodable whatever a pod sent."""
    return text[:LABEL_LIMIT].encode("utf-8", "replace").decode("utf-8")


# --- the decision -----------------------------------------------------------------------------


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


def _pods_are_known(decision: Decision) -> bool:
    return decision.reason is not Reason.CANNOT_LIST_PODS


def _floor_unmet(scene: Scene) -> float | None:
    """K18: the HPA's tolerance can leave the fleet short of a floor, silently."""
    if not _pods_are_known(scene.decision):
        return None
    counts = scene.decision.counts
    return max(0, scene.decision.floors.highest - counts.ready - counts.starting)


def _model(scene: Scene) -> Points:
    if scene.decision.model is not None:
        yield (label_value(scene.decision.model),), 1


# --- the pods ---------------------------------------------------------------------------------


def _pods(scene: Scene) -> Points:
    """Disjoint states, so that their sum without ``terminating`` is the number of pods."""
    if not _pods_are_known(scene.decision):
        return
    counts = scene.decision.counts
    yield ("serving",), counts.serving
    for state in ("stalled", "sleeping", "starting", "unschedulable", "crash_looping", "overdue"):
        yield (state,), getattr(counts, state)
    yield ("terminating",), counts.terminating


def _of_pods(read: Callable[[Scene], float]) -> Callable[[Scene], Points]:
    return lambda scene: (((), read(scene)),) if _pods_are_known(scene.decision) else ()


def _missing_families(scene: Scene) -> Points:
    pods = Counter(family for pod in scene.decision.pods for family in pod.missing)
    return (((label_value(family),), count) for family, count in sorted(pods.items()))


def _rejected_samples(scene: Scene) -> Points:
    values: Counter[str] = Counter()
    for pod in scene.decision.pods:
        values.update(pod.rejected)
    return (((label_value(cause),), count) for cause, count in sorted(values.items()))


def _kv_names(scene: Scene) -> Points:
    names = {pod.kv_name for pod in scene.decision.pods if pod.kv_name is not None}
    return (((label_value(name),), 1) for name in sorted(names))


def _failing_pods(scene: Scene) -> Points:
    causes = Counter(pod.failure.cause for pod in scene.decision.pods if pod.failure is not None)
    return (((cause,), count) for cause, count in sorted(causes.items()))


# --- the fleet --------------------------------------------------------------------------------


def _waiting_by_reason(scene: Scene) -> Points:
    waiting = sorted(scene.decision.fleet.waiting_by_reason.items())
    for reason, count in waiting[:WAITING_REASONS]:
        yield (label_value(reason),), count
    if rest := waiting[WAITING_REASONS:]:
        yield ("others",), sum(count for _, count in rest)


def _kv_usage(scene: Scene) -> Points:
    fleet = scene.decision.fleet
    return ((("mean",), fleet.kv_mean), (("max",), fleet.kv_max))


def _within_promise(scene: Scene) -> Points:
    if bounds := scene.decision.fleet.within_promise:
        yield ("lower",), bounds[0]
        yield ("upper",), bounds[1]


def _latency(latency: Latency) -> Callable[[Scene], Points]:
    def read(scene: Scene) -> Points:
        if found := scene.decision.fleet.latencies.get(latency):
            yield ("mean",), found.mean
            yield ("p50",), found.p50[0]
            yield ("p95",), found.p95[0]
            yield ("p99",), found.p99[0]

    return read


def _latency_bounds(latency: Latency) -> Callable[[Scene], Points]:
    def read(scene: Scene) -> Points:
        if found := scene.decision.fleet.latencies.get(latency):
            for stat, quantile in (("p50", found.p50), ("p95", found.p95), ("p99", found.p99)):
                yield (stat, "lower"), quantile[1]
                yield (stat, "upper"), quantile[2]

    return read


def _pod_gauge(read: Callable[[PodView], float | None]) -> Callable[[Scene], Points]:
    return lambda scene: (((label_value(pod.pod),), read(pod)) for pod in scene.decision.pods)


def _pod_age(scene: Scene) -> Points:
    for pod in scene.decision.pods:
        if pod.age is not None:
            yield (label_value(pod.pod),), pod.age + scene.age


def _pod_states(scene: Scene) -> Points:
    return (((label_value(pod.pod), pod.state), 1) for pod in scene.decision.pods)


DECISION = (
    Family(
        "desired_replicas",
        "Replicas that KEDA is told. Absent while the decision is invalid.",
        _one(lambda s: s.decision.desired if s.decision.valid else None),
    ),
    Family(
        "decision_valid",
        "1 when KEDA gets a number, 0 when it gets an error and its fallback works.",
        _one(lambda s: float(s.decision.valid)),
        undecided=0,
    ),
    Family(
        "active",
        "1 when KEDA is told that the scale target must not be scaled to zero.",
        _one(lambda s: float(s.decision.active)),
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
    Family("decision_age_seconds", "Time since the decision was made.", _one(lambda s: s.age)),
    Family(
        "oldest_sample_age_seconds",
        "Age of the oldest sample that the decision rests on.",
        _one(_oldest_sample),
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
        _one(lambda s: s.decision.composite),
    ),
    Family(
        "pressure_ratio",
        "The composite over the serving pods: 1 is exactly enough.",
        _one(lambda s: s.decision.pressure),
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
        _one(_floor_unmet),
    ),
    Family(
        "min_replicas",
        "The least replicas the trigger allows.",
        _one(lambda s: s.policy.min_replicas),
    ),
    Family(
        "max_replicas",
        "The most replicas the trigger allows. Absent when it sets no bound.",
        _one(lambda s: s.policy.max_replicas),
    ),
    Family(
        "infeasible_promise",
        "1 when the time to first token breaks the promise without a queue: no replica can help.",
        _one(lambda s: float(s.decision.infeasible_promise)),
    ),
    Family("model_info", "The model that the trigger watches.", _model, ("model",)),
)

PODS = (
    Family("pods", "Pods by state; the states are disjoint.", _pods, ("state",)),
    Family(
        "ready_pods",
        "Pods expected to serve: the denominator of the quorum.",
        _of_pods(lambda s: s.decision.counts.ready),
    ),
    Family(
        "fresh_pods",
        "Ready pods whose newest sample is fresh: the numerator of the quorum.",
        _of_pods(lambda s: s.decision.counts.fresh),
    ),
    Family(
        "failing_pods",
        "Pods whose newest scrape failed, by cause.",
        _failing_pods,
        ("cause",),
    ),
    Family(
        "missing_family_pods",
        "Pods whose exposition lacks a family that a signal wants.",
        _missing_families,
        ("family",),
    ),
    Family(
        "rejected_values",
        "Values dropped from the newest samples, by cause.",
        _rejected_samples,
        ("cause",),
    ),
    Family(
        "kv_metric_info",
        "The vLLM metric that the KV cache use was read from.",
        _kv_names,
        ("metric",),
    ),
)

FLEET = (
    Family("running_requests", "Requests being executed.", _fleet(lambda f: f.running)),
    Family("waiting_requests", "Requests queued inside vLLM.", _fleet(lambda f: f.waiting)),
    Family(
        "waiting_requests_by_reason",
        "The same queued requests, split by vLLM's reason.",
        _waiting_by_reason,
        ("reason",),
    ),
    Family("in_flight_requests", "Running and waiting requests.", _fleet(lambda f: f.in_flight)),
    Family("kv_usage_ratio", "KV cache use of the pods, 0 to 1.", _kv_usage, ("stat",)),
    Family(
        "arrivals_per_second",
        "Requests arriving, a lower bound while clients abort.",
        _fleet(lambda f: f.arrival_rate),
    ),
    Family("finishes_per_second", "Requests finishing.", _fleet(lambda f: f.finish_rate)),
    Family(
        "rejections_per_second",
        "Requests refused by vLLM's admission control.",
        _fleet(lambda f: f.rejection_rate),
    ),
    Family("errors_per_second", "Requests ending in an error.", _fleet(lambda f: f.error_rate)),
    Family(
        "preemptions_per_second",
        "Requests preempted for want of KV cache.",
        _fleet(lambda f: f.preemption_rate),
    ),
    Family(
        "prompt_tokens_per_second", "Prompt tokens computed.", _fleet(lambda f: f.prompt_token_rate)
    ),
    Family(
        "generation_tokens_per_second",
        "Tokens generated.",
        _fleet(lambda f: f.generation_token_rate),
    ),
    Family(
        "arriving_tokens_per_second",
        "Work that arrives: arrivals times the mean tokens a request.",
        _fleet(lambda f: f.arriving_token_rate),
    ),
    Family(
        "tokens_per_request",
        "Mean prompt and output tokens of a finished request.",
        _fleet(lambda f: f.tokens_per_request),
    ),
    Family(
        "expected_wait_seconds",
        "Waiting requests over first tokens a second.",
        _fleet(lambda f: f.expected_wait),
    ),
    Family(
        "within_promise_ratio",
        "Bounds of the share of requests whose first token came within targetTtft.",
        _within_promise,
        ("edge",),
    ),
    Family(
        "time_to_first_token_seconds",
        "Time to first token over the signal window.",
        _latency(Latency.TTFT),
        ("stat",),
    ),
    Family(
        "time_to_first_token_bound_seconds",
        "Edges of the bucket that the quantile lies in.",
        _latency_bounds(Latency.TTFT),
        ("stat", "edge"),
    ),
    Family(
        "inter_token_latency_seconds",
        "Time between tokens over the signal window.",
        _latency(Latency.ITL),
        ("stat",),
    ),
    Family(
        "inter_token_latency_bound_seconds",
        "Edges of the bucket that the quantile lies in.",
        _latency_bounds(Latency.ITL),
        ("stat", "edge"),
    ),
    Family(
        "queue_time_seconds",
        "Time in vLLM's queue, of requests that finished within the signal window.",
        _latency(Latency.QUEUE_TIME),
        ("stat",),
    ),
    Family(
        "queue_time_bound_seconds",
        "Edges of the bucket that the quantile lies in.",
        _latency_bounds(Latency.QUEUE_TIME),
        ("stat", "edge"),
    ),
)

# Opt-in: one series a pod and family.
POD_DETAIL = (
    Family("pod_info", "State of each pod.", _pod_states, ("pod", "state")),
    Family(
        "pod_running_requests",
        "Requests being executed.",
        _pod_gauge(lambda p: p.running),
        ("pod",),
    ),
    Family(
        "pod_waiting_requests",
        "Requests queued.",
        _pod_gauge(lambda p: p.waiting),
        ("pod",),
    ),
    Family(
        "pod_kv_usage_ratio",
        "KV cache use, 0 to 1.",
        _pod_gauge(lambda p: p.kv_usage),
        ("pod",),
    ),
    Family(
        "pod_sample_age_seconds",
        "Age of the newest good sample.",
        _pod_age,
        ("pod",),
    ),
)

FAMILIES: tuple[Family, ...] = (*DECISION, *PODS, *FLEET)
