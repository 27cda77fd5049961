"""KEDA's own layer: reference on KEDA, section 3.7."""

from __future__ import annotations

import pytest

from scaler.replay.hpa import Behavior, Hpa, Metric, Scale, State, sync
from scaler.replay.keda import (
    Activity,
    Fallback,
    FallbackBehavior,
    Health,
    ScaledObject,
    poll,
    push,
    quantity,
    served_value,
)

NEW = Activity(created=0.0)
BUSY = Activity(created=0.0, last_active=1000.0)


@pytest.mark.parametrize(
    ("scaled", "replicas", "active", "at", "expected"),
    [
        pytest.param(ScaledObject(), 0, (True,), (NEW, 1.0), 1, id="0 to 1"),
        pytest.param(ScaledObject(min_replicas=3), 0, (True,), (NEW, 1.0), 3, id="0 to min"),
        pytest.param(ScaledObject(), 0, (False, True), (NEW, 1.0), 1, id="one active is enough"),
        pytest.param(ScaledObject(), 5, (True,), (BUSY, 9999.0), 5, id="active holds"),
        pytest.param(ScaledObject(), 5, (False,), (BUSY, 1300.0), 5, id="cooling down"),
        pytest.param(ScaledObject(), 5, (False,), (BUSY, 1300.1), 0, id="5 to 0 in one step"),
        pytest.param(ScaledObject(), 5, (False,), (NEW, 0.1), 0, id="never active: no cooldown"),
        pytest.param(
            ScaledObject(initial_cooldown=60.0), 5, (False,), (NEW, 60.0), 5, id="initial cooldown"
        ),
        pytest.param(ScaledObject(min_replicas=2), 5, (False,), (BUSY, 9e9), 5, id="min 2: HPA's"),
        pytest.param(ScaledObject(min_replicas=2), 1, (False,), (BUSY, 9e9), 2, id="min restored"),
        pytest.param(ScaledObject(), 5, (None,), (BUSY, 9e9), 5, id="an error is not idle"),
        pytest.param(ScaledObject(), 5, (None, False), (BUSY, 9e9), 5, id="one error is enough"),
        pytest.param(ScaledObject(), 0, (None,), (NEW, 1.0), 0, id="an error does not wake"),
        pytest.param(
            ScaledObject(fallback=Fallback(3, 2)), 5, (None,), (BUSY, 9e9), 5, id="fallback waits"
        ),
        pytest.param(
            ScaledObject(fallback=Fallback(3, 0)),
            5,
            (None,),
            (BUSY, 9e9),
            0,
            id="fallback 0: a trap",
        ),
        pytest.param(
            ScaledObject(min_replicas=4, idle_replicas=0), 6, (False,), (BUSY, 9e9), 0, id="idle"
        ),
        pytest.param(
            ScaledObject(min_replicas=4, idle_replicas=0),
            0,
            (True,),
            (BUSY, 9e9),
            4,
            id="from idle",
        ),
        pytest.param(
            ScaledObject(min_replicas=4, idle_replicas=0), 0, (False,), (BUSY, 9e9), 0, id="at rest"
        ),
    ],
)
def test_poll(
    scaled: ScaledObject,
    replicas: int,
    active: tuple[bool | None, ...],
    at: tuple[Activity, float],
    expected: int,
) -> None:
    assert poll(scaled, replicas, active, *at)[0] == expected


@pytest.mark.parametrize(
    ("active", "last_active"),
    [
        pytest.param((True,), 50.0, id="active"),
        pytest.param((True, None), 10.0, id="active with an error: not refreshed"),
        pytest.param((False,), 10.0, id="idle"),
        pytest.param((None,), 10.0, id="error"),
    ],
)
def test_last_active_moves_only_when_all_is_well(
    active: tuple[bool | None, ...], last_active: float
) -> None:
    _, memory = poll(ScaledObject(), 3, active, Activity(0.0, 10.0), 50.0)

    assert memory.last_active == last_active


def test_a_pushed_true_wakes_at_once() -> None:
    assert push(ScaledObject(), 0, NEW, 7.0) == (1, Activity(0.0, 7.0))


def test_k21_cooldown_concerns_the_way_to_zero_only() -> None:
    """The value falls to nothing: the HPA holds for 300 s, KEDA's cooldown of 30 s overrules it."""
    scaled, hpa = ScaledObject(cooldown=30.0), Hpa((Metric(1.0),), behavior=Behavior())
    replicas, state, memory, sizes = 5, State(), Activity(0.0, 0.0), dict[float, int]()
    for tick in range(20):
        now = tick * 15.0
        done, state = sync(hpa, Scale(replicas, replicas, replicas), (0.0,), state, now)
        replicas, memory = poll(scaled, done.replicas, (False,), memory, now)
        sizes[now] = replicas

    assert sizes[30.0] == 5
    assert sizes[45.0] == 0


@pytest.mark.parametrize(
    ("behavior", "replicas", "current", "expected"),
    [
        (FallbackBehavior.STATIC, 4, 12, 4),
        (FallbackBehavior.CURRENT, 4, 12, 12),
        (FallbackBehavior.CURRENT_IF_HIGHER, 4, 12, 12),
        (FallbackBehavior.CURRENT_IF_HIGHER, 4, 2, 4),
        (FallbackBehavior.CURRENT_IF_LOWER, 4, 12, 4),
        (FallbackBehavior.CURRENT_IF_LOWER, 4, 2, 2),
    ],
)
def test_k04_what_a_failing_metric_stands_for(
    behavior: FallbackBehavior, replicas: int, current: int, expected: int
) -> None:
    scaled = ScaledObject(fallback=Fallback(0, replicas, behavior))

    assert served_value(scaled, None, 2.0, current, Health())[0] == 2.0 * expected


def test_the_fallback_waits_for_more_failures_than_the_threshold() -> None:
    scaled, health, served = ScaledObject(fallback=Fallback(2, 3)), Health(), list[float | None]()
    for value in (5.0, None, None, None, 5.0, None):
        answer, health = served_value(scaled, value, 1.0, 9, health)
        served.append(answer)

    assert served == [5.0, None, None, 3.0, 5.0, None]


def test_without_a_fallback_a_failure_is_a_failure() -> None:
    assert served_value(ScaledObject(), None, 1.0, 9, Health(99)) == (None, Health(100))


@pytest.mark.parametrize(
    ("value", "expected"),
    [(3.5, 3.5), (0.0, 0.0), (-1.0, 0.0), (float("nan"), 0.0), (float("inf"), 0.0)],
)
def test_odd_numbers_become_zero(value: float, expected: float) -> None:
    assert quantity(value) == expected


def test_the_hpas_minimum_is_never_zero() -> None:
    assert (ScaledObject().hpa_min, ScaledObject(min_replicas=3).hpa_min) == (1, 3)
