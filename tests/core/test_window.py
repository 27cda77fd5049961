"""Deltas, slots and quantiles."""

from __future__ import annotations

from math import inf

import pytest
from fakes import INF, TTFT_BOUNDS, histogram, sample
from hypothesis import given
from hypothesis import strategies as st

from scaler.core.delta import NOTHING, Delta, delta
from scaler.core.model import Count, Histogram, Latency, ModelSample
from scaler.core.quantile import quantile, share_within, summarize
from scaler.core.window import FleetWindow, Pace


def changed(
    before: ModelSample, after: ModelSample, seconds: float = 5, *, restarted: bool | None = None
) -> Delta | None:
    return delta(before, after, 0.0, seconds, restarted=restarted)


def finished(count: float, running: float = 0, waiting: float = 0) -> ModelSample:
    return sample(running, waiting, counts={Count.FINISHED: count})


class TestDelta:
    @pytest.mark.parametrize(
        ("before", "after", "arrivals"),
        [
            pytest.param(finished(0), finished(0, running=7), 7, id="arrive, none finished"),
            pytest.param(finished(10, 5, 2), finished(14, 5, 2), 4, id="steady"),
            pytest.param(finished(10, 5, 9), finished(14, 5, 0), 0, id="draining"),
            pytest.param(finished(16, 8, 76), finished(16), 0, id="mass abort is clamped"),
        ],
    )
    def test_arrivals_from_finishes_and_in_flight(
        self, before: ModelSample, after: ModelSample, arrivals: float
    ) -> None:
        change = changed(before, after)

        assert change is not None
        assert change.arrivals_by_finish == arrivals

    def test_arrivals_from_first_tokens_see_what_an_abort_hides(self) -> None:
        before = sample(8, 20, counts={Count.FINISHED: 16}, ttft=histogram(TTFT_BOUNDS, *[0.2] * 9))
        after = sample(0, 30, counts={Count.FINISHED: 16}, ttft=histogram(TTFT_BOUNDS, *[0.2] * 12))

        change = changed(before, after)

        assert change is not None
        assert (change.arrivals_by_finish, change.arrivals_by_first_token) == (2, 13)

    @pytest.mark.parametrize(
        ("after", "restarted", "expected"),
        [
            pytest.param(finished(4), True, 4, id="a new process starts at zero"),
            pytest.param(finished(400), True, 400, id="even when it has overtaken the old one"),
            pytest.param(finished(4), None, 4, id="half or less is a restart"),
            pytest.param(finished(39), None, None, id="a little less is a glitch"),
            pytest.param(finished(4), False, None, id="the same process cannot go back"),
            pytest.param(finished(40), None, 0, id="nothing happened"),
        ],
    )
    def test_counters_that_fall(
        self, after: ModelSample, restarted: bool | None, expected: float | None
    ) -> None:
        change = changed(finished(40), after, restarted=restarted)

        assert (None if change is None else change.counts[Count.FINISHED]) == expected

    def test_one_counter_that_falls_a_little_spoils_the_pair(self) -> None:
        before = sample(counts={Count.FINISHED: 40, Count.PREEMPTIONS: 100})
        after = sample(counts={Count.FINISHED: 1, Count.PREEMPTIONS: 99})

        assert changed(before, after) is None

    @pytest.mark.parametrize(("fallen", "verdict"), [(4, "restart"), (39, "glitch")])
    def test_a_histogram_that_falls_counts_too(self, fallen: int, verdict: str) -> None:
        before = sample(ttft=histogram(TTFT_BOUNDS, *[0.2] * 40))
        after = sample(ttft=histogram(TTFT_BOUNDS, *[0.2] * fallen))

        change = changed(before, after)

        assert (change is None) == (verdict == "glitch")
        if change is not None:
            assert change.counts[Count.FIRST_TOKENS] == 4

    def test_a_counter_born_late_starts_at_zero(self) -> None:
        change = changed(sample(3), finished(2, running=4))

        assert change is not None
        assert change.counts == {Count.FINISHED: 2}
        assert change.arrivals_by_finish == 3

    def test_a_histogram_that_vanishes_says_nothing_of_itself(self) -> None:
        change = changed(sample(ttft=histogram(TTFT_BOUNDS, 0.2)), sample(1))

        assert change is not None
        assert change.latencies == {}

    @pytest.mark.parametrize(
        "counts",
        [{Count.FINISHED: 1e8}, {Count.PROMPT_TOKENS: 6e8}, {Count.GENERATION_TOKENS: 1e15}],
        ids=["requests", "prompt tokens", "generated tokens"],
    )
    def test_absurd_jumps_are_left_out(self, counts: dict[Count, float]) -> None:
        assert changed(NOTHING, sample(counts=counts)) is None

    @pytest.mark.parametrize("seconds", [0.0, -1.0])
    def test_samples_of_one_instant_say_nothing(self, seconds: float) -> None:
        assert changed(finished(1), finished(2), seconds) is None

    def test_changed_bucket_bounds_are_not_subtracted(self) -> None:
        change = changed(
            sample(ttft=histogram(TTFT_BOUNDS, 0.2)), sample(ttft=histogram((1.0, INF), 0.2, 0.2))
        )

        assert change is not None
        assert change.latencies == {}

    def test_v11_counter_reset_and_pods_leaving(self) -> None:
        """Restarted pod A counts from zero, B normally, C left and counts nothing."""
        bounds = (INF,)

        def pod(total: float, count: float) -> ModelSample:
            return sample(queue_time=Histogram(bounds, (count,), total))

        pairs = [(pod(120, 40), pod(10, 4)), (pod(300, 100), pod(360, 120))]
        deltas = [change for pair in pairs if (change := changed(*pair)) is not None]
        total = FleetWindow(5.0).push(deltas, 5.0).total()

        assert total is not None
        merged = total.latency(Latency.QUEUE_TIME)
        assert merged is not None
        assert (merged.sum, merged.count) == (70, 24)
        assert summarize(merged).mean == pytest.approx(70 / 24)


def test_v06_created_and_siblings_do_not_disturb_the_mean() -> None:
    before = sample(queue_time=Histogram((INF,), (4.0,), 12.0))
    after = sample(queue_time=Histogram((INF,), (8.0,), 22.0))

    change = changed(before, after)

    assert change is not None
    counts, total = change.latencies[Latency.QUEUE_TIME, (INF,)]
    assert total / counts[-1] == 2.5


def tokens(start: float, end: float, count: float, arrivals: float = 0) -> Delta:
    counts = {Count.GENERATION_TOKENS: count, Count.FIRST_TOKENS: count}
    return Delta(start, end, counts, arrivals, 0.0, {})


class TestWindow:
    def test_nothing_yet_is_not_zero(self) -> None:
        assert FleetWindow(5.0).push([], 100.0).total() is None

    def test_the_pace_is_not_known_before_the_first_delta(self) -> None:
        assert FleetWindow(5.0).pace() == Pace()

    def test_the_pace_is_the_quickest_of_whole_recent_and_newest(self) -> None:
        window = FleetWindow(5.0)
        for at in range(5, 65, 5):
            window = window.push([tokens(at - 5, at, 10, arrivals=10)], float(at))
        window = window.push([tokens(60, 65, 100, arrivals=200)], 65.0)

        assert window.pace().arrival_rate == (10 + 200) / 10
        assert window.pace().first_token_rate == (3 * 10 + 100) / 20

    def test_rates_divide_by_the_time_covered_so_far(self) -> None:
        window = FleetWindow(5.0).push([tokens(0, 5, 50)], 5.0).push([tokens(5, 10, 50)], 10.0)
        total = window.total()

        assert total is not None
        assert total.seconds == 10.0
        assert total.rate(Count.GENERATION_TOKENS) == 10.0
        assert total.rate(Count.FIRST_TOKENS) == 10.0
        assert total.rate(Count.FINISHED) is None

    def test_what_is_older_than_the_window_is_dropped(self) -> None:
        window = FleetWindow(5.0).push([tokens(0, 5, 1000)], 5.0)
        for at in range(10, 105, 5):
            window = window.push([tokens(at - 5, at, 50)], float(at))
        total = window.total()

        assert total is not None
        assert total.rate(Count.GENERATION_TOKENS) == pytest.approx(10.0, rel=0.1)

    def test_a_late_scrape_is_no_burst(self) -> None:
        """Five minutes of counting in one delta are spread over the slots it covers."""
        window = FleetWindow(5.0).push([tokens(0, 300, 3000)], 300.0)
        total = window.total()

        assert total is not None
        assert total.rate(Count.GENERATION_TOKENS) == pytest.approx(10.0, rel=0.02)

    def test_rejected_requests_arrived_too(self) -> None:
        change = Delta(0.0, 10.0, {Count.REJECTIONS: 40}, 20.0, 5.0, {})
        total = FleetWindow(5.0).push([change], 10.0).total()

        assert total is not None
        assert total.arrival_rate == 6.0

    def test_pods_with_other_bounds_meet_on_shared_edges(self) -> None:
        deltas = [
            Delta(0, 5, {}, 0, 0, {(Latency.TTFT, (1.0, 2.0, INF)): ((1.0, 2.0, 3.0), 6.0)}),
            Delta(0, 5, {}, 0, 0, {(Latency.TTFT, (2.0, 4.0, INF)): ((1.0, 3.0, 3.0), 7.0)}),
        ]
        total = FleetWindow(5.0).push(deltas, 5.0).total()

        assert total is not None
        assert total.latency(Latency.TTFT) == Histogram((2.0, INF), (3.0, 6.0), 13.0)
        assert total.latency(Latency.ITL) is None

    @given(
        cuts=st.lists(st.floats(0.5, 20.0), min_size=1, max_size=30),
        rate=st.floats(0.1, 1000.0),
    )
    def test_a_constant_rate_is_seen_whatever_the_scrape_times(
        self, cuts: list[float], rate: float
    ) -> None:
        window, at = FleetWindow(5.0), 1000.0
        for cut in cuts:
            change = tokens(at, at + cut, cut * rate)
            at += cut
            window = window.push([change], at)
        total = window.total()

        assert total is not None
        # A delta of up to a slot and a half lies wholly in its last slot: that much may be off.
        slack = 1.5 * 5.0 / total.seconds
        assert total.rate(Count.FIRST_TOKENS) == pytest.approx(rate, rel=min(1.0, slack) + 1e-6)


class TestQuantile:
    @pytest.mark.parametrize(
        ("q", "expected"),
        [
            pytest.param(0.5, (0.5, 0.1, 0.5), id="edge"),
            pytest.param(0.625, (1.75, 1.0, 2.5), id="inside"),
            pytest.param(1.0, (10.0, 10.0, inf), id="last bucket has no upper edge"),
        ],
    )
    def test_estimate_and_edges(self, q: float, expected: tuple[float, float, float]) -> None:
        seen = histogram(TTFT_BOUNDS, 0.2, 0.3, 2.0, 70.0)

        assert quantile(seen, q) == pytest.approx(expected)

    def test_without_an_infinite_bucket_the_last_edge_is_all_there_is(self) -> None:
        assert quantile(Histogram((1.0, 2.0), (0.0, 0.0), 0.0), 0.5) == (2.0, 2.0, inf)

    @given(st.lists(st.floats(0.0, 100.0), min_size=1, max_size=50), st.floats(0.01, 1.0))
    def test_the_true_quantile_lies_between_the_edges(self, values: list[float], q: float) -> None:
        seen = histogram(TTFT_BOUNDS, *values)
        estimate, low, high = quantile(seen, q)
        rank = max(1, -(-q * len(values) // 1))
        true = sorted(values)[int(rank) - 1]

        assert low <= estimate <= high
        assert low <= true <= high

    @pytest.mark.parametrize(
        ("limit", "expected"),
        [
            pytest.param(3.0, (0.5, 0.75), id="between edges"),
            pytest.param(2.5, (0.5, 0.5), id="on an edge"),
            pytest.param(0.05, (0.0, 0.25), id="below all"),
            pytest.param(60.0, (0.75, 1.0), id="in the last bucket"),
        ],
    )
    def test_share_within_a_limit_as_bounds(
        self, limit: float, expected: tuple[float, float]
    ) -> None:
        seen = histogram(TTFT_BOUNDS, 0.05, 2.0, 4.0, 70.0)

        assert share_within(seen, limit) == expected

    def test_share_within_a_limit_above_all_edges(self) -> None:
        assert share_within(Histogram((1.0, 2.0), (3.0, 4.0), 5.0), 9.0) == (1.0, 1.0)
