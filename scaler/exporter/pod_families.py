"""How many pods are in which state, and what is wrong with them."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from scaler.exporter.family import Family, label_value, pods_are_known
from scaler.exporter.words import UNASKED

if TYPE_CHECKING:
    from collections.abc import Callable

    from scaler.core.model import PodView
    from scaler.exporter.family import Points, Scene


def _pods(scene: Scene) -> Points:
    """Disjoint states, so that their sum without ``terminating`` is the number of pods."""
    if not pods_are_known(scene.decision):
        return
    counts = scene.decision.counts
    yield ("serving",), counts.serving
    for state in ("stalled", "sleeping", "starting", "unschedulable", "crash_looping", "overdue"):
        yield (state,), getattr(counts, state)
    yield ("terminating",), counts.terminating


def _of_pods(read: Callable[[Scene], float]) -> Callable[[Scene], Points]:
    return lambda scene: (((), read(scene)),) if pods_are_known(scene.decision) else ()


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
    """D04: a pod that loads its model refuses connections, and nothing is wrong with it."""
    asked = (pod for pod in scene.decision.pods if pod.state not in UNASKED)
    causes = Counter(pod.failure.cause for pod in asked if pod.failure is not None)
    return (((cause,), count) for cause, count in sorted(causes.items()))


def _pod_gauge(read: Callable[[PodView], float | None]) -> Callable[[Scene], Points]:
    return lambda scene: (((label_value(pod.pod),), read(pod)) for pod in scene.decision.pods)


def _pod_age(scene: Scene) -> Points:
    for pod in scene.decision.pods:
        if pod.age is not None:
            yield (label_value(pod.pod),), pod.age + scene.age


def _pod_states(scene: Scene) -> Points:
    return (((label_value(pod.pod), pod.state), 1) for pod in scene.decision.pods)


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
        "Pods whose newest scrape failed, by cause; not those that start or end.",
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
