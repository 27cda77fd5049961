"""Registration and expiry, publishing and waiting, and the last hour's trail."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from scaler.core.model import Decision, FleetView, Floors, Now, PodCounts, Reason
from scaler.errors import InvalidTrigger, TooManyTriggers
from scaler.store import Store, TrailPoint, Trigger

if TYPE_CHECKING:
    from types import TracebackType

GOOD = {"scalerAddress": "vllm-scaler.keda:6000"}
EDITED = {**GOOD, "targetWaiting": "7"}
BAD = {**GOOD, "targetWaiting": "-1"}
START = Now(datetime(2026, 3, 2, 9, tzinfo=UTC), 1000.0)


@dataclass
class Hands:
    """A clock whose hands the test moves."""

    at: Now = field(default=START)

    def now(self) -> Now:
        return self.at

    def advance(self, seconds: float) -> None:
        self.at = _after(self.at, seconds)


def _after(at: Now, seconds: float) -> Now:
    return Now(at.wall + timedelta(seconds=seconds), at.monotonic + seconds)


def _decision(sequence: int = 1, at: Now = START, *, valid: bool = True) -> Decision:
    return Decision(
        sequence=sequence,
        at=at,
        valid=valid,
        desired=sequence,
        active=True,
        reason=Reason.LOAD if valid else Reason.NO_DATA,
        message="as the test says",
        composite=sequence - 0.5,
        floors=Floors(schedule=2, forecast=1),
        counts=PodCounts(total=4, ready=3, stalled=1),
        fleet=FleetView(running=3, waiting=5),
    )


@pytest.fixture
def hands() -> Hands:
    return Hands()


@pytest.fixture
def store(hands: Hands) -> Store:
    return Store(hands, ttl=600, limit=3)


@pytest.fixture
def trigger(store: Store) -> Trigger:
    return store.register("ai", "llama", GOOD)


# --- registration -----------------------------------------------------------------------------


def test_the_same_metadata_is_the_same_trigger(store: Store) -> None:
    first = store.register("ai", "llama", {"a": "1", **EDITED})
    again = store.register("ai", "llama", {**EDITED, "a": "1"})

    assert again is first
    assert first.policy.target_waiting == 7
    assert len(first.warnings) == 1
    assert len(first.key.id) == 8
    assert str(first.key) == f"ai/llama/{first.key.id}"


def test_two_triggers_of_one_object_never_meet(store: Store, trigger: Trigger) -> None:
    """Two triggers, or an edit while the old one is still registered."""
    edited = store.register("ai", "llama", EDITED)
    trigger.publish(_decision(1))
    edited.publish(_decision(7))

    assert trigger.decision != edited.decision
    assert {t.key for t in store.of_object("ai", "llama")} == {trigger.key, edited.key}


def test_k23_the_same_name_in_two_namespaces_is_two_triggers(
    store: Store, trigger: Trigger
) -> None:
    other = store.register("research", "llama", GOOD)

    other.publish(_decision(90))

    assert trigger.decision is None
    assert store.of_object("ai", "llama") == (trigger,)
    assert store.of_object("research", "llama") == (other,)
    assert store.of_object("ai", "mistral") == ()
    assert other.key.id == trigger.key.id  # a digest of the metadata, not of the object


def test_triggers_come_in_a_stable_order(store: Store) -> None:
    registered = [store.register(*name, GOOD) for name in (("b", "x"), ("a", "z"), ("a", "y"))]

    assert store.triggers() == tuple(reversed(registered))


def test_the_poller_hears_of_an_arrival(store: Store) -> None:
    assert not store.arrived.is_set()

    store.register("ai", "llama", GOOD)

    assert store.arrived.is_set()


def test_the_bound_refuses_new_triggers_and_keeps_the_old(store: Store) -> None:
    for name in "abc":
        store.register("ai", name, GOOD)

    with pytest.raises(TooManyTriggers, match="already watching 3 triggers; raise --max-triggers"):
        store.register("ai", "d", GOOD)

    assert store.register("ai", "a", GOOD).key.name == "a"
    assert len(store.triggers()) == 3


def test_a_mistake_is_told_each_time_and_registers_nothing(store: Store) -> None:
    """Each time as a new exception: one raised again would grow by a traceback a poll."""
    caught = []
    for _ in range(50):
        with pytest.raises(InvalidTrigger) as mistake:
            store.register("ai", "llama", BAD)
        caught.append(mistake.value)

    assert {str(mistake) for mistake in caught} == {str(caught[0])}
    assert len({id(mistake) for mistake in caught}) == 50
    assert _depth(caught[-1].__traceback__) == _depth(caught[1].__traceback__)
    assert store.triggers() == ()
    assert not store.arrived.is_set()


def _depth(trace: TracebackType | None) -> int:
    return 0 if trace is None else 1 + _depth(trace.tb_next)


@pytest.mark.parametrize("bad_first", [True, False], ids=["bad first", "good first"])
def test_t10_one_bad_window_rejects_that_trigger_only(store: Store, bad_first: bool) -> None:
    """Two triggers of one ScaledObject: one with a window that cannot be read among good ones."""
    window = "- {timezone: UTC, start: 0 9 * * *, end: 0 17 * * *, desiredReplicas: 2}\n"
    bad = GOOD | {"schedule": window + window.replace("0 17", "0 24") + window}
    good = GOOD | {"schedule": window}

    for metadata in [bad, good, bad] if bad_first else [good, bad, good]:
        if metadata is good:
            kept = store.register("ai", "llama", good)
        else:
            with pytest.raises(InvalidTrigger) as refused:
                store.register("ai", "llama", bad)
    kept.publish(_decision(4))

    assert [problem.key for problem in refused.value.problems] == ["schedule[1].end"]
    assert store.of_object("ai", "llama") == (kept,)
    assert kept.decision is not None
    assert len(kept.policy.windows) == 1


def test_remembered_mistakes_are_bounded(store: Store) -> None:
    for number in range(300):
        with pytest.raises(InvalidTrigger):
            store.register("ai", f"object-{number}", BAD)

    assert len(store._mistakes) == 256
    assert store._keys == {}


# --- expiry -----------------------------------------------------------------------------------


def test_a_trigger_is_forgotten_when_keda_stops_asking(
    store: Store, hands: Hands, trigger: Trigger
) -> None:
    hands.advance(600)
    assert store.expire() == ()

    hands.advance(1)

    assert store.expire() == (trigger.key,)
    assert store.triggers() == ()
    again = store.register("ai", "llama", GOOD)
    assert again is not trigger
    assert again.decision is None


def test_asking_keeps_a_trigger(store: Store, hands: Hands, trigger: Trigger) -> None:
    hands.advance(599)
    store.register("ai", "llama", GOOD)
    hands.advance(599)

    assert store.expire() == ()
    assert (trigger.registered_at, trigger.asked_at) == (1000, 1599)


def test_an_open_stream_keeps_a_trigger_and_its_end_counts_as_asking(
    store: Store, hands: Hands, trigger: Trigger
) -> None:
    with store.streaming(trigger):
        hands.advance(86_400)
        assert trigger.streams == 1
        assert store.expire() == ()
    assert trigger.streams == 0
    assert store.expire() == ()

    hands.advance(601)

    assert store.expire() == (trigger.key,)


def test_a_stream_that_breaks_is_counted_down(store: Store, trigger: Trigger) -> None:
    with pytest.raises(ConnectionError), store.streaming(trigger):
        raise ConnectionError

    assert trigger.streams == 0


def test_one_object_expiring_leaves_the_others(store: Store, hands: Hands) -> None:
    gone = store.register("ai", "llama", GOOD)
    hands.advance(601)
    kept = store.register("research", "llama", GOOD)

    assert store.expire() == (gone.key,)
    assert store.triggers() == (kept,)
    assert store.register("research", "llama", GOOD) is kept


# --- decisions --------------------------------------------------------------------------------


async def test_the_first_decision_wakes_all_who_wait(trigger: Trigger) -> None:
    waiting = [asyncio.ensure_future(trigger.first_decision(30)) for _ in range(3)]
    await asyncio.sleep(0)

    trigger.publish(_decision())

    assert await asyncio.gather(*waiting) == [trigger.decision] * 3


async def test_waiting_for_the_first_decision_ends(trigger: Trigger) -> None:
    assert await trigger.first_decision(0.01) is None


async def test_a_decision_that_is_there_is_not_waited_for(trigger: Trigger) -> None:
    trigger.publish(_decision(valid=False))

    assert await trigger.first_decision(0) is trigger.decision


async def test_a_refusal_wakes_who_waits_and_a_decision_ends_it(trigger: Trigger) -> None:
    waiting = asyncio.ensure_future(trigger.first_decision(30))
    await asyncio.sleep(0)

    trigger.refuse("host 10.0.0.9 is not allowed")

    assert await waiting is None
    assert await trigger.first_decision(30) is None  # and does not wait again
    assert trigger.refusal == "host 10.0.0.9 is not allowed"
    trigger.publish(_decision())
    assert trigger.refusal is None


async def test_a_watcher_sees_the_newest_and_then_each_later_one(trigger: Trigger) -> None:
    trigger.publish(_decision(1))
    trigger.publish(_decision(2))
    decisions = trigger.decisions()

    assert (await anext(decisions)).sequence == 2
    later = asyncio.ensure_future(anext(decisions))
    await asyncio.sleep(0)
    trigger.refuse("for a moment")  # no decision: nothing to see
    trigger.publish(_decision(3))
    assert (await later).sequence == 3


async def test_a_slow_watcher_skips_to_the_newest(trigger: Trigger) -> None:
    decisions = trigger.decisions()
    trigger.publish(_decision(1))
    await anext(decisions)
    for sequence in range(2, 10):
        trigger.publish(_decision(sequence))

    assert (await anext(decisions)).sequence == 9


async def test_every_watcher_is_woken(trigger: Trigger) -> None:
    watchers = [asyncio.ensure_future(anext(trigger.decisions())) for _ in range(3)]
    await asyncio.sleep(0)

    trigger.publish(_decision(4))

    assert [d.sequence for d in await asyncio.gather(*watchers)] == [4, 4, 4]


# --- the trail --------------------------------------------------------------------------------


def test_the_trail_keeps_a_point_every_ten_seconds(trigger: Trigger) -> None:
    for second in range(0, 31, 5):
        trigger.publish(_decision(1 + second, _after(START, second)))

    start = START.wall.timestamp()
    assert [point.at - start for point in trigger.trail] == [0, 10, 20, 30]
    assert trigger.trail[0] == TrailPoint(
        at=start, desired=1, composite=0.5, serving=2, floor=2, in_flight=8
    )


def test_an_invalid_decision_leaves_a_gap_never_a_zero(trigger: Trigger) -> None:
    decision = _decision(valid=False)

    trigger.publish(replace(decision, composite=None, fleet=FleetView()))

    point = trigger.trail[0]
    assert (point.desired, point.composite, point.in_flight) == (None, None, None)


def test_the_trail_is_an_hour_long(trigger: Trigger) -> None:
    for second in range(0, 2 * 3600 + 1, 10):
        trigger.publish(_decision(1, _after(START, second)))

    assert len(trigger.trail) == 361
    assert trigger.trail[-1].at - trigger.trail[0].at == 3600


def test_a_wall_clock_that_steps_back_does_not_stop_the_trail(trigger: Trigger) -> None:
    trigger.publish(_decision(1, _after(START, 300)))
    trigger.publish(_decision(2, START))

    assert [point.desired for point in trigger.trail] == [1, 2]
