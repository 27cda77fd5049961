"""Decisions in words."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from scaler.core.model import (
    FleetView,
    Floors,
    Guard,
    PodCounts,
    PodState,
    PodView,
    Reason,
    ScrapeCause,
    ScrapeFailure,
    Signal,
    SignalReading,
)
from scaler.core.policy import TriggerPolicy
from scaler.exporter.words import (
    GUARDS,
    REASONS,
    headline,
    is_ill,
    moment,
    number,
    percent,
    reading,
    seconds,
    why,
)

if TYPE_CHECKING:
    from exporter.conftest import Fleet

POLICY = TriggerPolicy(
    target_in_flight=128.0, min_replicas=2, max_replicas=6, spare_replicas=1, down_ratio=0.8
)

HEADLINES = {
    Reason.IDLE: "Wants 4 replicas: idle, nothing asks for more",
    Reason.NO_PODS: "Wants 4 replicas: no pods run, and nothing asks for any",
    Reason.LOAD: "Wants 4 replicas: 512 requests in flight, a replica carries 128",
    Reason.SPARE: "Wants 4 replicas: the load needs 3.5, and spare ones were asked for",
    Reason.SCHEDULE_FLOOR: "Wants 4 replicas: the schedule asks for at least 3 (stand-up)",
    Reason.FORECAST_FLOOR: "Wants 4 replicas: the forecast asks for at least 4",
    Reason.OCCUPIED: (
        "Wants 4 replicas: pods hold a place and cannot serve, nothing else is asked for"
    ),
    Reason.STARTING: "Keeps 4 replicas: none is ready yet, 1 starting",
    Reason.DOWN_RATIO: "Wants 4 replicas: the load needs 3.5, not yet low enough to go down",
    Reason.MIN_REPLICAS: "Wants 4 replicas: the least allowed; the load needs 3.5",
    Reason.MAX_REPLICAS: (
        "Wants 4 replicas: the most allowed; 512 requests in flight, a replica carries 128"
    ),
    Reason.BELOW_QUORUM: ("Wants 4 replicas: 1 of 3 ready pods answers, so going down is not safe"),
    Reason.HOLD: "Keeps 4 replicas: 1 of 3 ready pods answers; the last good number holds for now",
    Reason.FLOOR_ONLY: (
        "Wants 4 replicas: 1 of 3 ready pods answers, but a floor of 4 is due (stand-up)"
    ),
    Reason.QUORUM_LOST: (
        "No answer: 1 of 3 ready pods answers, too few to tell, so KEDA's fallback applies"
    ),
    Reason.NO_DATA: ("No answer: nothing fresh is known of the pods, so KEDA's fallback applies"),
    Reason.CANNOT_LIST_PODS: ("No answer: the pods cannot be listed, so KEDA's fallback applies"),
    Reason.AMBIGUOUS_MODEL: (
        "No answer: the pods serve several models and the trigger names none, "
        "so KEDA's fallback applies"
    ),
}


@pytest.mark.parametrize("reason", Reason)
def test_every_reason_has_its_headline(fleet: Fleet, reason: Reason) -> None:
    decision = fleet.busy(
        reason=reason,
        valid=HEADLINES[reason].startswith(("Wants", "Keeps")),
        composite=3.5,
        floors=Floors(schedule=3, forecast=4, window="stand-up"),
        counts=PodCounts(total=4, ready=3, fresh=1, starting=1),
    )

    assert headline(decision) == HEADLINES[reason]


def test_one_replica_is_singular(fleet: Fleet) -> None:
    assert headline(fleet.busy(desired=1, reason=Reason.IDLE)).startswith("Wants 1 replica: ")


def test_a_reason_without_words_of_its_own_falls_back_to_the_message(fleet: Fleet) -> None:
    """A reason added to the model still reads as a sentence."""
    decision = fleet.busy(valid=False, reason=Reason.LOAD, message="something new")

    assert headline(decision) == "No answer: something new, so KEDA's fallback applies"


def test_load_without_a_binding_signal_names_the_composite(fleet: Fleet) -> None:
    decision = fleet.busy(binding=None, composite=None)

    assert headline(decision) == "Wants 4 replicas: no signal is on that could say more"


@pytest.mark.parametrize(
    ("signal", "observed", "target", "words"),
    [
        (Signal.QUEUE, 1.0, 5.0, "1 request waiting, a replica may have 5"),
        (Signal.CONCURRENCY, 2000.0, 128.0, "2,000 requests in flight, a replica carries 128"),
        (Signal.THROUGHPUT, 7349.6, 2100.0, "7,350 tokens/s of work, a replica does 2,100"),
        (Signal.KV, 1.9, 0.85, "KV caches add up to 1.9 full ones, a replica should fill 85 %"),
        (Signal.QUEUE_TIME, 4.25, 2.0, "requests queue for 4.2 s, the target is 2 s"),
        (Signal.TTFT, 0.23, 3.0, "first tokens take 0.23 s, the promise is 3 s"),
    ],
)
def test_every_signal_has_its_words(
    signal: Signal, observed: float, target: float, words: str
) -> None:
    assert reading(signal, SignalReading(1.0, observed, target, 1.0)) == words


def test_the_whole_why_of_a_busy_fleet(fleet: Fleet) -> None:
    assert why(fleet.busy(), POLICY) == [
        "Requests in flight: needs 4, and binds; 512 requests in flight, a replica carries 128.",
        "Waiting requests: needs 4.6, counted as 3.5; 23 requests waiting, a replica may have 5.",
        "Token throughput: needs 3.5; 7,350 tokens/s of work, a replica does 2,100.",
        "KV cache use: needs 2.25; KV caches add up to 1.91 full ones, a replica should fill 85 %.",
        (
            "Time to first token: needs 2.4 but does not count; first tokens take 2.4 s, "
            "the promise is 3 s."
        ),
        (
            "Capped by throughput: the queue asked for more than the work in it is worth "
            "(drainTime 60 s)."
        ),
        "Schedule: at least 2 replicas now (weekday mornings).",
        "The next floor opens Tue 01 Dec 09:00 UTC, lead time included.",
        "Pods: 3 serving, 1 starting.",
    ]


def test_the_whole_why_of_a_blind_fleet(fleet: Fleet) -> None:
    assert why(fleet.blind(notes=("two pods share an address",)), TriggerPolicy()) == [
        "1 of 4 pods answers, the quorum is 2.",
        "Forecast: at least 1 replica.",
        (
            "Pods: 3 serving, 1 stalled (work in flight, no counter moves), "
            "3 ready without fresh data."
        ),
        "Two pods share an address.",
        (
            "Bare trigger: only waiting requests and KV cache use count, and both react late. "
            "Set targetInFlight, targetTokenRate or targetTtft."
        ),
    ]


def test_a_spike_that_did_not_come_and_an_idle_fleet(fleet: Fleet) -> None:
    decision = fleet.busy(
        active=False,
        signals={},
        guards=(),
        fleet=FleetView(),
        counts=PodCounts(),
        floors=Floors(window="stand-up", released=True),
        notes=("released: a window is open whose spike did not come",),
    )

    assert why(decision, POLICY) == [
        "Schedule: a window is open (stand-up), but its spike did not come.",
        "Inactive: KEDA may scale to zero after its cooldown.",
    ]


def test_signals_can_be_left_out(fleet: Fleet) -> None:
    assert why(fleet.busy(), POLICY, signals=False) == why(fleet.busy(), POLICY)[5:]


def test_nothing_is_said_of_pods_that_cannot_be_listed(fleet: Fleet) -> None:
    decision = fleet.blind(reason=Reason.CANNOT_LIST_PODS, message="DNS does not answer")

    assert why(decision, POLICY)[0] == "DNS does not answer."
    assert not [sentence for sentence in why(decision, POLICY) if sentence.startswith("Pods")]


def test_every_guard_has_words(fleet: Fleet) -> None:
    said = why(fleet.busy(signals={}, guards=tuple(Guard), floors=Floors()), POLICY)

    assert set(GUARDS) == set(Guard)
    assert set(REASONS) == set(Reason) - {Reason.LOAD}
    assert said[1:8] == [
        "Spare: 1 replica on top of the load.",
        "Occupied: pods that hold a place and cannot serve were added.",
        "Not down yet: downRatio 0.8 keeps the present number.",
        "Up only: fewer pods answer than the quorum asks for.",
        "Held: the last good number is kept for 60 s.",
        "Raised to minReplicas 2.",
        "Cut to maxReplicas 6.",
    ]


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.0, "0"),
        (4.0, "4"),
        (0.05, "0.05"),
        (1.5, "1.5"),
        (1.999, "2"),
        (12.345, "12.3"),
        (123.6, "124"),
        (1234567.0, "1,234,567"),
        (float("inf"), "no finite number"),
        (float("nan"), "no finite number"),
    ],
)
def test_numbers(value: float, words: str) -> None:
    assert number(value) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0.0, "0 s"),
        (0.2345, "0.23 s"),
        (0.0004, "0.0004 s"),
        (4.94, "4.9 s"),
        (3.0, "3 s"),
        (119.4, "119 s"),
        (180.0, "3 min"),
        (7500.0, "2 h 5 min"),
        (7200.0, "2 h"),
        (float("inf"), "no finite time"),
    ],
)
def test_durations(value: float, words: str) -> None:
    assert seconds(value) == words


def test_percentages_and_moments(fleet: Fleet) -> None:
    assert percent(0.9) == "90 %"
    assert percent(0.123) == "12.3 %"
    assert moment(fleet.clock.wall + timedelta(days=1)) == "Tue 01 Dec 09:00 UTC"


@pytest.mark.parametrize(
    ("state", "failing", "ill"),
    [
        (PodState.FRESH, False, False),
        (PodState.FRESH, True, True),
        (PodState.STARTING, True, False),
        (PodState.TERMINATING, True, False),
        (PodState.STALLED, False, True),
        (PodState.MISSING, True, True),
    ],
)
def test_which_pods_need_a_look(state: PodState, failing: bool, ill: bool) -> None:
    """A pod that starts or ends refuses connections, and that is its business."""
    failure = ScrapeFailure(ScrapeCause.REFUSED, "connection refused") if failing else None

    assert is_ill(PodView("pod", state, failure=failure)) is ill
