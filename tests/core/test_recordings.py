"""Every recording of a real vLLM through the core, with literal expectations.

The recordings are open loops: the recorded server cannot react to what is decided, so what is
checked is what a scaler that scrapes every five seconds would have asked for, and when.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

import pytest
from fakes import REFUSED, Fleet
from recordings.corpus import HOME, RECORDINGS, name_of, scrapes

from scaler.core.model import Latency, PodSample, PodState, Reason, Signal
from scaler.core.policy import TriggerPolicy
from scaler.vllm.exposition import read_exposition

if TYPE_CHECKING:
    from scaler.core.model import Decision

BARE = TriggerPolicy()
# From the bench files beside the recordings: the last level whose p95 TTFT is within 3 s.
H200_8B = TriggerPolicy(target_in_flight=128, target_token_rate=39649, target_ttft=3.0)
H200_32B = TriggerPolicy(target_in_flight=32, target_token_rate=5375, target_ttft=3.0)


@dataclass(frozen=True)
class Played:
    """A decision and when it was made, seconds into the recording."""

    at: float
    decision: Decision


@cache
def play(name: str, policy: TriggerPolicy = BARE, interval: float = 5.0) -> tuple[Played, ...]:
    """The decisions of a scaler that scrapes the recorded server every ``interval`` seconds."""
    recorded = scrapes(name)
    fleet = Fleet(policy)
    begun, start = recorded[0].at, fleet.monotonic
    played: list[Played] = []
    for scrape in recorded:
        at = scrape.at - begun
        if played and at - played[-1].at < interval - 0.5:
            continue
        answer = read_exposition(scrape.body.encode()) if scrape.status == 200 else REFUSED
        decision = fleet.tick({"pod": answer}, seconds=start + at - fleet.monotonic)
        played.append(Played(at, decision))
    return tuple(played)


def changes(played: tuple[Played, ...]) -> list[tuple[int, int]]:
    """When the number changed (seconds, rounded), and to what."""
    found: list[tuple[int, int]] = []
    for step in played:
        assert step.decision.valid
        if not found or found[-1][1] != step.decision.desired:
            found.append((round(step.at), step.decision.desired))
    return found


def first(played: tuple[Played, ...], signal: Signal, replicas: float) -> float:
    """When a signal first asked for at least so many replicas."""
    return next(
        step.at
        for step in played
        if signal in step.decision.signals and step.decision.signals[signal].needed >= replicas
    )


LITERAL = {
    "h200/h200-8b.standup": (
        H200_8B,
        [(0, 0), (5, 1), (50, 2), (70, 3), (75, 2), (80, 3), (145, 2), (230, 1)],
    ),
    "h200/h200-8b.curve": (
        H200_8B,
        [(0, 0), (30, 1), (40, 0), (70, 1), (255, 2), (265, 1), (305, 2), (375, 1)],
    ),
    "h200/h200-32b.curve": (
        H200_32B,
        [
            (0, 0),
            (25, 1),
            (65, 0),
            (85, 1),
            (135, 2),
            (145, 1),
            (195, 2),
            (215, 1),
            (245, 3),
            (255, 2),
            (260, 3),
            (270, 2),
            (280, 3),
            (285, 2),
            (300, 3),
            (305, 2),
        ],
    ),
    "h200/h200-8b-small.abort": (BARE, [(0, 0), (5, 31), (10, 34), (15, 0)]),
    "cpu/0.8.5-v0/idle": (BARE, [(0, 0)]),
    "cpu/0.8.5-v0/judge": (BARE, [(0, 0), (5, 17), (10, 11), (15, 6), (20, 2), (25, 0)]),
    "cpu/0.9.2-v1/idle": (BARE, [(0, 0)]),
    "cpu/0.9.2-v1/judge": (BARE, [(0, 0), (5, 11), (10, 0)]),
    "cpu/0.9.2-v1/hang": (BARE, [(0, 0), (5, 19), (10, 12), (15, 7), (135, 1)]),
    "cpu/0.11.0-v1/idle": (BARE, [(0, 0)]),
    "cpu/0.11.0-v1/curve": (BARE, [(0, 0), (15, 1), (20, 0)]),
    "cpu/0.11.0-v1/judge": (
        BARE,
        [(0, 0), (5, 25), (10, 16), (15, 8), (25, 7), (35, 6), (45, 5), (50, 4), (65, 2), (70, 0)],
    ),
    "cpu/0.11.0-v1/standup": (
        BARE,
        [
            (0, 0),
            (5, 2),
            (10, 3),
            (15, 0),
            (20, 1),
            (65, 2),
            (70, 6),
            (75, 1),
            (80, 0),
            (85, 3),
            (90, 4),
            (105, 5),
            (110, 3),
            (115, 1),
            (145, 0),
            (150, 1),
            (196, 0),
        ],
    ),
    "cpu/0.32.0-v1/idle5min": (BARE, [(0, 0)]),
    "cpu/0.32.0-v1/abort": (BARE, [(0, 0), (5, 3), (10, 16), (15, 0)]),
    "cpu/0.32.0-v1/restart": (BARE, [(0, 0), (10, 7), (15, 8), (60, 1), (65, 3), (70, 0)]),
    "cpu/0.32.0-v1/kvpress": (
        BARE,
        [
            (0, 0),
            (20, 1),
            (25, 0),
            (30, 1),
            (35, 2),
            (41, 1),
            (46, 0),
            (51, 2),
            (57, 1),
            (62, 4),
            (67, 2),
            (72, 3),
            (78, 1),
            (83, 10),
            (89, 11),
            (93, 4),
            (98, 0),
        ],
    ),
    "cpu/0.32.0-v1-dp2/loaded": (
        BARE,
        [(0, 0), (10, 2), (18, 0), (23, 13), (28, 14), (33, 5), (38, 0)],
    ),
}
# Long queues, one number a scrape: their peak and their end say what a list of fifty would.
PEAKS = {
    "cpu/0.8.5-v0/standup": (140, 207),
    "cpu/0.9.2-v1/standup": (5, 1),
    "cpu/0.11.0-v1/kvpress": (90, 131),
}


@pytest.mark.parametrize("name", LITERAL)
def test_what_would_have_been_asked_for(name: str) -> None:
    policy, expected = LITERAL[name]

    assert changes(play(name, policy)) == expected


@pytest.mark.parametrize("name", PEAKS)
def test_when_the_longest_queues_peak(name: str) -> None:
    played = play(name)
    peak = max(played, key=lambda step: step.decision.desired)

    assert (round(peak.at), peak.decision.desired) == PEAKS[name]
    assert played[-1].decision.desired == 0


def test_no_recording_is_left_out() -> None:
    assert {name_of(path) for path in RECORDINGS} == LITERAL.keys() | PEAKS.keys()


class TestStandup:
    """The morning: what leads, and by how much. Targets come from the curve files alone."""

    def test_two_replicas_are_asked_for_before_the_queue_and_before_the_promise_breaks(
        self,
    ) -> None:
        played = play("h200/h200-8b.standup", H200_8B, interval=1.0)
        slow = next(at for at, mean in mean_ttft(5.0) if mean > 1.0)

        answered = next(step.at for step in played if step.decision.desired >= 2)
        concurrency = first(played, Signal.CONCURRENCY, 2.0)
        queue = first(played, Signal.QUEUE, 2.0)

        assert round(concurrency) == 50
        assert round(answered) == 50
        assert round(queue) == 51
        assert round(slow) == 55
        assert max(answered, concurrency) < min(queue, slow)

    def test_arrivals_without_a_gateway_are_what_the_clients_sent(self) -> None:
        """60 s into the plateau the estimate is within 5 % of the request log."""
        [step] = [s for s in play("h200/h200-8b.standup", H200_8B) if round(s.at) == 110]
        starts = [float(row["start_s"]) for row in requests()]
        # The log's clock starts with the load, one second into the recording.
        sent = sum(48 <= start < 108 for start in starts) / 60

        assert step.decision.fleet.arrival_rate == pytest.approx(sent, rel=0.05)

    def test_queue_time_is_late_and_the_expected_wait_leads(self) -> None:
        [step] = [s for s in play("h200/h200-8b.standup", H200_8B) if round(s.at) == 70]
        fleet = step.decision.fleet

        assert fleet.latencies[Latency.QUEUE_TIME].mean < 0.35
        assert fleet.expected_wait == pytest.approx(8.4, abs=0.1)
        assert fleet.latencies[Latency.TTFT].mean == pytest.approx(1.8, abs=0.1)


def requests() -> list[dict[str, str]]:
    """What the clients of the stand-up saw, a request a row."""
    with (HOME / "h200" / "h200-8b.standup.requests.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def mean_ttft(window: float) -> list[tuple[float, float]]:
    """The recorded mean TTFT of the last ``window`` seconds, at each second of the stand-up."""
    totals: list[tuple[float, float, float]] = []
    means = []
    for scrape in scrapes("h200/h200-8b.standup"):
        pod = read_exposition(scrape.body.encode())
        assert isinstance(pod, PodSample)
        seen = pod.models["llama-8b"].latencies[Latency.TTFT]
        totals.append((scrape.at, seen.sum, seen.count))
        old = next(total for total in totals if total[0] >= scrape.at - window - 0.5)
        if seen.count > old[2]:
            mean = (seen.sum - old[1]) / (seen.count - old[2])
            means.append((scrape.at - totals[0][0], mean))
    return means


class TestFailures:
    def test_the_hung_engine_is_found_and_stops_pinning_the_fleet(self) -> None:
        played = play("cpu/0.9.2-v1/hang")
        stalled = [step for step in played if step.decision.counts.stalled]

        assert round(stalled[0].at) == 135
        assert all(step in stalled for step in played if step.at > 135)
        assert stalled[0].decision.pods[0].running == 2
        assert stalled[0].decision.pods[0].waiting == 35

    def test_a_mass_abort_is_over_at_the_next_scrape(self) -> None:
        played = play("cpu/0.32.0-v1/abort", interval=1.0)
        after = next(step for step in played if step.at > 11)

        assert after.decision.fleet.in_flight == 0
        assert after.decision.active
        assert all((step.decision.fleet.arrival_rate or 0) >= 0 for step in played)

    def test_a_restart_is_held_over_and_counted_once(self) -> None:
        played = play("cpu/0.32.0-v1/restart")
        held = [round(s.at) for s in played if s.decision.reason is Reason.HOLD]
        rates = [s.decision.fleet.finish_rate or 0 for s in played]

        assert held == [35, 40, 45, 50, 55]
        assert all(s.decision.desired == 8 for s in played if 15 < s.at < 58)
        assert 0 <= min(rates) <= max(rates) < 10

    def test_two_engines_are_one_pod(self) -> None:
        loaded = max(
            play("cpu/0.32.0-v1-dp2/loaded"), key=lambda s: s.decision.fleet.waiting or 0
        ).decision

        assert (loaded.fleet.running, loaded.fleet.waiting) == (16, 69)
        assert loaded.counts.ready == 1

    @pytest.mark.parametrize(
        ("exposition", "state"),
        [
            ("0.8.5-v0/fresh", PodState.FRESH),
            ("0.32.0-v1-dp2/fresh", PodState.FRESH),
            ("0.32.0-v1/fresh-disable-log-stats", PodState.MISSING),
            ("0.32.0-v1/after-load-disable-log-stats", PodState.MISSING),
        ],
    )
    def test_a_missing_gauge_is_idle_and_missing_families_are_unknown(
        self, exposition: str, state: PodState
    ) -> None:
        body = (HOME / "cpu" / f"{exposition}.txt").read_bytes()
        decision = Fleet().tick({"pod": read_exposition(body)})

        assert decision.pods[0].state is state
        assert decision.valid is (state is PodState.FRESH)
        assert decision.desired == 0
