"""The decision as timelines: what is seen at each scrape, what is answered.

Cases of vLLM (V), KEDA and the HPA (K), discovery (D) and prediction (F) are named by their ids.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from math import ceil
from typing import ClassVar

import pytest
from fakes import (
    INF,
    QUEUE_BOUNDS,
    REFUSED,
    START,
    TIMED_OUT,
    TTFT_BOUNDS,
    Fleet,
    histogram,
    pod_sample,
    sample,
)

from scaler.core.model import (
    Count,
    Decision,
    Guard,
    ModelSample,
    PodLife,
    PodSample,
    PodState,
    Reason,
    ScrapeCause,
    ScrapeFailure,
    Signal,
)
from scaler.core.policy import TriggerPolicy, Window

Answers = dict[str, ModelSample | PodSample | ScrapeFailure | None]

IDLE = sample(0, 0, 0.0)


def busy(running: float, waiting: float = 0, kv: float | None = None) -> ModelSample:
    return sample(running, waiting, kv)


def window(desired: int, start: str = "0 9 * * *", end: str = "0 12 * * *") -> Window:
    return Window("UTC", start, end, desired)


class TestLoad:
    def test_each_signal_is_replicas_and_the_largest_counts(self) -> None:
        fleet = Fleet(TriggerPolicy(target_in_flight=10))

        decision = fleet.tick({"a": busy(20, 4, 0.5), "b": busy(30, 2, 0.35)})

        assert decision.signals[Signal.QUEUE].needed == pytest.approx(6 / 5)
        assert decision.signals[Signal.CONCURRENCY].needed == pytest.approx(5.6)
        assert decision.signals[Signal.KV].needed == pytest.approx(1.0)
        assert (decision.desired, decision.binding) == (6, Signal.CONCURRENCY)
        assert decision.pressure == pytest.approx(2.8)
        assert (decision.valid, decision.active, decision.reason) == (True, True, Reason.LOAD)

    def test_no_load_is_zero_and_inactive(self) -> None:
        decision = Fleet().tick({"a": IDLE})

        assert (decision.desired, decision.active, decision.valid) == (0, False, True)
        assert decision.reason is Reason.IDLE

    def test_work_in_flight_needs_somebody(self) -> None:
        decision = Fleet().tick({"a": busy(1)})

        assert (decision.desired, decision.reason) == (1, Reason.LOAD)

    def test_float_dust_buys_no_replica(self) -> None:
        fleet = Fleet(TriggerPolicy(target_in_flight=0.1))

        decision = fleet.tick({"a": busy(0.1), "b": busy(0.2)})

        assert decision.signals[Signal.CONCURRENCY].needed > 3.0
        assert decision.desired == 3

    def test_spare_replicas_are_for_the_active(self) -> None:
        fleet = Fleet(TriggerPolicy(spare_replicas=2))

        quiet = fleet.tick({"a": IDLE})
        loaded = fleet.tick({"a": busy(1, 4)})

        assert (quiet.desired, quiet.active) == (0, False)
        assert (loaded.desired, loaded.reason, loaded.guards) == (3, Reason.SPARE, (Guard.SPARE,))

    def test_bounds(self) -> None:
        fleet = Fleet(TriggerPolicy(min_replicas=2, max_replicas=4))

        low = fleet.tick({"a": IDLE})
        high = fleet.tick({"a": busy(0, 100)})

        assert (low.desired, low.reason, low.active) == (2, Reason.MIN_REPLICAS, True)
        assert (high.desired, high.reason) == (4, Reason.MAX_REPLICAS)
        assert high.guards == (Guard.MAX_REPLICAS,)

    def test_down_ratio_holds_until_the_load_fits_well(self) -> None:
        fleet = Fleet(TriggerPolicy(target_in_flight=10, down_ratio=0.8))

        answers = [fleet.tick({"a": busy(load)}) for load in (50, 39, 33, 32, 31)]

        assert [d.desired for d in answers] == [5, 5, 5, 4, 4]
        assert answers[1].reason is Reason.DOWN_RATIO
        assert answers[1].guards == (Guard.DOWN_RATIO,)
        assert answers[3].reason is Reason.LOAD

    def test_down_ratio_keeps_spares_and_occupied_places(self) -> None:
        policy = TriggerPolicy(target_in_flight=10, down_ratio=0.8, spare_replicas=1)
        fleet = Fleet(policy)
        lives = {"x": PodLife.CRASH_LOOPING}

        first = fleet.tick({"a": busy(50), "x": None}, lives=lives)
        second = fleet.tick({"a": busy(32), "x": None}, lives=lives)
        third = fleet.tick({"a": busy(39), "x": None}, lives=lives)

        assert [d.desired for d in (first, second, third)] == [7, 6, 6]

    def test_schedules_alone_need_no_signal(self) -> None:
        policy = TriggerPolicy(target_waiting=None, target_kv_usage=None, windows=(window(3),))
        decision = Fleet(policy, start=START + timedelta(hours=2)).tick({"a": busy(5)})

        assert (decision.valid, decision.desired) == (True, 3)
        assert decision.reason is Reason.SCHEDULE_FLOOR

    def test_no_signal_yet_is_not_zero(self) -> None:
        policy = TriggerPolicy(target_waiting=None, target_kv_usage=None, target_token_rate=100)
        decision = Fleet(policy).tick({"a": busy(5)})

        assert (decision.valid, decision.reason) == (False, Reason.NO_DATA)
        assert decision.message == "no signal can be computed yet from what is there"

    def test_v02_declared_without_samples_is_idle(self) -> None:
        decision = Fleet().tick({"a": pod_sample(None)})

        assert (decision.valid, decision.desired, decision.active) == (True, 0, False)
        assert (decision.counts.ready, decision.counts.fresh) == (1, 1)
        assert (decision.fleet.running, decision.fleet.waiting) == (0, 0)
        assert decision.fleet.kv_mean is None
        assert Signal.KV not in decision.signals

    def test_v17_a_capped_input_does_not_hide_the_queue(self) -> None:
        fleet = Fleet(TriggerPolicy(target_in_flight=2, target_waiting=5))
        jammed = busy(1, 30)

        fleet.tick({"a": jammed})
        decision = fleet.tick({"a": jammed})

        assert decision.signals[Signal.QUEUE].needed == 6
        assert decision.desired == ceil(31 / 2)
        assert decision.notes == (
            (
                "targetInFlight 2 is above the 1 requests a pod was seen to run while others "
                "waited: it is reached late"
            ),
        )

    def test_v17_queue_alone(self) -> None:
        assert Fleet().tick({"a": busy(1, 30)}).desired == 6


class TestKv:
    def test_v12_an_absent_kv_counts_as_the_mean_of_the_others(self) -> None:
        fleet = Fleet(TriggerPolicy(target_kv_usage=0.5))

        decision = fleet.tick({"a": busy(5, 0, None), "b": busy(5, 0, 0.5)})

        assert decision.fleet.kv_mean == 0.5
        assert decision.signals[Signal.KV].needed == pytest.approx(2.0)

    def test_a_pod_with_nothing_in_flight_needs_no_kv(self) -> None:
        """Old versions count the null block, prefill pods hold blocks for a transfer."""
        decision = Fleet().tick({"a": sample(0, 0, 0.05)})

        assert decision.desired == 0
        assert decision.fleet.kv_max == 0.05

    def test_k16_hot_pods_are_not_multiplied_by_those_still_loading(self) -> None:
        fleet = Fleet(TriggerPolicy(target_kv_usage=0.5))
        hot = {"a": busy(10, 0, 0.95), "b": busy(10, 0, 0.95)}
        lives = {"c": PodLife.STARTING, "d": PodLife.STARTING}

        answers = [fleet.tick(hot).desired]
        answers += [fleet.tick(hot | {"c": None, "d": None}, lives=lives).desired for _ in range(3)]
        cooled = {name: busy(5, 0, 0.48) for name in "abcd"}
        answers.append(fleet.tick(cooled).desired)

        assert answers == [4, 4, 4, 4, 4]


class TestThroughput:
    POLICY = TriggerPolicy(
        target_in_flight=10, target_token_rate=1000.0, target_waiting=1.0, drain_time=60.0
    )

    def served(
        self, finished: float, running: float, waiting: float = 0, *, per_request: float = 100
    ) -> ModelSample:
        """After ``finished`` requests of 60 prompt and 40 answer tokens (in the mean)."""
        prompt, answer = 0.6 * per_request, 0.4 * per_request
        return sample(
            running,
            waiting,
            counts={
                Count.FINISHED: finished,
                Count.PROMPT_TOKENS: prompt * finished,
                Count.GENERATION_TOKENS: answer * finished,
                Count.OUTPUT_LENGTH_SUM: answer * finished,
                Count.OUTPUT_LENGTH_COUNT: finished,
            },
            ttft=histogram(TTFT_BOUNDS, *[0.2] * int(finished)),
        )

    def test_arriving_tokens_over_what_a_replica_carries(self) -> None:
        fleet = Fleet(self.POLICY)

        fleet.tick({"a": self.served(0, 5)})
        decision = fleet.tick({"a": self.served(100, 5)})

        assert decision.fleet.arrival_rate == 20
        assert decision.fleet.tokens_per_request == 100
        assert decision.signals[Signal.THROUGHPUT].needed == pytest.approx(2.0)

    def test_without_a_target_in_flight_the_backlog_is_what_waits(self) -> None:
        fleet = Fleet(replace(self.POLICY, target_in_flight=None))

        fleet.tick({"a": self.served(0, 200)})
        decision = fleet.tick({"a": self.served(50, 180, 20)})

        needed = decision.signals[Signal.THROUGHPUT].needed
        assert needed == pytest.approx((14 * 100 + 20 * 100 / 60) / 1000)

    def test_it_caps_what_a_short_burst_may_ask_for(self) -> None:
        """600 short requests in flight are an hour of queue for nobody: the work is what counts."""
        fleet = Fleet(self.POLICY)

        fleet.tick({"a": self.served(0, 5)})
        decision = fleet.tick({"a": self.served(100, 205)})

        throughput = decision.signals[Signal.THROUGHPUT]
        assert throughput.needed == pytest.approx((60 * 100 + 195 * 100 / 60) / 1000)
        assert decision.signals[Signal.CONCURRENCY].needed == 20.5
        assert decision.signals[Signal.CONCURRENCY].counted == throughput.needed
        assert (decision.desired, decision.guards) == (7, (Guard.THROUGHPUT_CAP,))

    def test_a_closed_loop_of_clients_is_not_capped_at_what_is_served(self) -> None:
        """Arrivals equal completions, nothing waits, yet 200 are in flight where 10 belong."""
        fleet = Fleet(self.POLICY)

        fleet.tick({"a": self.served(0, 200)})
        decision = fleet.tick({"a": self.served(50, 200)})

        needed = decision.signals[Signal.THROUGHPUT].needed
        assert needed == pytest.approx((10 * 100 + 190 * 100 / 60) / 1000)

    def test_it_does_not_cap_while_a_pod_is_unseen(self) -> None:
        fleet = Fleet(self.POLICY)

        fleet.tick({"a": self.served(0, 5), "b": TIMED_OUT})
        decision = fleet.tick({"a": self.served(100, 205), "b": TIMED_OUT})

        assert Guard.THROUGHPUT_CAP not in decision.guards
        assert decision.desired == ceil(2 * 205 / 10)

    def test_the_last_known_request_size_serves_until_enough_have_finished(self) -> None:
        fleet = Fleet(self.POLICY)
        fleet.tick({"a": self.served(0, 5)})
        fleet.tick({"a": self.served(100, 5)})
        fleet.tick({"a": self.served(100, 0)}, seconds=120)

        decision = fleet.tick({"a": self.served(101, 30)})

        assert decision.fleet.tokens_per_request == 100

    def test_cached_prompt_tokens_are_no_work(self) -> None:
        fleet = Fleet(self.POLICY)
        after = self.served(100, 5)
        cached = replace(after, counts={**after.counts, Count.CACHED_TOKENS: 3000.0})

        fleet.tick({"a": self.served(0, 5)})
        decision = fleet.tick({"a": cached})

        assert decision.fleet.tokens_per_request == 70

    def test_rates_go_silent_with_the_data_they_rest_on(self) -> None:
        fleet = Fleet(self.POLICY, fresh_for=500.0)
        fleet.tick({"a": self.served(0, 5)})
        fleet.tick({"a": self.served(100, 5)})

        decision = fleet.tick({"a": None}, seconds=200)

        assert decision.fleet.arrival_rate is None
        assert Signal.THROUGHPUT not in decision.signals


class TestWaits:
    def test_v09_no_dip_while_nothing_finishes(self) -> None:
        fleet = Fleet(TriggerPolicy(target_queue_time=10))
        silent = sample(16, 50, queue_time=histogram(QUEUE_BOUNDS, 0.2))
        late = sample(16, 50, queue_time=histogram(QUEUE_BOUNDS, 0.2, *[300.0] * 16))

        answers = [fleet.tick({"a": silent}) for _ in range(60)]
        last = fleet.tick({"a": late})

        assert all(d.desired >= 10 for d in [*answers, last])
        assert all(not d.fleet.latencies for d in answers)
        [quantiles] = last.fleet.latencies.values()
        assert quantiles.mean == pytest.approx(300.0)
        assert last.signals[Signal.QUEUE_TIME].needed == 2

    def test_expected_wait_leads_the_histogram(self) -> None:
        fleet = Fleet(TriggerPolicy(target_queue_time=10, target_waiting=None))

        fleet.tick({"a": sample(8, 0, ttft=histogram(TTFT_BOUNDS, *[0.2] * 10))})
        decision = fleet.tick({"a": sample(8, 30, ttft=histogram(TTFT_BOUNDS, *[0.2] * 20))})

        assert decision.fleet.expected_wait == 15.0
        assert decision.signals[Signal.QUEUE_TIME].needed == 1.5

    def test_without_first_tokens_the_wait_is_at_least_as_long_as_the_queue_is_old(self) -> None:
        fleet = Fleet(TriggerPolicy(target_queue_time=10))
        jammed = sample(8, 3, ttft=histogram(TTFT_BOUNDS, 0.2))

        waits = [fleet.tick({"a": jammed}).fleet.expected_wait for _ in range(4)]

        assert waits == [None, 5.0, 10.0, 15.0]

    def test_a_queue_time_that_is_over_does_not_count(self) -> None:
        fleet = Fleet(TriggerPolicy(target_queue_time=10))
        fleet.tick({"a": sample(8, 0, queue_time=histogram(QUEUE_BOUNDS, 0.1))})
        done = sample(0, 0, queue_time=histogram(QUEUE_BOUNDS, 0.1, *[50.0] * 8))

        decision = fleet.tick({"a": done})

        assert decision.signals[Signal.QUEUE_TIME].needed == 2
        assert decision.signals[Signal.QUEUE_TIME].counted is None
        assert decision.desired == 0


class TestTtft:
    policy = TriggerPolicy(target_ttft=2.0, target_waiting=None, target_kv_usage=None)

    def seen(
        self, before: int, after: int, *, running: float, waiting: float = 0, ttft: float
    ) -> Decision:
        """After ``after - before`` first tokens that took ``ttft`` seconds each."""
        fleet = Fleet(self.policy)
        quick = histogram(TTFT_BOUNDS, *[0.05] * before)
        slow = histogram(TTFT_BOUNDS, *[0.05] * before, *[ttft] * (after - before))
        fleet.tick({"a": sample(running, waiting, ttft=quick)})
        return fleet.tick({"a": sample(running, waiting, ttft=slow)})

    def test_a_broken_promise_with_a_queue_counts(self) -> None:
        decision = self.seen(1, 21, running=50, waiting=4, ttft=4.0)
        reading = decision.signals[Signal.TTFT]

        assert reading.observed == pytest.approx(4.875)
        assert reading.needed == reading.counted == 2.0
        assert decision.fleet.within_promise == (0.0, 0.0)
        assert not decision.infeasible_promise

    def test_a_queue_hidden_inside_running_is_evidence_too(self) -> None:
        """Little's law: 4 first tokens a second x 4 s each = 16 requests before their first."""
        decision = self.seen(1, 21, running=50, ttft=4.0)

        assert decision.signals[Signal.TTFT].counted == 2.0

    def test_running_at_the_target_is_evidence(self) -> None:
        policy = replace(self.policy, target_in_flight=50)
        self.policy = policy
        decision = self.seen(1, 2, running=50, ttft=4.0)

        assert decision.signals[Signal.TTFT].counted == 2.0

    def test_broken_when_idle_is_infeasible_and_holds_nothing(self) -> None:
        decision = self.seen(1, 2, running=1, ttft=4.0)

        assert decision.signals[Signal.TTFT].counted is None
        assert decision.infeasible_promise
        assert decision.notes[0].startswith("infeasible_promise: ")

    def test_kept_without_a_queue_is_simply_fine(self) -> None:
        decision = self.seen(1, 2, running=1, ttft=0.3)

        assert not decision.infeasible_promise
        assert decision.fleet.within_promise == (1.0, 1.0)

    def test_over_and_idle_does_not_count(self) -> None:
        decision = self.seen(1, 21, running=0, ttft=4.0)

        assert decision.signals[Signal.TTFT].counted is None

    def test_without_new_first_tokens_there_is_no_ttft(self) -> None:
        policy = replace(self.policy, target_waiting=5)
        self.policy = policy
        decision = self.seen(1, 1, running=5, ttft=4.0)

        assert Signal.TTFT not in decision.signals


class TestActivity:
    def test_k08_busy_but_not_queued_stays_active(self) -> None:
        fleet = Fleet()

        assert all(fleet.tick({"a": busy(3)}).active for _ in range(120))

    def test_active_hold_outlasts_the_last_request(self) -> None:
        fleet = Fleet(TriggerPolicy(active_hold=20))
        fleet.tick({"a": busy(1)})

        assert [fleet.tick({"a": IDLE}).active for _ in range(6)] == [True] * 4 + [False] * 2

    def test_requests_served_between_two_scrapes_are_activity(self) -> None:
        fleet = Fleet()
        fleet.tick({"a": sample(0, 0, counts={Count.FINISHED: 10})})

        assert fleet.tick({"a": sample(0, 0, counts={Count.FINISHED: 11})}).active

    def test_a_loading_pod_is_activity(self) -> None:
        decision = Fleet().tick({"a": REFUSED}, lives={"a": PodLife.STARTING})

        assert (decision.active, decision.desired, decision.reason) == (True, 1, Reason.STARTING)

    def test_a_wake_source_is_activity(self) -> None:
        assert Fleet().tick({}, snapshot={"waking": True}).active

    def test_k09_zero_pods_is_a_legal_state(self) -> None:
        policy = TriggerPolicy(windows=(window(3),), lead_time=0.0)
        fleet = Fleet(policy, start=START + timedelta(minutes=59))

        empty = fleet.tick({})
        fleet.sleep(60)
        opened = fleet.tick({})
        woken = fleet.tick({}, snapshot={"waking": True})
        fleet.sleep(6 * 3600)
        closed = fleet.tick({})
        fleet.sleep(61)
        unlisted = fleet.tick({}, snapshot={"discovery_error": "connection refused"})

        assert (empty.valid, empty.desired, empty.active) == (True, 0, False)
        assert empty.reason is Reason.NO_PODS
        assert (opened.valid, opened.desired, opened.active) == (True, 3, True)
        assert woken.active
        assert (closed.desired, closed.active) == (0, False)
        assert (unlisted.valid, unlisted.reason) == (False, Reason.CANNOT_LIST_PODS)
        assert unlisted.message == "cannot list pods: connection refused"


class TestMissingData:
    def test_one_dead_pod_keeps_its_last_value_then_counts_as_the_mean(self) -> None:
        fleet = Fleet()
        fleet.tick({"a": busy(0, 10), "b": busy(0, 10), "c": busy(0, 40)})

        waiting = []
        for _ in range(16):
            decision = fleet.tick({"a": busy(0, 10), "b": busy(0, 20), "c": REFUSED})
            waiting.append(decision.fleet.waiting)

        assert waiting[:12] == [70] * 12  # 60 s: its own last value
        assert waiting[12:] == [45] * 4  # then the mean of the others
        assert decision.valid
        assert (decision.counts.ready, decision.counts.fresh) == (3, 2)

    def test_a_pod_never_seen_counts_as_the_mean(self) -> None:
        decision = Fleet().tick({"a": busy(0, 10), "b": TIMED_OUT})

        assert decision.fleet.waiting == 20
        assert decision.pods[1].state is PodState.MISSING

    def test_all_dead_holds_and_then_says_so(self) -> None:
        fleet = Fleet(TriggerPolicy(hold_seconds=60))
        fleet.tick({"a": busy(5, 20), "b": busy(5, 0)})

        answers = [fleet.tick({"a": TIMED_OUT, "b": TIMED_OUT}) for _ in range(20)]

        # fresh for 19 s, held for 60 s after that, then silent; active stays what it was
        assert [d.valid for d in answers] == [True] * 15 + [False] * 5
        assert {d.desired for d in answers} == {4}
        assert answers[2].reason is Reason.LOAD
        assert (answers[5].reason, answers[5].guards) == (Reason.HOLD, (Guard.HOLD,))
        assert answers[-1].reason is Reason.NO_DATA
        assert answers[-1].message == "0/2 targets usable (a: no answer within 4 s)"
        assert all(d.active for d in answers)

    def test_v03_200_without_vllm_families_is_blind_and_named(self) -> None:
        empty = ScrapeFailure(ScrapeCause.NO_VLLM_METRICS, "no vllm:* families")
        decision = Fleet().tick({"http://a:8000": empty})

        assert (decision.valid, decision.active) == (False, True)
        assert decision.message == "0/1 targets usable (http://a:8000: no vllm:* families)"

    def test_v13_pods_without_usable_samples_never_answer_zero(self) -> None:
        bad = ScrapeFailure(ScrapeCause.NON_FINITE, "num_requests_waiting is +Inf")
        fleet = Fleet()
        fleet.tick({"a": busy(0, 50), "b": busy(0, 50), "c": busy(0, 50)})

        partly = fleet.tick({"a": bad, "b": busy(0, 50), "c": busy(0, 50)})
        answers = [fleet.tick({"a": bad, "b": bad, "c": bad}) for _ in range(30)]

        assert partly.desired == 30
        assert {d.desired for d in answers if d.valid} == {30}
        assert not answers[-1].valid

    def test_d02_below_quorum_goes_up_only_then_says_so(self) -> None:
        fleet = Fleet(TriggerPolicy(hold_seconds=60))
        names = [f"p{n}" for n in range(10)]
        fleet.tick({name: busy(0, 10) for name in names})

        def partial(waiting: float) -> dict[str, ModelSample | ScrapeFailure]:
            return {n: busy(0, waiting) if n in names[:4] else TIMED_OUT for n in names}

        fleet.sleep(20)
        less = fleet.tick(partial(0))
        more = fleet.tick(partial(100))
        less_again = fleet.tick(partial(0))
        fleet.sleep(60)
        late = fleet.tick(partial(0))

        assert (less.desired, less.valid, less.reason) == (20, True, Reason.BELOW_QUORUM)
        assert less.guards == (Guard.UP_ONLY,)
        assert more.desired == 92  # 4 pods' own 400, 6 pods' last 10 each, / 5
        assert more.reason is Reason.LOAD
        assert less_again.desired == 92
        assert (late.valid, late.reason) == (False, Reason.QUORUM_LOST)
        assert late.message == "4/10 targets usable (p4: no answer within 4 s), quorum 50%"

    def test_d02_a_quorum_never_had_is_no_answer(self) -> None:
        decision = Fleet().tick({"a": busy(0, 9), "b": TIMED_OUT, "c": TIMED_OUT})

        assert (decision.valid, decision.reason) == (False, Reason.QUORUM_LOST)

    def test_a_floor_above_what_runs_is_answered_blind(self) -> None:
        policy = TriggerPolicy(windows=(window(6),), lead_time=240.0)
        fleet = Fleet(policy, start=START + timedelta(minutes=50))
        fleet.tick({"a": busy(1), "b": busy(1)})
        fleet.sleep(100)
        blind = fleet.tick({"a": REFUSED, "b": REFUSED})
        fleet.sleep(270)  # 08:56:20, and the window opens at 09:00 with four minutes of lead
        due = fleet.tick({"a": REFUSED, "b": REFUSED})
        grown = fleet.tick(dict.fromkeys("abcdef", REFUSED))

        assert (blind.valid, blind.reason) == (False, Reason.NO_DATA)
        assert (due.valid, due.desired, due.reason) == (True, 6, Reason.FLOOR_ONLY)
        assert due.active
        assert not grown.valid  # six pods are there: nothing more to say without data

    def test_a_floor_that_opens_during_the_hold_joins_the_held_value(self) -> None:
        policy = TriggerPolicy(windows=(window(6),), lead_time=0.0)
        fleet = Fleet(policy, start=START + timedelta(minutes=59, seconds=30))
        fleet.tick({"a": busy(1, 9)})
        fleet.tick({"a": REFUSED}, seconds=40)

        decision = fleet.tick({"a": REFUSED}, snapshot={"forecast_floor": 7})

        assert (decision.desired, decision.reason) == (7, Reason.FORECAST_FLOOR)

    @pytest.mark.parametrize(
        ("replicas", "valid"),
        [pytest.param(3, True, id="below the floor"), pytest.param(8, False, id="above it")],
    )
    def test_blind_to_the_list_the_scale_says_what_runs(self, replicas: int, valid: bool) -> None:
        fleet = Fleet(TriggerPolicy(windows=(window(6),)), start=START + timedelta(hours=2))
        decision = fleet.tick(
            {}, snapshot={"discovery_error": "timeout", "current_replicas": replicas}
        )

        assert decision.valid is valid

    def test_blind_to_the_list_with_no_past_is_active_and_invalid(self) -> None:
        decision = Fleet().tick({}, snapshot={"discovery_error": "timeout"})

        assert (decision.valid, decision.active) == (False, True)
        assert (decision.signals, decision.fleet.running) == ({}, None)

    def test_pods_that_cannot_be_listed_are_remembered(self) -> None:
        fleet = Fleet(TriggerPolicy())
        fleet.tick({"a": sample(2, 0, counts={Count.FINISHED: 1})})
        held = fleet.tick({}, snapshot={"discovery_error": "timeout"})
        decision = fleet.tick({"a": sample(2, 0, counts={Count.FINISHED: 21})})

        assert held.reason is Reason.HOLD
        assert decision.fleet.finish_rate == 2.0

    def test_d04_loading_pods_are_neither_failures_nor_quorum(self) -> None:
        fleet = Fleet()
        lives = dict.fromkeys("cde", PodLife.STARTING)
        loading = dict.fromkeys("cde", REFUSED)
        answers: Answers = {"a": busy(1), "b": busy(1), **loading}

        decision = fleet.tick(answers, lives=lives)

        assert decision.valid
        assert (decision.counts.starting, decision.counts.ready) == (3, 2)

    def test_d06_a_deleted_pod_is_gone_at_once(self) -> None:
        fleet = Fleet()
        fleet.tick({name: busy(0, 30) for name in "abc"})

        assert fleet.tick({"a": busy(0, 30)}).fleet.waiting == 30

    def test_d03_terminating_pods_are_out(self) -> None:
        fleet = Fleet()
        decision = fleet.tick({"a": busy(0, 5), "b": busy(9, 4)}, lives={"b": PodLife.TERMINATING})

        assert decision.fleet.in_flight == 5
        assert (decision.counts.total, decision.counts.terminating) == (1, 1)

    def test_t15_a_stepped_wall_clock_ages_nothing(self) -> None:
        policy = TriggerPolicy(windows=(window(4),), lead_time=0.0)
        fleet = Fleet(policy, start=START + timedelta(minutes=65))
        before = fleet.tick({"a": busy(1)})
        fleet.wall -= timedelta(minutes=10)
        back = fleet.tick({"a": busy(1)})
        fleet.wall += timedelta(hours=2)
        ahead = fleet.tick({"a": busy(1)})

        assert [d.floors.schedule for d in (before, back, ahead)] == [4, 0, 4]
        assert all(d.valid and d.pods[0].age == 0 for d in (before, back, ahead))


class TestStaticEndpoints:
    """Nobody says whether a static endpoint should be serving."""

    LIVES: ClassVar = {"a": PodLife.UNKNOWN, "b": PodLife.UNKNOWN}

    def test_one_that_refuses_and_never_answered_is_loading(self) -> None:
        decision = Fleet().tick({"a": busy(0, 9), "b": REFUSED}, lives=self.LIVES)

        assert decision.valid
        assert (decision.counts.ready, decision.counts.starting) == (1, 1)
        assert decision.fleet.waiting == 9

    def test_none_that_ever_answered_is_no_zero(self) -> None:
        decision = Fleet().tick({"a": REFUSED, "b": REFUSED}, lives=self.LIVES)

        assert (decision.valid, decision.active) == (False, True)
        assert decision.message == (
            "no endpoint has answered yet: 2 refuse connections (still loading, or the wrong port?)"
        )

    def test_one_that_never_comes_up_is_missing_in_the_end(self) -> None:
        fleet = Fleet(TriggerPolicy(cold_start=10))
        answers: Answers = {"a": busy(0, 9), "b": REFUSED}

        states = [fleet.tick(answers, lives=self.LIVES).pods[1].state for _ in range(8)]

        assert states == [PodState.STARTING] * 7 + [PodState.MISSING]

    def test_one_that_answered_before_is_dead(self) -> None:
        fleet = Fleet(fresh_for=4.0)
        fleet.tick({"a": busy(0, 9), "b": busy(0, 5)}, lives=self.LIVES)

        decision = fleet.tick({"a": busy(0, 9), "b": REFUSED}, lives=self.LIVES)

        assert decision.pods[1].state is PodState.STALE
        assert decision.fleet.waiting == 14

    def test_one_not_asked_yet_is_missing(self) -> None:
        decision = Fleet().tick({"a": None}, lives=self.LIVES)

        assert decision.message == "0/1 targets usable (a: not scraped yet)"


class TestPodStates:
    def test_v07_frozen_gauges_stop_counting(self) -> None:
        """Mass abort on old vLLM: the gauges stay where they were for ever."""
        counts = {Count.FINISHED: 500.0, Count.GENERATION_TOKENS: 9e5}
        frozen = sample(106, 15, 0.904, counts=counts)
        fleet = Fleet(TriggerPolicy(active_hold=60))

        answers = [fleet.tick({"a": frozen}, seconds=15) for _ in range(40)]
        moved = fleet.tick({"a": sample(2, 0, 0.1, counts={**counts, Count.FINISHED: 501.0})})

        assert [d.counts.stalled for d in answers] == [0] * 9 + [1] * 31
        assert answers[8].desired == 3
        # No demand of its own, but its place: never a zero for what cannot be seen.
        assert (answers[9].desired, answers[9].reason) == (1, Reason.OCCUPIED)
        assert answers[9].composite == 0
        assert (answers[-1].active, answers[-1].valid) == (False, True)
        assert answers[-1].pods[0].running == 106
        assert (moved.counts.stalled, moved.active) == (0, True)

    def test_a_body_without_token_counters_gives_no_reason_to_doubt_its_gauges(self) -> None:
        fleet = Fleet()
        late = sample(9, 9, counts={Count.FINISHED: 3})

        assert all(fleet.tick({"a": late}).counts.stalled == 0 for _ in range(60))

    def test_flat_counters_without_work_are_just_idle(self) -> None:
        fleet = Fleet()
        idle = sample(0, 0, 0.0, counts={Count.GENERATION_TOKENS: 5})

        assert all(fleet.tick({"a": idle}).counts.stalled == 0 for _ in range(60))

    def test_only_a_latency_moves_is_movement(self) -> None:
        fleet = Fleet(TriggerPolicy(stall_after=10))
        for count in range(1, 10):
            decision = fleet.tick({"a": sample(3, 0, ttft=histogram(TTFT_BOUNDS, *[0.2] * count))})

        assert decision.counts.stalled == 0

    def test_stalled_and_crash_looping_pods_hold_a_place(self) -> None:
        fleet = Fleet(TriggerPolicy(stall_after=10))
        stuck = sample(4, 4, counts={Count.GENERATION_TOKENS: 1})
        lives = {"x": PodLife.CRASH_LOOPING, "u": PodLife.UNSCHEDULABLE, "o": PodLife.OVERDUE}
        for _ in range(4):
            decision = fleet.tick(
                {"a": busy(0, 10), "s": stuck, "x": None, "u": None, "o": None}, lives=lives
            )

        assert decision.counts.stalled == decision.counts.crash_looping == 1
        assert (decision.counts.unschedulable, decision.counts.overdue) == (1, 1)
        assert (decision.desired, decision.guards) == (4, (Guard.OCCUPIED,))

    def test_sleeping_pods_are_no_capacity_and_no_failure(self) -> None:
        fleet = Fleet()
        asleep = sample(7, 7, sleeping=True)

        decision = fleet.tick({"a": busy(0, 5), "b": asleep})
        all_asleep = fleet.tick({"a": asleep, "b": asleep})

        assert (decision.counts.sleeping, decision.counts.ready, decision.desired) == (1, 1, 1)
        assert (all_asleep.valid, all_asleep.desired) == (True, 0)
        assert all_asleep.reason is Reason.IDLE

    def test_k17_stuck_pods_never_hold_back_the_answer(self) -> None:
        fleet = Fleet()
        lives = {"c": PodLife.UNSCHEDULABLE, "d": PodLife.UNSCHEDULABLE}
        for minute in range(40):
            waiting = 5 if minute < 20 else 30
            pods = {"a": busy(8, waiting), "b": busy(8, waiting), "c": None, "d": None}
            decision = fleet.tick(pods, lives=lives, seconds=60)

        assert decision.desired == 12

    def test_pods_stuck_before_any_serves_are_not_waited_for(self) -> None:
        decision = Fleet().tick({"a": None}, lives={"a": PodLife.UNSCHEDULABLE})

        assert (decision.valid, decision.desired, decision.active) == (True, 0, False)
        assert decision.reason is Reason.IDLE

    def test_starting_pods_are_kept_and_floors_still_join(self) -> None:
        fleet = Fleet(TriggerPolicy(windows=(window(4),)), start=START + timedelta(hours=2))
        decision = fleet.tick({"a": None}, lives={"a": PodLife.STARTING})

        assert (decision.desired, decision.reason) == (4, Reason.SCHEDULE_FLOOR)

    def test_a_restart_known_by_its_start_time_loses_nothing(self) -> None:
        fleet = Fleet()
        fleet.tick({"a": pod_sample(sample(2, counts={Count.FINISHED: 10}), process_start=1.0)})
        decision = fleet.tick(
            {"a": pod_sample(sample(2, counts={Count.FINISHED: 15}), process_start=90.0)}
        )

        assert decision.fleet.finish_rate == 3.0

    def test_the_same_process_is_known_by_its_start_time(self) -> None:
        fleet = Fleet()
        fleet.tick({"a": pod_sample(sample(2, counts={Count.FINISHED: 10}), process_start=1.0)})
        decision = fleet.tick(
            {"a": pod_sample(sample(2, counts={Count.FINISHED: 15}), process_start=1.0)}
        )

        assert decision.fleet.finish_rate == 1.0

    def test_three_frozen_pods_keep_their_places(self) -> None:
        frozen = sample(106, 15, 0.9, counts={Count.GENERATION_TOKENS: 9e5})
        fleet = Fleet(TriggerPolicy(stall_after=10))
        for _ in range(5):
            decision = fleet.tick(dict.fromkeys("abc", frozen))

        assert (decision.desired, decision.reason) == (3, Reason.OCCUPIED)

    def test_a_frozen_pod_that_falls_silent_is_no_demand_again(self) -> None:
        frozen = sample(8, 55, counts={Count.GENERATION_TOKENS: 9e5})
        live = sample(2, 0, counts={Count.GENERATION_TOKENS: 1.0})
        fleet = Fleet(TriggerPolicy(stall_after=10))
        for _ in range(5):
            fleet.tick({"a": live, "b": live, "x": frozen})
        answers = []
        for count in range(20):
            moving = sample(2, 0, counts={Count.GENERATION_TOKENS: 2.0 + count})
            answers.append(fleet.tick({"a": moving, "b": moving, "x": TIMED_OUT}).desired)

        assert set(answers[:12]) == {2}  # one for the load, one for the place it holds
        assert set(answers[12:]) == {1}

    def test_sleeping_pods_that_stop_answering_are_unknown_in_the_end(self) -> None:
        fleet = Fleet()
        asleep = fleet.tick({"a": sample(7, 7, sleeping=True)})
        answers = [fleet.tick({"a": TIMED_OUT}) for _ in range(100)]

        assert (asleep.valid, asleep.desired) == (True, 0)
        assert answers[5].reason is Reason.HOLD
        assert (answers[-1].valid, answers[-1].reason) == (False, Reason.NO_DATA)

    def test_a_silent_sleeper_beside_busy_pods_carries_no_load_of_its_own(self) -> None:
        fleet = Fleet()
        fleet.tick({"a": busy(0, 5), "b": sample(7, 70, sleeping=True)})
        fleet.sleep(20)
        decision = fleet.tick({"a": busy(0, 5), "b": TIMED_OUT})

        assert decision.pods[1].state is PodState.STALE
        assert decision.fleet.waiting == 5

    def test_all_pods_back_to_starting_keep_the_answer_for_a_while(self) -> None:
        fleet = Fleet(TriggerPolicy(hold_seconds=60))
        fleet.tick({"a": busy(0, 60)})
        lives = dict.fromkeys("abc", PodLife.STARTING)
        answers = [fleet.tick(dict.fromkeys("abc"), lives=lives) for _ in range(14)]

        assert [d.desired for d in answers] == [12] * 12 + [3] * 2
        assert {d.reason for d in answers} == {Reason.STARTING}

    def test_v11_a_reset_is_counted_once(self) -> None:
        fleet = Fleet()
        counts = [{Count.FINISHED: n} for n in (40.0, 4.0, 9.0)]

        assert [fleet.tick({"a": sample(counts=c)}).resets for c in counts] == [0, 1, 0]


class TestUnknownIsNoZero:
    def test_a_fleet_of_which_nothing_is_known_shows_nothing(self) -> None:
        decision = Fleet().tick({"a": REFUSED}, lives={"a": PodLife.UNKNOWN})

        assert not decision.valid
        assert (decision.fleet.running, decision.fleet.waiting) == (None, None)
        assert decision.signals == {}

    def test_declared_families_of_a_process_that_has_served_are_no_idle_pod(self) -> None:
        fleet = Fleet()
        served = sample(8, 50, counts={Count.FINISHED: 900})
        fleet.tick({"a": pod_sample(served, process_start=1.0)})
        decision = fleet.tick({"a": pod_sample(None, process_start=1.0)}, seconds=20)

        assert decision.desired == 10
        assert decision.pods[0].failure is not None
        assert decision.pods[0].failure.detail == "the series of a pod that has served are gone"

    def test_declared_families_of_a_new_process_are(self) -> None:
        fleet = Fleet()
        served = sample(8, 50, counts={Count.FINISHED: 900})
        fleet.tick({"a": pod_sample(served, process_start=1.0)})
        decision = fleet.tick({"a": pod_sample(None, process_start=99.0)})

        assert (decision.valid, decision.desired) == (True, 0)

    def test_without_first_tokens_to_count_the_wait_is_not_known(self) -> None:
        fleet = Fleet(TriggerPolicy(target_queue_time=10))
        for count in range(5):
            decision = fleet.tick({"a": sample(8, 1, counts={Count.FINISHED: 50.0 * count})})

        assert decision.fleet.expected_wait is None
        assert Signal.QUEUE_TIME not in decision.signals

    def test_what_is_not_seen_may_be_busy(self) -> None:
        """Below quorum, idle pods do not make the fleet inactive."""
        fleet = Fleet(TriggerPolicy(active_hold=0))
        names = [f"p{n}" for n in range(10)]
        fleet.tick({name: busy(1) for name in names})
        fleet.sleep(20)
        partial = {n: IDLE if n in names[:4] else TIMED_OUT for n in names}
        answers = [fleet.tick(partial) for _ in range(40)]

        assert all(d.active for d in answers)
        assert not answers[-1].valid

    def test_a_share_is_not_missed_by_floating_point(self) -> None:
        fleet = Fleet(TriggerPolicy(quorum=0.55))
        pods: Answers = {f"p{n}": busy(1) if n < 55 else TIMED_OUT for n in range(100)}

        assert fleet.tick(pods).valid


class TestModels:
    def test_the_dead_have_no_say_in_the_model(self) -> None:
        fleet = Fleet()
        fleet.tick({"a": pod_sample(busy(1), name="llama"), "b": pod_sample(busy(1), name="llama")})
        fleet.sleep(20)
        decision = fleet.tick({"a": pod_sample(busy(1), name="qwen"), "b": REFUSED})

        assert (decision.valid, decision.model) == (True, "qwen")

    def test_those_who_leave_have_none_either(self) -> None:
        pods = {"a": pod_sample(busy(1), name="qwen"), "b": pod_sample(busy(1), name="llama")}
        decision = Fleet().tick(pods, lives={"b": PodLife.TERMINATING})

        assert (decision.valid, decision.model) == (True, "qwen")

    def test_a_fleet_that_falls_silent_keeps_its_model(self) -> None:
        fleet = Fleet()
        fleet.tick({"a": pod_sample(busy(1), name="qwen")})
        fleet.sleep(100)

        assert fleet.tick({"a": TIMED_OUT}).model == "qwen"

    def test_several_models_and_no_choice_is_an_error_that_lists_them(self) -> None:
        pods = {"a": pod_sample(IDLE, name="llama"), "b": pod_sample(IDLE, name="qwen")}
        decision = Fleet().tick(pods)

        assert (decision.valid, decision.reason) == (False, Reason.AMBIGUOUS_MODEL)
        assert decision.message == (
            "the pods serve several models (llama, qwen): set `model` to one"
        )

    def test_the_chosen_model_is_read(self) -> None:
        both = PodSample({"llama": busy(0, 50), "qwen": busy(0, 5)})
        decision = Fleet(TriggerPolicy(model="qwen")).tick({"a": both})

        assert (decision.desired, decision.model) == (1, "qwen")

    def test_a_pod_that_serves_another_model_has_no_data(self) -> None:
        decision = Fleet(TriggerPolicy(model="qwen")).tick({"a": pod_sample(IDLE, name="llama")})

        assert decision.message == (
            "0/1 targets usable (a: serves llama; the trigger wants 'qwen')"
        )

    def test_the_one_model_is_found(self) -> None:
        assert Fleet().tick({"a": pod_sample(IDLE, name="llama")}).model == "llama"


class TestFloors:
    def test_f02_a_spike_before_its_window_is_met_at_once(self) -> None:
        policy = TriggerPolicy(windows=(window(8, start="45 8 * * *"),), lead_time=0.0)
        fleet = Fleet(policy, start=START + timedelta(minutes=20))
        early = fleet.tick({"a": busy(8, 60)})
        fleet.sleep(25 * 60)
        within = fleet.tick({"a": busy(8, 60)})

        assert (early.desired, early.floors.schedule) == (12, 0)
        assert (within.desired, within.floors.schedule) == (12, 8)

    def test_f10_floors_join_by_maximum(self) -> None:
        fleet = Fleet(TriggerPolicy(windows=(window(6),)), start=START + timedelta(hours=2))
        loaded = fleet.tick({"a": busy(2, 20)})
        served = fleet.tick({"a": busy(2, 0)})

        assert [loaded.desired, served.desired] == [6, 6]
        assert loaded.reason is Reason.SCHEDULE_FLOOR

    def test_f11_a_lower_forecast_takes_nothing_away(self) -> None:
        assert Fleet().tick({"a": busy(0, 50)}, snapshot={"forecast_floor": 3}).desired == 10

    def test_f12_a_wild_forecast_is_clamped_and_visible(self) -> None:
        fleet = Fleet(TriggerPolicy(max_replicas=12))
        decision = fleet.tick({"a": busy(1)}, snapshot={"forecast_floor": 400})

        assert (decision.desired, decision.floors.forecast) == (12, 400)
        assert decision.reason is Reason.MAX_REPLICAS

    def test_k18_the_floor_is_answered_exactly(self) -> None:
        fleet = Fleet(TriggerPolicy(windows=(window(89),)), start=START + timedelta(hours=2))

        assert fleet.tick({"a": busy(1)}).desired == 89

    def test_the_lead_is_the_cold_start_one_poll_and_one_sync(self) -> None:
        policy = TriggerPolicy(windows=(window(4),), cold_start=180.0)
        fleet = Fleet(policy, start=START + timedelta(minutes=56, seconds=10))

        before = fleet.tick({"a": busy(1)})
        after = fleet.tick({"a": busy(1)})
        learned = fleet.tick({"a": busy(1)}, snapshot={"learned_cold_start": 30.0})

        assert [d.floors.schedule for d in (before, after, learned)] == [4, 4, 0]
        assert learned.floors.next_opening == START + timedelta(minutes=58, seconds=45)

    def spike(self, loads: list[tuple[int, int]]) -> list[int]:
        """Schedule floors of 5 from 09:00 on, after each (minutes, waiting)."""
        policy = TriggerPolicy(windows=(window(5),), lead_time=300.0)
        fleet = Fleet(policy, start=START + timedelta(minutes=56))
        floors = []
        for minutes, waiting in loads:
            decision = fleet.tick({"a": busy(0, waiting)}, seconds=60 * minutes)
            floors.append(decision.floors.schedule)
        self.last = decision
        return floors

    def test_a_window_whose_spike_does_not_come_is_released(self) -> None:
        floors = self.spike([(1, 0)] * 22)

        assert floors == [5] * 18 + [0] * 4
        assert (self.last.desired, self.last.floors.released) == (0, True)
        assert self.last.notes == ("released: a window is open whose spike did not come",)

    def test_below_a_released_window_the_next_lower_one_counts(self) -> None:
        windows = (window(10), window(2, start="0 8 * * *", end="0 18 * * *"))
        fleet = Fleet(TriggerPolicy(windows=windows, lead_time=0.0), start=START)
        floors = []
        for _ in range(80):  # enough for the lower window, far too little for the higher
            decision = fleet.tick({"a": busy(0, 5)}, seconds=60)
            floors.append(decision.floors.schedule)

        assert floors == [2] * 59 + [10] * 15 + [2] * 6
        assert decision.floors.window == "0 8 * * * to 0 18 * * *, UTC"
        assert decision.floors.released

    def test_a_spike_that_came_keeps_its_window(self) -> None:
        assert self.spike([(1, 0)] * 10 + [(1, 5)] + [(1, 0)] * 60) == [5] * 71

    def test_a_spike_that_comes_late_takes_the_floor_back(self) -> None:
        assert self.spike([(1, 0)] * 22 + [(1, 5), (1, 0)])[-3:] == [0, 5, 5]

    @pytest.mark.parametrize("pods", [{}, {"a": None}], ids=["none", "unschedulable"])
    def test_no_pod_that_could_show_demand_is_no_proof_either(self, pods: Answers) -> None:
        policy = TriggerPolicy(windows=(window(6),), lead_time=0.0)
        fleet = Fleet(policy, start=START + timedelta(minutes=60))
        lives = {"a": PodLife.UNSCHEDULABLE}
        for _ in range(30):
            decision = fleet.tick(pods, lives=lives, seconds=60)

        assert (decision.desired, decision.floors.released) == (6, False)

    def test_a_hung_fleet_is_no_proof_either(self) -> None:
        policy = TriggerPolicy(windows=(window(6),), lead_time=0.0, stall_after=60)
        fleet = Fleet(policy, start=START + timedelta(minutes=60))
        frozen = sample(9, 9, counts={Count.GENERATION_TOKENS: 7})
        for _ in range(30):
            decision = fleet.tick({"a": frozen}, seconds=60)

        assert decision.counts.stalled == 1
        assert (decision.desired, decision.floors.released) == (7, False)

    def test_two_windows_of_one_span_watch_for_their_own_spikes(self) -> None:
        policy = TriggerPolicy(windows=(window(10), window(2)), lead_time=0.0)
        fleet = Fleet(policy, start=START + timedelta(minutes=60))
        for _ in range(30):
            decision = fleet.tick({"a": busy(0, 5)}, seconds=60)

        assert decision.floors.schedule == 2

    def test_an_outage_is_no_proof_that_the_spike_stayed_away(self) -> None:
        policy = TriggerPolicy(windows=(window(5),), lead_time=0.0)
        fleet = Fleet(policy, start=START + timedelta(minutes=60))
        fleet.tick({"a": busy(0)})
        for _ in range(30):
            blind = fleet.tick({"a": REFUSED}, seconds=60)

        assert blind.floors.schedule == 5


class TestReset:
    def test_decisions_on_one_snapshot_do_not_count_twice(self) -> None:
        """A decision made again for a late pod must not add the same delta twice."""
        fleet = Fleet()
        fleet.tick({"a": sample(1, counts={Count.FINISHED: 0})})
        once = fleet.tick({"a": sample(1, counts={Count.FINISHED: 50})})
        again = fleet.decide()

        assert once.fleet.finish_rate == again.fleet.finish_rate == 10.0
        assert again.sequence == once.sequence + 1

    def test_the_oldest_sample_is_reported(self) -> None:
        fleet = Fleet()
        fleet.tick({"a": busy(1), "b": busy(1)})
        decision = fleet.tick({"a": busy(1), "b": TIMED_OUT})

        assert decision.oldest_sample_age == 5.0

    def test_queue_reasons_are_added_up(self) -> None:
        pods = {
            name: replace(busy(1, 3), waiting_by_reason={"capacity": 2, "deferred": 1})
            for name in "ab"
        }
        decision = Fleet().tick(pods)

        assert decision.fleet.waiting_by_reason == {"capacity": 4, "deferred": 2}

    def test_infinity_is_no_bound(self) -> None:
        assert TTFT_BOUNDS[-1] == QUEUE_BOUNDS[-1] == INF
