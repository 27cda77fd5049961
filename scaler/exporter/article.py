"""One trigger on the page: its decision in words, bars, the last hour, its pods, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from scaler.core.model import Latency, Reason
from scaler.exporter.markup import Html, element
from scaler.exporter.picture import bar, bar_limit, last_hour, legend
from scaler.exporter.view import age, headline_of
from scaler.exporter.words import (
    SIGNAL_NAMES,
    is_ill,
    number,
    percent,
    reading,
    seconds,
    why,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from scaler.core.model import Decision, FleetView, Now, PodView, Signal
    from scaler.exporter.view import TriggerView

LATENCY_NAMES = {Latency.TTFT: "TTFT", Latency.ITL: "ITL", Latency.QUEUE_TIME: "Queue time"}
SHOWN_PODS = 12
STALE_AFTER = 60.0  # seconds without a new decision that deserve a word


def article(view: TriggerView, now: Now) -> Html:
    """Show one trigger."""
    decision = view.decision
    title = element(
        "h2",
        f"{view.key.namespace}/{view.key.name} ",
        element("small", _subtitle(view), class_="quiet"),
    )
    warnings = [element("li", warning) for warning in view.warnings]
    warned = element("ul", *warnings, class_="warnings") if warnings else None
    told = element("p", f"{headline_of(view)}.", class_=f"headline{mood(view)}")
    if decision is None or view.refusal is not None:
        return element("article", title, told, warned)
    reasons = why(decision, view.policy, signals=False)
    return element(
        "article",
        title,
        told,
        _state(decision, age(decision, now)),
        warned,
        _figures(view, decision),
        _bars(decision),
        element(
            "figure",
            last_hour(view.trail, now.wall, _picture_title(view, decision)),
            legend(),
        ),
        _unhealthy(decision.pods),
        element("h3", "Why") if reasons else None,
        element("ul", *(element("li", sentence) for sentence in reasons)),
    )


def mood(view: TriggerView) -> str:
    """Return the class, after a space, of a trigger for which KEDA gets no number."""
    failing = view.decision is not None and not view.decision.valid
    return " bad" if failing or view.refusal is not None else ""


def _subtitle(view: TriggerView) -> str:
    model = view.decision.model if view.decision is not None else view.policy.model
    return f"trigger {view.key.id}" + ("" if model is None else f" · {model}")


def _picture_title(view: TriggerView, decision: Decision) -> str:
    wanted = f"{decision.desired} desired" if decision.valid else "no valid decision"
    target = f"{view.key.namespace}/{view.key.name}"
    return f"Replicas of {target} over the last hour: {wanted}, {serving_of(decision)} serving now"


def serving_of(decision: Decision) -> str:
    """Return how many pods serve; a dash where the pods are not known."""
    unknown = decision.reason is Reason.CANNOT_LIST_PODS
    return "—" if unknown else str(decision.counts.serving)


def _state(decision: Decision, old: float) -> Html:
    tags = [
        ("✓ valid", "tag") if decision.valid else ("✕ invalid", "tag bad"),
        ("● active", "tag") if decision.active else ("○ inactive", "tag"),
        (f"reason {decision.reason}", "tag"),
    ]
    if decision.infeasible_promise:
        tags.append(("! promise broken without a queue", "tag bad"))
    stale = old > STALE_AFTER
    tags.append((f"decided {seconds(old)} ago", "tag bad" if stale else "tag quiet"))
    return element("p", *(element("span", text, class_=kind) for text, kind in tags))


def _figures(view: TriggerView, decision: Decision) -> Html:
    counts, policy = decision.counts, view.policy
    least, most = policy.min_replicas, policy.max_replicas
    figures = [
        ("Desired", str(decision.desired) if decision.valid else "—"),
        ("Serving", serving_of(decision)),
        ("Starting", None if serving_of(decision) == "—" else str(counts.starting)),
        ("Floor", str(decision.floors.highest)),
        ("Allowed", f"{least} and up" if most is None else f"{least} to {most}"),
        *_fleet_figures(decision.fleet),
    ]
    return element(
        "dl",
        *(
            element("div", element("dt", name), element("dd", value))
            for name, value in figures
            if value is not None
        ),
    )


def _fleet_figures(fleet: FleetView) -> Iterator[tuple[str, str | None]]:
    yield "Running", None if fleet.running is None else number(fleet.running)
    yield "Waiting", None if fleet.waiting is None else number(fleet.waiting)
    yield "Fullest KV", None if fleet.kv_max is None else percent(fleet.kv_max)
    yield "Arrivals", None if fleet.arrival_rate is None else f"{number(fleet.arrival_rate)}/s"
    for latency, found in fleet.latencies.items():
        yield f"{LATENCY_NAMES[latency]} p95", seconds(found.p95[0])


def _bars(decision: Decision) -> Html | None:
    if not decision.signals:
        return None
    limit, serving = bar_limit(decision), decision.counts.serving
    return element(
        "section",
        element("h3", "Replicas needed, by signal"),
        element(
            "ul",
            *(_bar(decision, signal, serving, limit) for signal in decision.signals),
            class_="bars",
        ),
        element("p", f"The upright line marks the {serving} serving now.", class_="quiet"),
    )


def _bar(decision: Decision, signal: Signal, serving: int, limit: float) -> Html:
    read = decision.signals[signal]
    binds = signal is decision.binding
    note = " · binds" if binds else " · not counted" if read.counted is None else ""
    return element(
        "li",
        element("span", SIGNAL_NAMES[signal] + note, class_="name"),
        element("span", number(read.needed), class_="value"),
        bar(signal, read, serving, limit),
        element("span", reading(signal, read), class_="quiet"),
        class_="binding" if binds else None,
    )


def _unhealthy(pods: Sequence[PodView]) -> Html | None:
    ill = [pod for pod in pods if is_ill(pod)]
    if not ill:
        return None
    more = len(ill) - SHOWN_PODS
    return element(
        "section",
        element("h3", "Pods that need a look"),
        element(
            "ul",
            *(_pod(pod) for pod in ill[:SHOWN_PODS]),
            element("li", f"and {more} more", class_="quiet") if more > 0 else None,
            class_="pods",
        ),
    )


def _pod(pod: PodView) -> Html:
    cause = f": {pod.failure.cause}, {pod.failure.detail}" if pod.failure else ""
    old = f" (last sample {seconds(pod.age)} ago)" if pod.age is not None else ""
    return element(
        "li",
        element("code", pod.pod),
        f" {str(pod.state).replace('_', ' ')}{cause}{old}",
    )
