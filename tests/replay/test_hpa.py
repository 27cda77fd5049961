"""The HPA's arithmetic: tables from the reference on KEDA, section 3, and the cases K07 to K21."""

from __future__ import annotations

import math
from datetime import timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from fakes import START, Fleet, sample
from hypothesis import given
from hypothesis import strategies as st

from scaler.core.model import PodLife
from scaler.core.policy import TriggerPolicy, Window
from scaler.replay.hpa import (
    DEFAULT_DOWN,
    DEFAULT_UP,
    DOWNSCALE_WINDOW,
    SYNC_PERIOD,
    Behavior,
    Hpa,
    Metric,
    Outcome,
    Policy,
    PolicyType,
    Rules,
    Scale,
    Select,
    Stamped,
    State,
    TargetType,
    propose,
    sync,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ONE = (Metric(1.0),)
PODS, PERCENT = PolicyType.PODS, PolicyType.PERCENT


def steady(replicas: int, ready: int | None = None) -> Scale:
    return Scale(replicas, replicas, replicas if ready is None else ready)


def run(hpa: Hpa, replicas: int, values: Iterable[float | None]) -> list[int]:
    """One sync a value, 15 s apart; pods are there and ready at once. Return the replicas."""
    state, sizes = State(), list[int]()
    for number, value in enumerate(values):
        done, state = sync(hpa, steady(replicas), (value,), state, number * SYNC_PERIOD)
        replicas = done.replicas
        sizes.append(replicas)
    return sizes


# --- 3.2 AverageValue, 3.4 the dead band ----------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "target", "status", "expected"),
    [
        pytest.param(40, 10, 4, 4, id="as asked"),
        pytest.param(40, 10, 1, 4, id="readiness does not count"),
        pytest.param(44, 10, 4, 4, id="upper edge holds"),
        pytest.param(44.1, 10, 4, 5, id="just over the edge"),
        pytest.param(36, 10, 4, 4, id="lower edge holds"),
        pytest.param(35.9, 10, 4, 4, id="below it, but the ceiling is the same"),
        pytest.param(30, 10, 4, 3, id="down"),
        pytest.param(0, 10, 4, 0, id="nothing"),
        pytest.param(12, 5, 0, 3, id="no pods: no ratio"),
        pytest.param(0.0004, 1, 1, 0, id="under a milli-unit is nothing"),
        pytest.param(2.0009, 1, 1, 2, id="values are cut to milli-units"),
        pytest.param(2.001, 1, 1, 3, id="a milli-unit more is a replica more"),
    ],
)
def test_average_value(value: float, target: float, status: int, expected: int) -> None:
    hpa = Hpa((Metric(target),))

    assert propose(hpa, Scale(max(status, 1), status, status), (value,)) == expected


@pytest.mark.parametrize(
    ("size", "up", "down"), [(5, 6, 4), (9, 10, 8), (10, 12, 8), (15, 17, 13), (20, 23, 17)]
)
def test_the_dead_band_decides_which_sizes_can_be_asked_for(size: int, up: int, down: int) -> None:
    """Asking for whole replicas against a target of 1, as a schedule does."""
    reached = [propose(Hpa(ONE), steady(size), (float(asked),)) for asked in range(2 * size)]
    sizes = [n for n in reached if n is not None]

    assert min(n for n in sizes if n > size) == up
    assert max(n for n in sizes if n < size) == down


def test_the_neighbour_below_needs_a_value_just_under_the_band() -> None:
    assert propose(Hpa(ONE), steady(10), (9.0,)) == 10
    assert propose(Hpa(ONE), steady(10), (8.999,)) == 9


def test_tolerance_by_direction_takes_the_place_of_the_controllers() -> None:
    rules = Behavior(up=Rules(0.0, DEFAULT_UP.policies, tolerance=0.0), down=DEFAULT_DOWN)
    hpa = Hpa(ONE, behavior=rules)

    assert propose(hpa, steady(10), (11.0,)) == 11
    assert propose(hpa, steady(10), (9.0,)) == 10


@pytest.mark.parametrize(
    ("target", "milli"), [(1.0, 1000), (0.0004, 0), (0.0015, 2), (2.6784, 2678), (1e9, 10**12)]
)
def test_targets_have_three_decimals(target: float, milli: int) -> None:
    assert Metric(target).milli_target == milli


# --- 3.3 Value ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "scale", "expected"),
    [
        pytest.param(20, Scale(2, 2, 2), 4, id="ratio times ready"),
        pytest.param(11, Scale(7, 7, 2), 7, id="within the tolerance: spec"),
        pytest.param(20, Scale(4, 4, 1), 2, id="down while the load is double"),
        pytest.param(50, Scale(4, 4, 0), 0, id="nobody ready"),
        pytest.param(50, Scale(4, 0, 0), None, id="no pods: an error"),
    ],
)
def test_value(value: float, scale: Scale, expected: int | None) -> None:
    hpa = Hpa((Metric(10.0, TargetType.VALUE),))

    assert propose(hpa, scale, (value,)) == expected


# --- 3.5 several metrics, errors ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "expected", "outcome"),
    [
        pytest.param((2.0, 6.0), 6, Outcome.WITHIN_RANGE, id="the largest"),
        pytest.param((None, 6.0), 6, Outcome.WITHIN_RANGE, id="a failure does not block up"),
        pytest.param((None, 2.0), 4, Outcome.FAILED, id="a failure blocks down"),
        pytest.param((4.0, None), 4, Outcome.WITHIN_RANGE, id="no change is no change"),
        pytest.param((None, None), 4, Outcome.FAILED, id="nothing known"),
    ],
)
def test_several_metrics(values: Sequence[float | None], expected: int, outcome: Outcome) -> None:
    hpa = Hpa((Metric(1.0), Metric(1.0)))

    done, _ = sync(hpa, steady(4), values, State(), 0.0)

    assert (done.replicas, done.outcome) == (expected, outcome)


def test_a_failed_sync_leaves_no_recommendation() -> None:
    _, before = sync(Hpa(ONE), steady(4), (4.0,), State(), 0.0)
    _, after = sync(Hpa(ONE), steady(4), (None,), before, 15.0)

    assert after == before


def test_zero_replicas_disable_the_hpa() -> None:
    done, state = sync(Hpa(ONE), Scale(0, 0, 0), (9.0,), State(), 0.0)

    assert (done.replicas, done.outcome) == (0, Outcome.DISABLED)
    assert state.recommendations == (Stamped(0.0, 0),)


@pytest.mark.parametrize(
    ("replicas", "expected", "outcome"),
    [
        pytest.param(9, 6, Outcome.TOO_MANY, id="above max: at once, whatever the metric"),
        pytest.param(1, 2, Outcome.TOO_FEW, id="below min: at once"),
    ],
)
def test_bounds_come_before_metrics(replicas: int, expected: int, outcome: Outcome) -> None:
    hpa = Hpa(ONE, min_replicas=2, max_replicas=6, behavior=Behavior())

    done, _ = sync(hpa, steady(replicas), (None,), State(), 0.0)

    assert (done.replicas, done.outcome, done.proposed) == (expected, outcome, None)


# --- 3.6 behaviour --------------------------------------------------------------------------------


def test_without_behavior_up_is_limited_to_double_or_four() -> None:
    assert run(Hpa(ONE), 1, [50.0] * 5) == [4, 8, 16, 32, 50]


def test_without_behavior_down_waits_for_the_highest_of_300_seconds() -> None:
    sizes = run(Hpa(ONE), 8, [8.0] + [2.0] * 22)

    assert sizes.index(2) * SYNC_PERIOD == 315.0  # the last 8 was recommended at 0 s
    assert set(sizes) == {8, 2}


def test_with_behavior_the_window_is_open_at_its_old_end() -> None:
    # With behavior an age of exactly 300 s is outside; on the older path it still counts.
    sizes = run(Hpa(ONE, behavior=Behavior()), 8, [8.0] + [2.0] * 22)

    assert sizes.index(2) * SYNC_PERIOD == 300.0


def test_default_behavior_up_is_the_larger_of_four_and_double() -> None:
    assert run(Hpa(ONE, behavior=Behavior()), 1, [50.0] * 5) == [5, 10, 20, 40, 50]


def test_up_window_takes_the_lowest_recommendation() -> None:
    up = Rules(60.0, DEFAULT_UP.policies)
    hpa = Hpa(ONE, behavior=Behavior(up=up))

    assert run(hpa, 2, [2.0, 4.0, 3.0, 4.0, 4.0, 4.0, 4.0]) == [2, 2, 2, 2, 3, 3, 4]


def test_stabilized_outcomes_are_named() -> None:
    rules = Behavior(up=Rules(60.0, DEFAULT_UP.policies))
    _, state = sync(Hpa(ONE, behavior=rules), steady(4), (4.0,), State(), 0.0)

    up, _ = sync(Hpa(ONE, behavior=rules), steady(4), (8.0,), state, 15.0)
    down, _ = sync(Hpa(ONE, behavior=rules), steady(4), (2.0,), state, 15.0)

    assert (up.replicas, up.outcome) == (4, Outcome.UP_STABILIZED)
    assert (down.replicas, down.outcome) == (4, Outcome.DOWN_STABILIZED)


def test_between_both_windows_the_current_size_stays() -> None:
    rules = Behavior(up=Rules(60.0, DEFAULT_UP.policies), down=Rules(60.0, DEFAULT_DOWN.policies))
    state = State((Stamped(0.0, 2), Stamped(15.0, 9)))

    done, _ = sync(Hpa(ONE, behavior=rules), steady(5), (6.0,), state, 30.0)

    assert done.replicas == 5


LIMITED = [
    pytest.param(Policy(PODS, 2, 60.0), None, [4, 4, 4, 4, 6], [8, 8, 8, 8, 6], id="pods"),
    pytest.param(Policy(PERCENT, 50, 60.0), None, [3, 3, 3, 3, 5], [5, 5, 5, 5, 2], id="percent"),
    pytest.param(Policy(PERCENT, 50, 60.0), Select.DISABLED, [2] * 5, [10] * 5, id="disabled"),
]


@pytest.mark.parametrize(("policy", "select", "up", "down"), LIMITED)
def test_one_policy(policy: Policy, select: Select | None, up: list[int], down: list[int]) -> None:
    rules = Rules(0.0, (policy,), select or Select.MAX)

    assert run(Hpa(ONE, behavior=Behavior(up=rules)), 2, [20.0] * 5) == up
    assert run(Hpa(ONE, behavior=Behavior(down=rules)), 10, [1.0] * 5) == down


@pytest.mark.parametrize(
    ("select", "up", "down"),
    [pytest.param(Select.MAX, 20, 0, id="max"), pytest.param(Select.MIN, 12, 8, id="min")],
)
def test_of_several_policies_one_is_chosen(select: Select, up: int, down: int) -> None:
    rules = Rules(0.0, (Policy(PODS, 2, 15.0), Policy(PERCENT, 100, 15.0)), select)
    hpa = Hpa(ONE, min_replicas=1, behavior=Behavior(up=rules, down=rules))

    assert run(hpa, 10, [50.0]) == [up]
    assert run(hpa, 10, [1.0]) == [max(1, down)]


def test_what_was_added_in_the_period_counts_against_what_may_be_taken() -> None:
    # 4 + 6 = 10; the period began with 4, so 50 % down from there would be 2, and 50 % of 10 is 5.
    rules = Behavior(
        up=Rules(0.0, (Policy(PODS, 6, 60.0),)), down=Rules(0.0, (Policy(PERCENT, 50, 60.0),))
    )
    hpa = Hpa(ONE, behavior=rules)

    grown, state = sync(hpa, steady(4), (30.0,), State(), 0.0)
    shrunk, _ = sync(hpa, steady(grown.replicas), (1.0,), state, 15.0)

    assert (grown.replicas, shrunk.replicas) == (10, 2)


def test_a_change_that_counts_no_more_gives_its_place_to_the_next() -> None:
    rules = Behavior(up=Rules(0.0, (Policy(PODS, 1, 15.0),)))
    hpa = Hpa(ONE, behavior=rules)
    state, replicas = State(), 1
    for number in range(40):
        done, state = sync(hpa, steady(replicas), (99.0,), state, number * 16.0)
        replicas = done.replicas

    assert replicas == 41
    assert len(state.ups) == 1


@given(
    values=st.lists(st.one_of(st.none(), st.floats(0.0, 1e6)), min_size=1, max_size=40),
    start=st.integers(1, 30),
    behavior=st.sampled_from([None, Behavior()]),
)
def test_every_answer_is_within_the_bounds_and_the_memory_is_bounded(
    values: list[float | None], start: int, behavior: Behavior | None
) -> None:
    hpa = Hpa(ONE, min_replicas=2, max_replicas=20, behavior=behavior)
    state, replicas = State(), start
    for number, value in enumerate(values):
        done, state = sync(hpa, steady(replicas), (value,), state, number * SYNC_PERIOD)
        assert 2 <= done.replicas <= 20
        replicas = done.replicas
    assert len(state.recommendations) <= DOWNSCALE_WINDOW / SYNC_PERIOD + 2


# --- acceptance cases -----------------------------------------------------------------------------


def test_k07_average_value_and_value_while_new_pods_never_get_ready() -> None:
    average = Hpa((Metric(5.0),), behavior=Behavior())
    value = Hpa((Metric(5.0, TargetType.VALUE),), behavior=Behavior())

    assert [propose(average, Scale(n, n, 2), (20.0,)) for n in (2, 4, 4, 4)] == [4, 4, 4, 4]
    assert [propose(value, Scale(n, n, 2), (20.0,)) for n in (2, 8, 8, 8)] == [8, 8, 8, 8]
    assert propose(value, Scale(8, 8, 4), (20.0,)) == 16
    assert propose(value, Scale(8, 8, 0), (20.0,)) == 0


def test_k16_the_fleet_does_not_overshoot_while_pods_load() -> None:
    """Two ready pods at KV 0.95 against 0.5 need four; the two that load change nothing of that."""
    fleet = Fleet(TriggerPolicy(target_kv_usage=0.5), interval=SYNC_PERIOD)
    hpa, state, sizes = Hpa(ONE, max_replicas=16, behavior=Behavior()), State(), [2]
    answers, hot = [], {"a": sample(10, 0, 0.95), "b": sample(10, 0, 0.95)}
    for _ in range(4):
        loading = dict.fromkeys(("c", "d")[: sizes[-1] - 2], PodLife.STARTING)
        decision = fleet.tick({**hot, **dict.fromkeys(loading)}, lives=loading)
        answers.append(decision.desired)
        scale = Scale(sizes[-1], sizes[-1], 2)
        done, state = sync(hpa, scale, (float(answers[-1]),), state, fleet.monotonic)
        sizes.append(done.replicas)

    cooled = fleet.tick(dict.fromkeys("abcd", sample(5, 0, 0.48))).desired
    ready, _ = sync(hpa, steady(4), (float(cooled),), state, fleet.monotonic)

    assert answers == [4, 4, 4, 4]
    assert sizes == [2, 4, 4, 4, 4]
    assert (cooled, ready.replicas) == (4, 4)


@pytest.mark.parametrize(
    ("floor", "current", "expected"),
    [(89, 88, 88), (45, 50, 50), (45, 49, 49), (10, 11, 11), (10, 12, 10)],
)
def test_k18_the_tolerance_hides_the_floor(floor: int, current: int, expected: int) -> None:
    """The scaler serves the floor as it is, and the gap as a metric of its own.

    The case also wants an option to raise the served value just past the tolerance. There is none:
    a second tolerance inside the scaler would fight the HPA's. Examples set ``tolerance: 0``.
    """
    fleet = Fleet(TriggerPolicy(windows=(Window("UTC", "0 8 * * *", "0 9 * * *", floor),)))
    served = fleet.tick({"a": sample(1)}).desired
    hpa = Hpa(ONE, behavior=Behavior())

    assert served == floor
    assert run(hpa, current, [float(served)] * 30)[-1] == expected


def test_k18_two_away_is_reached_and_tolerance_zero_reaches_all() -> None:
    exact = Behavior(
        up=Rules(0.0, DEFAULT_UP.policies, tolerance=0.0),
        down=Rules(300.0, DEFAULT_DOWN.policies, tolerance=0.0),
    )

    assert run(Hpa(ONE, behavior=Behavior()), 12, [10.0] * 30)[-1] == 10
    for floor, current in ((89, 88), (45, 50), (45, 49), (10, 11)):
        assert run(Hpa(ONE, behavior=exact), current, [float(floor)] * 30)[-1] == floor


def served_for(*waiting: float) -> list[float]:
    """Return what the scaler serves at each scrape while so many requests wait, five a replica."""
    fleet = Fleet(TriggerPolicy(target_waiting=5.0))
    return [float(fleet.tick({"a": sample(2, w)}).desired) for w in waiting]


def test_k19_flapping_around_a_threshold() -> None:
    """Nine and eleven wait by turns for 20 minutes: each third scrape meets a sync of the HPA."""
    hpa = Hpa(ONE, behavior=Behavior())
    scrapes = served_for(*(9, 11) * 120)
    sizes = run(hpa, 2, scrapes[::3])

    assert scrapes == [2, 3] * 120  # the core damps nothing here: the HPA's window does
    assert len(sizes) * SYNC_PERIOD == 20 * 60
    assert sum(a != b for a, b in pairwise([2, *sizes])) == 1


def test_k19_a_step_is_followed_within_two_scrapes() -> None:
    hpa = Hpa(ONE, behavior=Behavior())
    served = served_for(9, 40, 40)

    assert served == [2, 8, 8]
    assert run(hpa, 3, served) == [3, 7, 8]  # 3 + 4 pods within the first sync of the step


@pytest.mark.parametrize("cron", [False, True], ids=["alone", "beside-keda-cron"])
def test_f10_a_floor_and_a_need_are_not_added(*, cron: bool) -> None:
    """Floor 6 and need 4 are 6; so they are with KEDA's own cron of the same window beside ours.

    The lead pods take the queue away for five minutes, then the spike is there. KEDA's cron scaler
    asks for 1 outside of its window (pkg/scalers/cron_scaler.go, v2.20).
    """
    window = Window("UTC", "0 9 * * *", "0 10 * * *", 6)
    policy = TriggerPolicy(target_waiting=5.0, windows=(window,), lead_time=240.0)
    began = START + timedelta(minutes=50)
    fleet = Fleet(policy, interval=SYNC_PERIOD, start=began)
    hpa, state = Hpa(ONE * (1 + cron), behavior=Behavior()), State()
    replicas, history = 4, list[tuple[float, float, int]]()  # minutes from 8:50, served, replicas
    for _ in range(4 * 85):
        minute = (fleet.wall - began).total_seconds() / 60
        waiting = 0.0 if 6 < minute < 11 else 20.0
        pods = {f"pod-{n}": sample(1, waiting / replicas) for n in range(replicas)}
        served = float(fleet.tick(pods).desired)
        minute = (fleet.wall - began).total_seconds() / 60
        values = (served, 6.0 if 10 <= minute < 70 else 1.0)[: 1 + cron]
        done, state = sync(hpa, steady(replicas), values, state, fleet.monotonic)
        replicas = done.replicas
        history.append((minute, served, replicas))

    def during(start: float, end: float) -> tuple[set[float], set[int]]:
        inside = [(served, size) for minute, served, size in history if start <= minute < end]
        return {served for served, _ in inside}, {size for _, size in inside}

    assert during(0, 6) == ({4.0}, {4})
    assert during(6, 70) == ({6.0}, {6})  # from the lead to the end of the window
    assert during(70, 74.75) == ({4.0}, {6})  # the HPA's stabilization, 300 s
    assert during(75.25, 85) == ({4.0}, {4})  # and never below what the load needs


def test_k13_two_scalers_asked_by_turns_agree_to_within_a_scrape() -> None:
    """One has watched for ten minutes, the other began 5 s ago; KEDA asks them by turns.

    Both see the same pods, the cold one a scrape later. Until it has swept once it answers
    UNAVAILABLE (tests/keda), which changes nothing.
    """
    policy = TriggerPolicy(target_in_flight=10.0)
    warm, cold = Fleet(policy), Fleet(policy)
    load = [30.0 + (n % 7) for n in range(160)]
    for requests in load[:120]:
        warm.tick({"a": sample(requests)})
    hpa, state, replicas, sizes = Hpa(ONE, behavior=Behavior()), State(), 4, list[int]()
    for turn, (before, requests) in enumerate(pairwise(load[119:140])):
        answers = [
            float(warm.tick({"a": sample(requests)}).desired),
            float(cold.tick({"a": sample(before)}).desired),
        ]
        assert abs(answers[0] - answers[1]) <= abs(
            math.ceil(requests / 10) - math.ceil(before / 10)
        )
        done, state = sync(hpa, steady(replicas), (answers[turn % 2],), state, turn * SYNC_PERIOD)
        replicas = done.replicas
        sizes.append(replicas)

    assert len(sizes) == 20
    assert sizes == [4] * 20


def test_k21_n_to_one_is_the_hpas_stabilization() -> None:
    quick = Behavior(down=Rules(60.0, DEFAULT_DOWN.policies))

    assert run(Hpa(ONE, behavior=quick), 5, [5.0] + [0.0] * 10).index(1) * SYNC_PERIOD == 60.0
    assert run(Hpa(ONE), 5, [5.0] + [0.0] * 30).index(1) * SYNC_PERIOD == 315.0
