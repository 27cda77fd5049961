"""A decision in words: one headline, and the reasons as sentences.

Shared by the page, ``explain`` and the demo, so that all of them say the same thing. Plain text:
whoever shows it escapes it.
"""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING

from scaler.core.model import Guard, PodState, Reason, Signal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from scaler.core.model import Decision, PodCounts, PodView, SignalReading
    from scaler.core.policy import TriggerPolicy

SIGNAL_NAMES = {
    Signal.QUEUE: "Waiting requests",
    Signal.CONCURRENCY: "Requests in flight",
    Signal.THROUGHPUT: "Token throughput",
    Signal.KV: "KV cache use",
    Signal.QUEUE_TIME: "Queue time",
    Signal.TTFT: "Time to first token",
}

# What settled the number, or why there is none. LOAD is told by its binding signal.
REASONS = {
    Reason.IDLE: "idle, nothing asks for more",
    Reason.NO_PODS: "no pods run, and nothing asks for any",
    Reason.SPARE: "the load needs {load}, and spare ones were asked for",
    Reason.SCHEDULE_FLOOR: "the schedule asks for at least {schedule}{window}",
    Reason.FORECAST_FLOOR: "the forecast asks for at least {forecast}",
    Reason.STARTING: "none is ready yet, {starting} starting",
    Reason.OCCUPIED: "pods hold a place and cannot serve, nothing else is asked for",
    Reason.DOWN_RATIO: "the load needs {load}, not yet low enough to go down",
    Reason.MIN_REPLICAS: "the least allowed; the load needs {load}",
    Reason.MAX_REPLICAS: "the most allowed; {pressing}",
    Reason.BELOW_QUORUM: "{answering}, so going down is not safe",
    Reason.HOLD: "{answering}; the last good number holds for now",
    Reason.FLOOR_ONLY: "{answering}, but a floor of {floor} is due{window}",
    Reason.QUORUM_LOST: "{answering}, too few to tell",
    Reason.NO_DATA: "nothing fresh is known of the pods",
    Reason.CANNOT_LIST_PODS: "the pods cannot be listed",
    Reason.AMBIGUOUS_MODEL: "the pods serve several models and the trigger names none",
}

GUARDS = {
    Guard.THROUGHPUT_CAP: (
        "Capped by throughput: the queue asked for more than the work in it is worth "
        "(drainTime {drain})."
    ),
    Guard.SPARE: "Spare: {spare} on top of the load.",
    Guard.OCCUPIED: "Occupied: pods that hold a place and cannot serve were added.",
    Guard.DOWN_RATIO: "Not down yet: downRatio {down_ratio} keeps the present number.",
    Guard.UP_ONLY: "Up only: fewer pods answer than the quorum asks for.",
    Guard.HOLD: "Held: the last good number is kept for {hold}.",
    Guard.MIN_REPLICAS: "Raised to minReplicas {least}.",
    Guard.MAX_REPLICAS: "Cut to maxReplicas {most}.",
}

RELEASED = "released:"  # a note that the sentence about the schedule says already

# A pod that starts or ends refuses connections: that is its business.
UNASKED = frozenset({PodState.STARTING, PodState.TERMINATING})


def headline(decision: Decision) -> str:
    """Say in one sentence what is wanted and what settled it."""
    if not decision.valid:
        return f"No answer: {_settled_by(decision)}, so KEDA's fallback applies"
    verb = "Keeps" if decision.reason in {Reason.HOLD, Reason.STARTING} else "Wants"
    return f"{verb} {replicas(decision.desired)}: {_settled_by(decision)}"


def why(decision: Decision, policy: TriggerPolicy, *, signals: bool = True) -> list[str]:
    """Say everything that bore on the decision, most important first.

    Without ``signals`` where they are shown already.
    """
    return [
        *([] if decision.valid else [_sentence(decision.message)]),
        *(_signals(decision) if signals else ()),
        *_guards(decision, policy),
        *_floors(decision),
        *_pods(decision),
        *(_sentence(note) for note in decision.notes if not note.startswith(RELEASED)),
        *_bare(policy),
        *_activity(decision),
    ]


def is_ill(pod: PodView) -> bool:
    """Whether a person should look at the pod."""
    return pod.state not in UNASKED and (pod.state is not PodState.FRESH or pod.failure is not None)


def replicas(count: float) -> str:
    """Say a number of replicas; a fractional one to two digits."""
    return f"{number(count)} replica{'' if count == 1 else 's'}"


def number(value: float) -> str:
    """Say a number as people write it: thousands grouped, no digits that mean nothing."""
    if not isfinite(value):
        return "no finite number"
    if value == int(value):
        return f"{int(value):,}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}".rstrip("0").rstrip(".")


def seconds(value: float) -> str:
    """Say a duration: ``0.23 s``, ``4.9 s``, ``48 s``, ``3 min``, ``2 h 5 min``."""
    if not isfinite(value):
        return "no finite time"
    if value < 1:
        return f"{value:.2g} s"
    if value < 10:
        return f"{value:.1f} s".replace(".0 s", " s")
    if value < 120:
        return f"{value:.0f} s"
    minutes = round(value / 60)
    if minutes < 120:
        return f"{minutes} min"
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if rest else f"{hours} h"


def reading(signal: Signal, read: SignalReading) -> str:
    """Say what a signal saw, against what one replica carries."""
    observed, target = read.observed, read.target
    match signal:
        case Signal.QUEUE:
            return f"{_requests(observed)} waiting, a replica may have {number(target)}"
        case Signal.CONCURRENCY:
            return f"{_requests(observed)} in flight, a replica carries {number(target)}"
        case Signal.THROUGHPUT:
            return f"{number(observed)} tokens/s of work, a replica does {number(target)}"
        case Signal.KV:
            return (
                f"KV caches add up to {number(observed)} full ones, "
                f"a replica should fill {percent(target)}"
            )
        case Signal.QUEUE_TIME:
            return f"requests queue for {seconds(observed)}, the target is {seconds(target)}"
        case Signal.TTFT:
            return f"first tokens take {seconds(observed)}, the promise is {seconds(target)}"


def percent(ratio: float) -> str:
    """Say a ratio as a percentage."""
    return f"{number(round(100 * ratio, 1))} %"


def moment(at: datetime) -> str:
    """Say a point in time, with its zone."""
    return f"{at:%a %d %b %H:%M} {at.tzname() or ''}".rstrip()


# --- what settled it ----------------------------------------------------------------------------


def _settled_by(decision: Decision) -> str:
    if decision.reason not in REASONS:
        return _pressing(decision) if decision.valid else decision.message
    floors = decision.floors
    return REASONS[decision.reason].format(
        load=_composite(decision),
        pressing=_pressing(decision),
        answering=_answering(decision.counts),
        starting=number(decision.counts.starting),
        schedule=number(floors.schedule),
        forecast=number(floors.forecast),
        floor=number(floors.highest),
        window=_window(decision),
    )


def _pressing(decision: Decision) -> str:
    signal = decision.binding
    if signal is None or signal not in decision.signals:
        if decision.composite is None:
            return "no signal is on that could say more"
        return f"the load needs {_composite(decision)}"
    read = decision.signals[signal]
    capped = read.counted is not None and read.counted < read.needed
    return reading(signal, read) + (", capped by throughput" if capped else "")


def _composite(decision: Decision) -> str:
    return "an unknown number" if decision.composite is None else number(decision.composite)


def _window(decision: Decision) -> str:
    return f" ({decision.floors.window})" if decision.floors.window else ""


def _answering(counts: PodCounts) -> str:
    verb = "answers" if counts.fresh == 1 else "answer"
    return f"{counts.fresh} of {counts.ready} ready pod{'' if counts.ready == 1 else 's'} {verb}"


def _requests(count: float) -> str:
    return f"{number(count)} request{'' if count == 1 else 's'}"


# --- everything that bore on it -----------------------------------------------------------------


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?")) else ".")


def _signals(decision: Decision) -> Iterator[str]:
    ranked = sorted(decision.signals.items(), key=lambda item: -(item[1].counted or -1.0))
    for signal, read in ranked:
        binding = ", and binds" if signal is decision.binding else ""
        yield f"{SIGNAL_NAMES[signal]}: needs {number(read.needed)}{_cap(read)}{binding}; " + (
            reading(signal, read) + "."
        )


def _cap(read: SignalReading) -> str:
    if read.counted is None:
        return " but does not count"
    return f", counted as {number(read.counted)}" if read.counted != read.needed else ""


def _guards(decision: Decision, policy: TriggerPolicy) -> Iterator[str]:
    for guard in decision.guards:
        yield GUARDS[guard].format(
            drain=seconds(policy.drain_time),
            spare=replicas(policy.spare_replicas),
            down_ratio=number(policy.down_ratio),
            hold=seconds(policy.hold_seconds),
            least=policy.min_replicas,
            most=policy.max_replicas,
        )


def _floors(decision: Decision) -> Iterator[str]:
    floors = decision.floors
    if floors.released:
        yield f"Schedule: a window is open{_window(decision)}, but its spike did not come."
    elif floors.schedule:
        yield f"Schedule: at least {replicas(floors.schedule)} now{_window(decision)}."
    if floors.forecast:
        yield f"Forecast: at least {replicas(floors.forecast)}."
    if floors.next_opening is not None:
        yield f"The next floor opens {moment(floors.next_opening)}, lead time included."


def _pods(decision: Decision) -> Iterator[str]:
    if decision.reason is Reason.CANNOT_LIST_PODS:
        return
    counts = decision.counts
    states = (
        (counts.starting, "starting"),
        (counts.sleeping, "asleep"),
        (counts.stalled, "stalled (work in flight, no counter moves)"),
        (counts.unschedulable, "unschedulable"),
        (counts.crash_looping, "crash-looping"),
        (counts.overdue, "starting for too long"),
    )
    found = [f"{count} {name}" for count, name in states if count]
    blind = counts.ready - counts.fresh
    if blind:
        found.append(f"{blind} ready without fresh data")
    if found:
        yield f"Pods: {counts.serving} serving, {', '.join(found)}."


def _bare(policy: TriggerPolicy) -> Iterator[str]:
    told = (policy.target_in_flight, policy.target_token_rate, policy.target_ttft)
    if all(target is None for target in told):
        yield (
            "Bare trigger: only waiting requests and KV cache use count, and both react late. "
            "Set targetInFlight, targetTokenRate or targetTtft."
        )


def _activity(decision: Decision) -> Iterator[str]:
    if decision.valid and not decision.active:
        yield "Inactive: KEDA may scale to zero after its cooldown."
