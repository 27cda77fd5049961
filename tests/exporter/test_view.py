"""/decisions: the documented shape, and no number that JSON does not know."""

from __future__ import annotations

import dataclasses
import json
from typing import TYPE_CHECKING, Any

from hypothesis import given
from hypothesis import strategies as st

from scaler.core.model import (
    Decision,
    FleetView,
    Floors,
    Latency,
    PodCounts,
    PodView,
    Quantiles,
    Signal,
    SignalReading,
)
from scaler.exporter.view import FleetOfTriggers, TriggerView, look, to_json

if TYPE_CHECKING:
    from exporter.conftest import Fleet


def shown(fleet: Fleet) -> list[dict[str, Any]]:
    body = json.loads(to_json(look(fleet.store, fleet.clock.now())))
    triggers: list[dict[str, Any]] = body["triggers"]
    return triggers


def test_the_shape_around_a_decision(fleet: Fleet) -> None:
    fleet.publish(fleet.busy())
    fleet.clock.forward(2.5)
    body = json.loads(to_json(look(fleet.store, fleet.clock.now())))
    (trigger,) = body["triggers"]
    decision = trigger.pop("decision")

    assert body["shape"] == 1
    assert body["at"] == "2026-11-30T09:00:32.500000+00:00"
    assert set(body) == {"shape", "version", "at", "triggers"}
    assert len(trigger.pop("why")) == 9
    assert trigger == {
        "namespace": "chat",
        "name": "llama",
        "trigger": "915663b0",
        "warnings": [],
        "refusal": None,
        "headline": "Wants 4 replicas: 512 requests in flight, a replica carries 128",
        "age_seconds": 2.5,
        "min_replicas": 2,
        "max_replicas": 6,
    }
    assert decision["at"] == "2026-11-30T09:00:30+00:00"


def test_everything_a_decision_holds_is_there(fleet: Fleet) -> None:
    """A field added to the model appears by itself."""
    fleet.publish(fleet.busy())
    (trigger,) = shown(fleet)
    decision = trigger["decision"]

    def fields(kind: type) -> set[str]:
        return {field.name for field in dataclasses.fields(kind)}

    assert set(decision) == fields(Decision)
    assert set(decision["counts"]) == fields(PodCounts)
    assert set(decision["floors"]) == fields(Floors)
    assert set(decision["fleet"]) == fields(FleetView)
    assert all(set(pod) == fields(PodView) for pod in decision["pods"])
    assert decision["signals"]["queue"] == {
        "needed": 4.6,
        "observed": 23.0,
        "target": 5.0,
        "counted": 3.5,
    }
    assert decision["guards"] == ["throughput_cap"]
    assert decision["floors"]["next_opening"] == "2026-12-01T09:00:30+00:00"
    assert decision["pods"][3]["failure"] == {"cause": "refused", "detail": "connection refused"}
    assert decision["fleet"]["latencies"]["queue_time"]["p99"] == {
        "estimate": 120.0,
        "lower": 120.0,
        "upper": None,
    }


def test_an_invalid_decision_desires_null(fleet: Fleet) -> None:
    fleet.publish(fleet.blind())
    (trigger,) = shown(fleet)

    assert trigger["decision"]["valid"] is False
    assert trigger["decision"]["desired"] is None
    assert trigger["decision"]["fleet"]["running"] is None


def test_before_the_first_decision_and_when_refused(fleet: Fleet) -> None:
    fleet.trigger("a")
    fleet.trigger("b").refuse("host elsewhere is not allowed")
    waiting, refused = shown(fleet)

    assert waiting["decision"] is None
    assert waiting["headline"] == "Waiting for the first look at the pods"
    assert refused["refusal"] == "host elsewhere is not allowed"
    assert refused["headline"] == "Refused: host elsewhere is not allowed"


def test_warnings_of_the_metadata_are_shown(fleet: Fleet) -> None:
    fleet.trigger(targetWatiing="5").publish(fleet.busy())
    (trigger,) = shown(fleet)

    assert len(trigger["warnings"]) == 1
    assert "targetWatiing" in trigger["warnings"][0]


def _forbid(constant: str) -> None:
    raise AssertionError(f"{constant} is no JSON")


numbers = st.floats(allow_nan=True, allow_infinity=True)


@given(numbers, numbers, numbers, st.text())
def test_no_float_leaves_the_json_grammar(a: float, b: float, c: float, text: str) -> None:
    """NaN and the infinities become null wherever they stand; any text survives."""
    from exporter.conftest import Fleet  # noqa: PLC0415 - hypothesis and fixtures do not mix

    fleet = Fleet()
    trigger = fleet.publish(
        fleet.busy(
            composite=a,
            pressure=b,
            model=text,
            signals={Signal.QUEUE: SignalReading(a, b, c, a)},
            fleet=FleetView(
                running=a,
                waiting=b,
                waiting_by_reason={text: c},
                latencies={Latency.ITL: Quantiles(a, b, (a, b, c), (c, a, b), (b, c, a))},
                within_promise=(a, c),
            ),
        )
    )
    view = TriggerView(
        trigger.key, trigger.policy, (), trigger.decision, None, tuple(trigger.trail)
    )
    text_out = to_json(FleetOfTriggers(fleet.clock.now(), (view,)))

    body = json.loads(text_out, parse_constant=_forbid)
    assert body["triggers"][0]["decision"]["model"] == text


def test_the_picture_ends_with_the_decision_above_it(fleet: Fleet) -> None:
    """The store keeps a point every ten seconds; a change since then is shown all the same."""
    fleet.publish(fleet.busy(desired=2))
    fleet.clock.forward(3)
    fleet.publish(fleet.busy(desired=5))
    (view,) = look(fleet.store, fleet.clock.now()).triggers

    assert [point.desired for point in view.trail] == [2, 5]
    assert [point.desired for point in fleet.store.triggers()[0].trail] == [2]
