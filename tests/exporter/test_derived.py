"""The derived metrics: what is exported, what is left out, and under which names."""

from __future__ import annotations

import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from fakes import REFUSED, ManualClock, sample
from fakes import Fleet as CoreFleet
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics
from prometheus_client.openmetrics.parser import (
    text_string_to_metric_families as parse_openmetrics,
)
from prometheus_client.parser import text_string_to_metric_families as parse_text

from scaler.core.model import (
    FleetView,
    Floors,
    PodCounts,
    PodLife,
    PodState,
    PodView,
    Reason,
)
from scaler.core.policy import TriggerPolicy
from scaler.errors import InvalidTrigger
from scaler.exporter.derived import DerivedCollector
from scaler.exporter.exposition import Format, Renderer
from scaler.store import Store

if TYPE_CHECKING:
    from collections.abc import Iterable

    from exporter.conftest import Fleet
    from prometheus_client import Metric

    from scaler.core.model import ModelSample, ScrapeFailure

GOLDEN = Path(__file__).parent / "testdata" / "metrics.golden.txt"


def promtool(exposition: str) -> str:
    """Return promtool's complaints; it is part of Debian's prometheus package."""
    tool = shutil.which("promtool")
    assert tool is not None, "promtool is missing: apt-get install prometheus"
    done = subprocess.run(
        [tool, "check", "metrics"],
        input=exposition,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr or f"exit {done.returncode}"


def everything(fleet: Fleet) -> str:
    """A busy trigger with pod details, a blind one, one without a decision, one refused."""
    fleet.publish(fleet.busy())
    fleet.publish(fleet.blind(), "judge", "rl")
    fleet.trigger("new")
    fleet.trigger("outside").refuse("host elsewhere is not allowed")
    fleet.clock.forward(2.5)
    return generate_latest(fleet.collector(pod_detail=True)).decode()


def test_golden_exposition(fleet: Fleet, request: pytest.FixtureRequest) -> None:
    """The whole exposition, read in review; --update-golden writes it."""
    text = everything(fleet)
    if request.config.getoption("--update-golden", default=False):
        GOLDEN.write_text(text)

    assert text == GOLDEN.read_text()


def test_promtool_has_no_complaint(fleet: Fleet) -> None:
    assert promtool(everything(fleet)) == ""


def test_promtool_would_complain() -> None:
    """The check above can fail: promtool sees a counter without _total."""
    assert "_total" in promtool("# HELP a_requests x\n# TYPE a_requests counter\na_requests 1\n")


def test_openmetrics_parses_to_the_same_samples(fleet: Fleet) -> None:
    text = everything(fleet)
    collector = fleet.collector(pod_detail=True)
    openmetrics = generate_openmetrics(collector).decode()  # type: ignore[no-untyped-call]
    families = parse_openmetrics(openmetrics)  # type: ignore[no-untyped-call]

    def samples(metrics: Iterable[Metric]) -> set[object]:
        return {
            (sample.name, frozenset(sample.labels.items()), sample.value)
            for metric in metrics
            for sample in metric.samples
        }

    assert samples(families) == samples(parse_text(text))


@pytest.mark.parametrize("form", Format)
def test_what_is_served_is_what_the_library_would_write(fleet: Fleet, form: Format) -> None:
    """Our own writer, for speed, against prometheus_client: the same families and samples."""
    evil = 'a"b\\c\nd\ud800'
    fleet.publish(fleet.busy(model=evil), name=evil)
    everything(fleet)
    collector = fleet.collector(pod_detail=True)
    with ThreadPoolExecutor(1) as thread:
        served = Renderer([collector], thread).generate(form, compress=False).decode()
    if form is Format.OPENMETRICS:
        ours = parse_openmetrics(served)  # type: ignore[no-untyped-call]
        assert served.count("# EOF\n") == 1
    else:
        ours = parse_text(served)
        assert promtool(served) == ""

    def families(metrics: Iterable[Metric]) -> list[tuple[str, str, str, list[object]]]:
        return [
            (
                metric.name,
                metric.documentation,
                metric.type,
                [(s.name, frozenset(s.labels.items()), s.value) for s in metric.samples],
            )
            for metric in metrics
        ]

    assert families(ours) == families(collector.collect())


def test_registering_and_describing_read_nothing(fleet: Fleet) -> None:
    """`describe` names the families, so that registering does not collect."""
    collector = fleet.collector(pod_detail=True)
    described = {metric.name for metric in collector.describe()}
    CollectorRegistry().register(collector)
    fleet.publish(fleet.busy())

    assert described == {metric.name for metric in collector.collect()}
    assert not [sample for metric in collector.describe() for sample in metric.samples]


def test_a_scrape_changes_nothing(fleet: Fleet) -> None:
    trigger = fleet.publish(fleet.busy())
    before = (trigger.decision, list(trigger.trail), trigger.asked_at, replace(trigger.usage))
    first = fleet.series()

    assert fleet.series() == first
    assert before == (
        trigger.decision,
        list(trigger.trail),
        trigger.asked_at,
        trigger.usage,
    )


# --- an unknown is never a zero -----------------------------------------------------------------


def test_an_invalid_decision_has_no_desired_replicas(fleet: Fleet) -> None:
    fleet.publish(fleet.blind(desired=0))
    series = fleet.series()

    assert ("desired_replicas", "") not in series
    assert series["decision_valid", ""] == 0
    assert series["active", ""] == 1


def test_a_desired_zero_is_a_zero(fleet: Fleet) -> None:
    fleet.publish(fleet.busy(desired=0, reason=Reason.NO_PODS, active=False))
    series = fleet.series()

    assert series["desired_replicas", ""] == 0
    assert series["decision_valid", ""] == 1
    assert series["active", ""] == 0


def test_an_empty_fleet_view_gives_no_series(fleet: Fleet) -> None:
    fleet.publish(fleet.busy())
    known = {name for name, _ in fleet.series()}
    fleet.publish(fleet.busy(fleet=FleetView(), signals={}, composite=None, pressure=None))
    gone = known - {name for name, _ in fleet.series()}

    assert gone == {
        "arrivals_per_second",
        "arriving_tokens_per_second",
        "composite_replicas",
        "counted_replicas",
        "errors_per_second",
        "expected_wait_seconds",
        "finishes_per_second",
        "generation_tokens_per_second",
        "in_flight_requests",
        "kv_usage_ratio",
        "needed_replicas",
        "preemptions_per_second",
        "pressure_ratio",
        "prompt_tokens_per_second",
        "queue_time_bound_seconds",
        "queue_time_seconds",
        "rejections_per_second",
        "running_requests",
        "time_to_first_token_bound_seconds",
        "time_to_first_token_seconds",
        "tokens_per_request",
        "waiting_requests",
        "waiting_requests_by_reason",
        "within_promise_ratio",
    }


def test_pods_that_cannot_be_listed_are_not_zero_pods(fleet: Fleet) -> None:
    fleet.publish(
        fleet.blind(reason=Reason.CANNOT_LIST_PODS, counts=PodCounts(), floors=Floors(schedule=3))
    )
    names = {name for name, _ in fleet.series()}

    assert not names & {"pods", "ready_pods", "fresh_pods", "floor_unmet_replicas"}


def test_a_signal_that_does_not_count_is_needed_but_not_counted(fleet: Fleet) -> None:
    fleet.publish(fleet.busy())
    series = fleet.series()

    assert series["needed_replicas", "ttft"] == 2.4
    assert ("counted_replicas", "ttft") not in series
    assert series["counted_replicas", "queue"] == 3.5


def test_before_the_first_decision_only_its_absence_is_known(fleet: Fleet) -> None:
    fleet.trigger()

    assert fleet.series() == {
        ("registered_triggers", ""): 1,
        ("refused", ""): 0,
        ("decision_valid", ""): 0,
    }


def test_a_refused_trigger_shows_no_stale_decision(fleet: Fleet) -> None:
    fleet.publish(fleet.busy()).refuse("host elsewhere is not allowed")

    assert fleet.series() == {
        ("registered_triggers", ""): 1,
        ("refused", ""): 1,
        ("decision_valid", ""): 0,
    }


# --- values -------------------------------------------------------------------------------------


def test_the_reason_is_a_state_set(fleet: Fleet) -> None:
    fleet.publish(fleet.busy())
    states = {
        labels: v for (name, labels), v in fleet.series().items() if name == "decision_reason"
    }

    assert states == {reason.value: float(reason is Reason.LOAD) for reason in Reason}


def test_pod_states_are_disjoint_and_add_up(fleet: Fleet) -> None:
    counts = PodCounts(
        total=12,
        ready=5,
        fresh=4,
        starting=2,
        unschedulable=1,
        crash_looping=1,
        overdue=1,
        sleeping=2,
        stalled=1,
        terminating=3,
    )
    fleet.publish(fleet.busy(counts=counts))
    states = {labels: v for (name, labels), v in fleet.series().items() if name == "pods"}

    assert states == {
        "serving": 4,
        "stalled": 1,
        "sleeping": 2,
        "starting": 2,
        "unschedulable": 1,
        "crash_looping": 1,
        "overdue": 1,
        "terminating": 3,
    }
    assert sum(states.values()) - states["terminating"] == counts.total


def test_ages_grow_between_decisions(fleet: Fleet) -> None:
    fleet.publish(fleet.busy(oldest_sample_age=1.5))
    fleet.clock.forward(40)
    series = fleet.series(pod_detail=True)

    assert series["decision_age_seconds", ""] == 40
    assert series["oldest_sample_age_seconds", ""] == 41.5
    assert series["pod_sample_age_seconds", "llama-0"] == 41.5


def test_a_wall_clock_step_does_not_age_a_decision(fleet: Fleet) -> None:
    fleet.publish(fleet.busy())
    fleet.clock.wall = fleet.clock.wall.replace(year=2031)

    assert fleet.series()["decision_age_seconds", ""] == 0


def test_quantiles_come_with_the_edges_of_their_bucket(fleet: Fleet) -> None:
    """3 s lies inside 2.5..5: an estimate without its edges would pretend to know (G10)."""
    fleet.publish(fleet.busy())
    series = fleet.series()

    assert series["time_to_first_token_seconds", "p99"] == 4.1
    assert series["time_to_first_token_bound_seconds", "p99,lower"] == 2.5
    assert series["time_to_first_token_bound_seconds", "p99,upper"] == 5.0
    assert series["queue_time_bound_seconds", "p99,upper"] == float("inf")
    assert series["within_promise_ratio", "lower"] == 0.96
    assert series["within_promise_ratio", "upper"] == 0.99


def test_replica_seconds_against_a_static_fleet(fleet: Fleet) -> None:
    """Four pods of at most six for ten seconds, then a gap that nobody saw."""
    fleet.publish(fleet.busy())
    fleet.clock.forward(10)
    fleet.publish(fleet.busy())
    fleet.clock.forward(61)
    fleet.publish(fleet.busy())

    assert fleet.series()["replica_seconds_total", ""] == 40
    assert fleet.series()["static_replica_seconds_total", ""] == 60


def test_replica_seconds_stand_still_while_the_pods_cannot_be_listed(fleet: Fleet) -> None:
    fleet.publish(fleet.blind(reason=Reason.CANNOT_LIST_PODS, counts=PodCounts()))
    fleet.clock.forward(10)
    fleet.publish(fleet.busy())

    assert fleet.series()["replica_seconds_total", ""] == 0
    assert fleet.series()["static_replica_seconds_total", ""] == 0


def test_without_a_maximum_there_is_no_static_fleet(fleet: Fleet) -> None:
    trigger = fleet.trigger()
    trigger.publish(fleet.busy())
    names = {name for name, _ in fleet.series()}

    assert "replica_seconds_total" in names
    assert not names & {"static_replica_seconds_total", "max_replicas"}


# --- cases --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "names",
    [
        pytest.param({"vllm:gpu_cache_usage_perc"}, id="old"),
        pytest.param({"vllm:kv_cache_usage_perc"}, id="new"),
        pytest.param({"vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc"}, id="mixed-fleet"),
    ],
)
def test_v01_the_kv_metric_in_use_is_exported(fleet: Fleet, names: set[str]) -> None:
    pods = tuple(PodView(name, PodState.FRESH, kv_name=name) for name in sorted(names))
    fleet.publish(fleet.busy(pods=pods))
    found = {labels for name, labels in fleet.series() if name == "kv_metric_info"}

    assert found == names


def test_v01_a_missing_kv_family_is_counted(fleet: Fleet) -> None:
    fleet.publish(fleet.blind())
    series = fleet.series()

    assert series["missing_family_pods", "kv"] == 1
    assert not [name for name, _ in series if name == "kv_metric_info"]


def test_v16_own_names_have_no_colon(fleet: Fleet) -> None:
    """Colons are reserved for recording rules."""
    names = [metric.name for metric in fleet.collector(pod_detail=True).describe()]

    assert not [name for name in names if ":" in name]
    assert not [name for name in names if not name.startswith("vllm_scaler_")]


@pytest.mark.parametrize(
    ("floor", "ready", "starting", "unmet"),
    [
        pytest.param(89, 88, 0, 1, id="89-with-88"),
        pytest.param(89, 80, 9, 0, id="starting-pods-count"),
        pytest.param(45, 50, 0, 0, id="above-the-floor"),
        pytest.param(10, 0, 0, 10, id="nothing-runs"),
        pytest.param(0, 0, 0, 0, id="no-floor"),
    ],
)
def test_k18_the_gap_to_a_floor_is_exported(
    fleet: Fleet, floor: int, ready: int, starting: int, unmet: int
) -> None:
    counts = PodCounts(total=ready + starting, ready=ready, fresh=ready, starting=starting)
    fleet.publish(fleet.busy(floors=Floors(schedule=floor), counts=counts))

    assert fleet.series()["floor_unmet_replicas", ""] == unmet


def test_d04_pods_that_load_their_model_do_not_fail(fleet: Fleet) -> None:
    """Two serve and three refuse for six minutes; then one that served refuses, too."""
    core = CoreFleet(interval=30.0)
    pods: dict[str, ModelSample | ScrapeFailure]
    pods = {"a": sample(2), "b": sample(2), "c": REFUSED, "d": REFUSED, "e": REFUSED}
    lives = dict.fromkeys("cde", PodLife.STARTING)
    for _ in range(12):
        fleet.publish(core.tick(pods, lives=lives))
        loading = fleet.series()
        assert not [cause for name, cause in loading if name == "failing_pods"]
        assert (loading["ready_pods", ""], loading["fresh_pods", ""]) == (2, 2)
        assert (loading["pods", "starting"], loading["decision_valid", ""]) == (3, 1)

    fleet.publish(core.tick({**pods, "b": REFUSED}, lives=lives))

    assert fleet.series()["failing_pods", "refused"] == 1


def test_f12_what_was_asked_for_and_what_is_served_are_both_exported(fleet: Fleet) -> None:
    """A floor beyond the cap stays visible as it was asked for. Without a cap it is served."""
    for most, served in ((12, 12), (None, 400)):
        core = CoreFleet(TriggerPolicy(max_replicas=most))
        fleet.publish(core.tick({"a": sample(1)}, snapshot={"forecast_floor": 400}))
        series = fleet.series()

        assert series["floor_replicas", "forecast"] == 400
        assert series["desired_replicas", ""] == served
        assert series["decision_reason", "max_replicas"] == (most is not None)


def test_k23_the_same_name_in_two_namespaces(fleet: Fleet) -> None:
    fleet.publish(fleet.busy(desired=2, fleet=FleetView(running=0.0, waiting=2.0)), namespace="a")
    fleet.publish(fleet.busy(desired=90, fleet=FleetView(running=0.0, waiting=90.0)), namespace="b")
    waiting = {
        (sample.labels["namespace"], sample.labels["scaledobject"]): sample.value
        for metric in fleet.collector().collect()
        for sample in metric.samples
        if sample.name == "vllm_scaler_waiting_requests"
    }

    assert waiting == {("a", "llama"): 2, ("b", "llama"): 90}


def test_k23_series_vanish_with_their_object_alone(fleet: Fleet) -> None:
    fleet.publish(fleet.busy(), namespace="a")
    fleet.clock.forward(400)
    fleet.publish(fleet.busy(), namespace="b")
    fleet.clock.forward(400)
    fleet.store.expire()
    text = generate_latest(fleet.collector(pod_detail=True)).decode()

    assert 'namespace="a"' not in text
    assert 'namespace="b"' in text


def test_k23_an_edited_trigger_does_not_collide_with_its_former_self(fleet: Fleet) -> None:
    for target in ("64", "128"):
        fleet.trigger(targetInFlight=target).publish(fleet.busy())
    desired = [
        sample.labels["trigger"]
        for metric in fleet.collector().collect()
        for sample in metric.samples
        if sample.name == "vllm_scaler_desired_replicas"
    ]

    assert len(set(desired)) == 2


def test_g08_names_carry_base_units(fleet: Fleet) -> None:
    """0.9 of the KV cache is exported as 0.9, and its name says that it is a ratio."""
    fleet.publish(fleet.busy())
    assert fleet.series()["kv_usage_ratio", "max"] == 0.9

    foreign = ("percent", "perc", "millis", "_ms", "minute", "hour", "bytes_total", "kilo")
    units = ("_seconds", "_ratio", "_replicas", "_pods", "_requests", "_per_second", "_info")
    plain = {
        "active",
        "decision_guard",
        "decision_reason",
        "decision_valid",
        "infeasible_promise",
        "metadata_invalid",
        "pods",
        "refused",
        "registered_triggers",
        "rejected_values",
        "tokens_per_request",
        "waiting_requests_by_reason",
    }
    for metric in fleet.collector(pod_detail=True).describe():
        name = metric.name.removeprefix("vllm_scaler_")
        assert not any(unit in name for unit in foreign), name
        assert name.endswith(units) or name in plain, name


# --- what outsiders write -----------------------------------------------------------------------


def test_hostile_names_stay_label_values(fleet: Fleet) -> None:
    """Quotes, line ends and lone surrogates survive a parser, and the length is bounded."""
    evil = 'a"b\\c\nvllm_scaler_desired_replicas 99\n\ud800' + "x" * 500
    fleet.publish(
        fleet.busy(
            model=evil,
            fleet=FleetView(waiting_by_reason={evil: 1.0}),
            pods=(PodView(evil, PodState.MISSING, missing=frozenset({evil}), rejected={evil: 1}),),
        ),
        name=evil,
    )
    text = generate_latest(fleet.collector(pod_detail=True)).decode()
    values = [
        value
        for family in parse_text(text)
        for sample in family.samples
        for value in sample.labels.values()
    ]

    assert max(len(value) for value in values) == 253
    assert any(value.startswith('a"b\\c\nvllm_scaler_desired_replicas 99\n?x') for value in values)
    assert promtool(text) == ""


def test_waiting_reasons_are_bounded(fleet: Fleet) -> None:
    reasons = {f"r{i:03}": 1.0 for i in range(100)}
    fleet.publish(fleet.busy(fleet=FleetView(waiting_by_reason=reasons)))
    series = {
        labels: v
        for (name, labels), v in fleet.series().items()
        if name == "waiting_requests_by_reason"
    }

    assert len(series) == 9
    assert series["others"] == 92
    assert sum(series.values()) == 100


def test_pod_series_are_opt_in(fleet: Fleet) -> None:
    fleet.publish(fleet.busy())

    def labels(*, pod_detail: bool) -> set[str]:
        return {
            label
            for metric in fleet.collector(pod_detail=pod_detail).collect()
            for sample in metric.samples
            for label in sample.labels
        }

    assert "pod" not in labels(pod_detail=False)
    assert "pod" in labels(pod_detail=True)


def test_500_triggers_render(fleet: Fleet) -> None:
    for i in range(500):
        fleet.publish(fleet.busy(), name=f"llama-{i}")
    text = generate_latest(fleet.collector()).decode()

    assert text.count("\nvllm_scaler_desired_replicas{") == 500
    assert "vllm_scaler_registered_triggers 500.0\n" in text


def test_metadata_that_is_no_policy_shows_until_keda_asks_no_more() -> None:
    clock = ManualClock()
    store = Store(clock, ttl=600)
    with pytest.raises(InvalidTrigger):
        store.register("team", "typo", {"targetInFlight": "x"})
    exported = "".join(DerivedCollector(store, clock).write(openmetrics=False))
    clock.advance(601)
    later = "".join(DerivedCollector(store, clock).write(openmetrics=False))

    identity = re.escape('{namespace="team",scaledobject="typo",trigger="') + "[0-9a-f]{8}" + '"}'
    assert re.search(f"^vllm_scaler_metadata_invalid{identity} 1.0$", exported, re.MULTILINE)
    assert re.search(f"^vllm_scaler_decision_valid{identity} 0.0$", exported, re.MULTILINE)
    assert "typo" not in later
