"""GetMetricSpec, GetMetrics and IsActive, asked by a real client."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from keda.conftest import Hands, until
from structlog.testing import capture_logs

from scaler.clock import SystemClock
from scaler.config.settings import Address
from scaler.config.trigger import MAX_CHARACTERS, MAX_KEYS
from scaler.keda._pb.externalscaler_pb2 import (
    GetMetricsRequest,
    GetMetricsResponse,
    MetricSpec,
    ScaledObjectRef,
)
from scaler.keda._pb.externalscaler_pb2_grpc import ExternalScalerStub
from scaler.keda.names import METRIC_NAME
from scaler.keda.server import GrpcServer
from scaler.keda.service import Service
from scaler.store import Store

if TYPE_CHECKING:
    from collections.abc import Mapping

    from keda.conftest import Keda, Launcher

    from scaler.store import Trigger

GOOD = {"scalerAddress": "vllm-scaler.keda:6000"}
BAD = {**GOOD, "targetWaiting": "-1", "quorum": "many"}
GET_METRICS = "/externalscaler.ExternalScaler/GetMetrics"


# --- GetMetricSpec ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "metadata",
    [
        pytest.param({}, id="empty"),
        pytest.param(GOOD, id="good"),
        pytest.param(BAD, id="bad"),
        pytest.param({f"key{n}": "x" for n in range(1000)}, id="too-many-keys"),
        pytest.param({"schedule": "x" * 1_400_000}, id="as-large-as-kubernetes-can-hold"),
    ],
)
async def test_k02_spec_is_the_same_whatever_is_wrong(
    keda: Keda, metadata: Mapping[str, str]
) -> None:
    """Nothing was ever published, and the metadata may be anything: the spec does not care."""
    answer = await keda.stub.GetMetricSpec(keda.ref(metadata=metadata), timeout=5)

    spec = MetricSpec(metricName=METRIC_NAME, targetSize=1, targetSizeFloat=1.0)
    assert list(answer.metricSpecs) == [spec]


async def test_k02_spec_answers_for_a_reference_that_names_nothing(keda: Keda) -> None:
    answer = await keda.stub.GetMetricSpec(ScaledObjectRef(), timeout=5)

    assert [spec.metricName for spec in answer.metricSpecs] == [METRIC_NAME]


async def test_v16_spec_names_the_model(keda: Keda) -> None:
    answer = await keda.stub.GetMetricSpec(keda.ref(metadata={**GOOD, "model": "org/name:7b%"}))

    assert [s.metricName for s in answer.metricSpecs] == [
        "vllm-desired-replicas-org-name-7b-bc9e3f88"
    ]


async def test_spec_registers_nothing(keda: Keda) -> None:
    await keda.stub.GetMetricSpec(keda.ref(), timeout=5)

    assert keda.store.triggers() == ()


# --- GetMetrics -------------------------------------------------------------------------------


@pytest.mark.parametrize("desired", [0, 1, 3, 40])
async def test_k06_both_fields_carry_the_same_number(keda: Keda, desired: int) -> None:
    ref = keda.ref()
    keda.publish(ref, desired)

    answer = await keda.stub.GetMetrics(keda.asking(ref), timeout=5)

    (value,) = answer.metricValues
    assert (value.metricValue, value.metricValueFloat) == (desired, float(desired))


async def test_k06_an_old_client_reads_the_integers(keda: Keda) -> None:
    """KEDA 2.16 and older know no float fields; their stubs skip them."""
    ref = keda.ref()
    keda.publish(ref, 3)
    old_answer = _old_message("GetMetricsResponse", "metricValues", "MetricValue", "metricValue")
    old_spec = _old_message("GetMetricSpecResponse", "metricSpecs", "MetricSpec", "targetSize")
    get_metrics = keda.channel.unary_unary(
        GET_METRICS, GetMetricsRequest.SerializeToString, old_answer.FromString
    )
    get_spec = keda.channel.unary_unary(
        "/externalscaler.ExternalScaler/GetMetricSpec",
        ScaledObjectRef.SerializeToString,
        old_spec.FromString,
    )

    value = await get_metrics(keda.asking(ref))
    spec = await get_spec(ref)

    assert str(value.metricValues[0]) == f'metricName: "{METRIC_NAME}"\nmetricValue: 3\n'
    assert str(spec.metricSpecs[0]) == f'metricName: "{METRIC_NAME}"\ntargetSize: 1\n'


def _old_message(outer: str, field: str, inner: str, number: str) -> type[Any]:
    """Return a message class with a name and an integer only, as the contract once was."""
    kind = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name=f"old_{inner}.proto", syntax="proto3")
    small = file.message_type.add(name=inner)
    small.field.add(name="metricName", number=1, type=kind.TYPE_STRING, label=kind.LABEL_OPTIONAL)
    small.field.add(name=number, number=2, type=kind.TYPE_INT64, label=kind.LABEL_OPTIONAL)
    large = file.message_type.add(name=outer)
    large.field.add(
        name=field,
        number=1,
        type=kind.TYPE_MESSAGE,
        type_name=f".{inner}",
        label=kind.LABEL_REPEATED,
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(outer))


async def test_a_synchronous_client_is_answered(keda: Keda) -> None:
    ref = keda.ref()
    keda.publish(ref, 4)

    def ask() -> GetMetricsResponse:
        with grpc.insecure_channel(keda.target) as channel:
            call = channel.unary_unary(
                GET_METRICS, GetMetricsRequest.SerializeToString, GetMetricsResponse.FromString
            )
            answer: GetMetricsResponse = call(keda.asking(ref), timeout=5)
            return answer

    answer = await asyncio.to_thread(ask)

    assert [value.metricValueFloat for value in answer.metricValues] == [4.0]


@pytest.mark.parametrize(
    ("desired", "told"), [(-3, 0), (10**12, 10**9)], ids=["negative", "beyond-int64-thousandths"]
)
async def test_a_value_stays_within_what_the_hpa_can_reckon(
    keda: Keda, desired: int, told: int
) -> None:
    ref = keda.ref()
    keda.publish(ref, desired)

    assert await keda.desired(ref) == told


@pytest.mark.parametrize(
    "name",
    ["s0-vllm-desired-replicas", "VLLM-DESIRED-REPLICAS", "vllm-desired-replicas-old-1a2b3c4d"],
)
async def test_the_value_carries_the_name_that_was_asked_for(keda: Keda, name: str) -> None:
    ref = keda.ref()
    keda.publish(ref, 2)

    answer = await keda.stub.GetMetrics(keda.asking(ref, name), timeout=5)

    assert [value.metricName for value in answer.metricValues] == [name]


async def test_another_metric_is_not_found(keda: Keda) -> None:
    ref = keda.ref()
    keda.publish(ref, 2)

    assert await keda.refusal(ref, "s0-prometheus") == (
        "NOT_FOUND",
        "unknown metric; this scaler serves vllm-desired-replicas",
    )


async def test_an_invalid_decision_is_an_error_never_a_zero(keda: Keda) -> None:
    ref = keda.ref()
    keda.publish(ref, 0, invalid="1 of 4 ready pods answers; 2 are needed")

    assert await keda.refusal(ref) == ("UNAVAILABLE", "1 of 4 ready pods answers; 2 are needed")


async def test_a_long_message_of_a_decision_is_cut(keda: Keda) -> None:
    ref = keda.ref()
    keda.publish(ref, invalid="no data " * 500)

    code, text = await keda.refusal(ref)

    assert code == "UNAVAILABLE"
    assert text.startswith("no data no data")
    assert len(text.encode()) <= 1000


async def test_the_first_contact_waits_for_the_first_sweep(launch: Launcher) -> None:
    keda = await launch(first_wait=30, deadline=30)
    ref = keda.ref()
    asked = asyncio.ensure_future(keda.desired(ref))
    await keda.first_contact()

    keda.publish(ref, 5)

    assert await asked == 5


async def test_no_decision_in_time_is_unavailable(keda: Keda) -> None:
    assert await keda.refusal(keda.ref()) == (
        "UNAVAILABLE",
        "no decision yet: the first look at the pods is not complete",
    )


STALE = "the newest decision is over 120 s old: the scaler is stuck, or has stopped looking"


@pytest.mark.parametrize("invalid", [None, "no data"], ids=["valid", "invalid"])
@pytest.mark.parametrize("active", [True, False])
async def test_an_answer_without_a_successor_is_not_served_for_ever(
    launch: Launcher, *, active: bool, invalid: str | None
) -> None:
    """A look-up or a scrape that hangs must end in KEDA's fallback, not in yesterday's number."""
    hands = Hands()
    keda = await launch(clock=hands)
    ref = keda.ref()
    keda.publish(ref, 4, active=active, invalid=invalid)
    hands.advance(120)
    young = await keda.refusal(ref) if invalid else await keda.desired(ref)

    hands.advance(0.1)
    refusals = [await keda.refusal(ref)]
    hands.advance(86_400)
    refusals.append(await keda.refusal(ref))

    assert young == (("UNAVAILABLE", invalid) if invalid else 4)
    assert refusals == [("UNAVAILABLE", STALE)] * 2  # the same text: its events are counted as one
    assert await keda.active(ref) is active  # unknown is not idle, and not busy either
    keda.publish(ref, 5)
    assert await keda.desired(ref) == 5


async def test_bad_metadata_is_told_whole(keda: Keda) -> None:
    code, text = await keda.refusal(keda.ref(metadata=BAD))

    assert code == "INVALID_ARGUMENT"
    assert "targetWaiting='-1'" in text
    assert "quorum='many'" in text
    assert await keda.refusal(keda.ref(metadata=BAD)) == (code, text)  # events are merged by text


async def test_the_text_of_a_refusal_is_bounded(keda: Keda) -> None:
    keys = [f"target{k}" for k in ("Waiting", "InFlight", "KvUsage", "QueueTime", "Ttft")]
    durations = ["drainTime", "signalWindow", "stallAfter", "activeHold", "coldStart", "leadTime"]
    metadata = {**GOOD, **dict.fromkeys(keys + durations, "né" * 500)}

    code, text = await keda.refusal(keda.ref(metadata=metadata))

    assert code == "INVALID_ARGUMENT"
    assert len(text.encode()) <= 1000
    assert text.endswith(" more")


async def test_unknown_keys_do_not_break_scaling(keda: Keda) -> None:
    ref = keda.ref(metadata={**GOOD, "targetWating": "7", "tokenFromEnv": "hush"})
    keda.publish(ref, 2)

    assert await keda.desired(ref) == 2


@pytest.mark.parametrize(
    ("ref", "told"),
    [
        pytest.param(
            ScaledObjectRef(name="llama", scalerMetadata=GOOD),
            "namespace of the ScaledObject: 0 characters, not 1 to 253",
            id="no-namespace",
        ),
        pytest.param(
            ScaledObjectRef(name="x" * 254, namespace="ai", scalerMetadata=GOOD),
            "name of the ScaledObject: 254 characters, not 1 to 253",
            id="long-name",
        ),
        pytest.param(
            ScaledObjectRef(
                name="llama", namespace="ai", scalerMetadata={f"k{n}": "" for n in range(101)}
            ),
            f"metadata: must be at most {MAX_KEYS} keys and {MAX_CHARACTERS} characters, "
            "got 101 and 294",
            id="many-keys",
        ),
        pytest.param(
            ScaledObjectRef(
                name="llama", namespace="ai", scalerMetadata={"schedule": "é" * 65_533}
            ),
            "scalerMetadata is 131074 bytes long; at most 131072 are read",
            id="many-bytes",
        ),
    ],
)
async def test_what_no_scaledobject_can_be_is_refused(
    keda: Keda, ref: ScaledObjectRef, told: str
) -> None:
    assert await keda.refusal(ref) == ("INVALID_ARGUMENT", told)
    assert keda.store.triggers() == ()


async def test_endpoints_that_are_not_allowed_are_told(launch: Launcher) -> None:
    keda = await launch(first_wait=30, deadline=30)
    ref = keda.ref()
    asked = asyncio.ensure_future(keda.refusal(ref))
    await keda.first_contact()

    keda.trigger(ref).refuse("endpoints: host 10.0.0.9 is not covered by --allow-endpoints")

    told = ("PERMISSION_DENIED", "endpoints: host 10.0.0.9 is not covered by --allow-endpoints")
    assert await asked == told
    assert await keda.refusal(ref) == told


async def test_too_many_triggers_are_told(launch: Launcher) -> None:
    keda = await launch(limit=1)
    keda.publish(keda.ref("first"), 1)

    code, text = await keda.refusal(keda.ref("second"))

    assert (code, text) == (
        "RESOURCE_EXHAUSTED",
        "already watching 1 triggers; raise --max-triggers",
    )
    assert await keda.desired(keda.ref("first")) == 1


async def test_every_unary_call_has_a_deadline_of_its_own(launch: Launcher) -> None:
    """KEDA sets none: a call that hangs would hold a ScaledObject's loop for ever."""
    keda = await launch(first_wait=600, deadline=0.05)

    assert await keda.refusal(keda.ref()) == ("DEADLINE_EXCEEDED", "no answer within 0.05 s")
    assert await keda.active(keda.ref()) is True


# --- IsActive ---------------------------------------------------------------------------------


@pytest.mark.parametrize("active", [True, False])
@pytest.mark.parametrize("invalid", [None, "no fresh sample for 60 s"])
async def test_activity_is_that_of_the_decision_valid_or_not(
    keda: Keda, *, active: bool, invalid: str | None
) -> None:
    ref = keda.ref()
    keda.publish(ref, 1, active=active, invalid=invalid)

    assert await keda.active(ref) is active


async def test_unknown_is_not_idle(keda: Keda) -> None:
    assert await keda.active(keda.ref()) is True


async def test_a_mistake_while_editing_does_not_put_pods_to_zero(keda: Keda) -> None:
    keda.publish(keda.ref(), 3, active=True)

    assert await keda.active(keda.ref(metadata=BAD)) is True


async def test_the_newest_answer_of_the_same_object_counts(launch: Launcher) -> None:
    keda = await launch(first_wait=0.05)
    keda.publish(keda.ref(metadata=GOOD | {"spareReplicas": "1"}), active=True)
    keda.publish(keda.ref(), active=False)
    keda.publish(keda.ref(namespace="other"), active=True)

    assert await keda.active(keda.ref(metadata=BAD)) is False


async def test_bad_metadata_of_an_unknown_object_is_not_active_and_is_logged_once(
    keda: Keda,
) -> None:
    with capture_logs() as logs:
        answers = [await keda.active(keda.ref(metadata=BAD)) for _ in range(3)]

    assert answers == [False, False, False]
    told = [entry for entry in logs if entry["event"] == "trigger not answered"]
    assert [(t["scaledobject"], t["code"], t["log_level"]) for t in told] == [
        ("llama", "INVALID_ARGUMENT", "warning")
    ]


async def test_each_trigger_of_an_object_complains_once_whatever_the_other_does(
    keda: Keda,
) -> None:
    keda.publish(keda.ref(), 3, active=True)
    bad = [keda.ref(metadata=BAD), keda.ref(metadata=BAD | {"spareReplicas": "x"})]
    with capture_logs() as logs:
        for _ in range(3):
            for ref in bad:
                await keda.active(ref)
            await keda.active(keda.ref())

    assert sum(entry["event"] == "trigger not answered" for entry in logs) == len(bad)


async def test_remembered_complaints_are_bounded(keda: Keda) -> None:
    refs = [keda.ref(f"object-{number}", BAD) for number in range(1100)]

    with capture_logs():
        for ref in refs:
            await keda.active(ref)

    assert len(keda.service._complaints) == 1024


async def test_beyond_the_bound_on_triggers_unknown_is_not_idle(launch: Launcher) -> None:
    keda = await launch(limit=0)

    assert await keda.active(keda.ref()) is True


async def test_a_barred_trigger_is_not_active(keda: Keda) -> None:
    keda.trigger(keda.ref()).refuse("endpoints: host 10.0.0.9 is not allowed")

    assert await keda.active(keda.ref()) is False


class _BrokenStore(Store):
    def register(self, namespace: str, name: str, metadata: Mapping[str, str]) -> Trigger:
        raise RuntimeError(f"token=hunter2 {namespace} {name} {metadata}")


async def test_a_bug_of_ours_tells_nothing_and_keeps_pods(launch: Launcher) -> None:
    store = _BrokenStore(SystemClock())
    server = GrpcServer(Address("127.0.0.1", 0), store, SystemClock())
    target = f"127.0.0.1:{await server.start()}"
    stub = ExternalScalerStub(await launch.channel(target))
    ref = ScaledObjectRef(name="llama", namespace="ai", scalerMetadata=GOOD)

    with capture_logs() as logs:
        answer = await stub.IsActive(ref, timeout=5)
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub.GetMetrics(GetMetricsRequest(scaledObjectRef=ref, metricName=METRIC_NAME))
        with pytest.raises(grpc.aio.AioRpcError) as stream_caught:
            await stub.StreamIsActive(ref).read()
    await server.stop(1)

    assert answer.result is True
    assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert caught.value.details() == "internal error; see the scaler's log"
    assert stream_caught.value.details() == "internal error; see the scaler's log"
    assert [entry["exc_info"] for entry in logs if entry["event"] == "call broke"] == [True] * 3


# --- both -------------------------------------------------------------------------------------


async def test_k08_both_calls_answer_from_the_same_decision(keda: Keda) -> None:
    """Busy but not queued, then idle: value and activity change together, never apart."""
    ref = keda.ref()
    for desired, active in [(1, True), (3, True), (0, False), (2, True)]:
        decision = keda.publish(ref, desired, active=active)
        trigger = keda.trigger(ref)

        assert trigger.decision is decision
        assert (await keda.desired(ref), await keda.active(ref)) == (desired, active)
        assert keda.trigger(ref).decision is decision  # reading changed nothing


async def test_k12_answers_do_not_wait_for_pods(keda: Keda) -> None:
    """No sweep ever completes again, and a hundred calls at once are answered within a second."""
    ref = keda.ref()
    keda.publish(ref, 2)
    request = keda.asking(ref)

    answers = await asyncio.gather(
        *(keda.stub.GetMetrics(request, timeout=1) for _ in range(100)),
        *(keda.stub.IsActive(ref, timeout=1) for _ in range(100)),
    )

    assert len(answers) == 200


async def test_k13_two_scalers_with_the_same_pods_answer_alike(launch: Launcher) -> None:
    """A cold one has no number until its first sweep: an error, never another number.

    The case would have it NOT_SERVING until then. It is SERVING (decision 0030): its spec is right
    from the start, and KEDA counts failures for ``fallback`` only while the spec answers. What the
    HPA makes of two that agree to within a scrape is in tests/replay.
    """
    warm, cold = await launch(first_wait=0.05), await launch(first_wait=0.05)
    ref = warm.ref()
    warm.publish(ref, 4)

    specs = [await scaler.stub.GetMetricSpec(ref) for scaler in (warm, cold)]
    assert specs[0] == specs[1]
    health = health_pb2_grpc.HealthStub(cold.channel)
    assert (await health.Check(health_pb2.HealthCheckRequest())).status == 1  # SERVING
    for _ in range(3):
        assert await warm.desired(ref) == 4
        assert (await cold.refusal(ref))[0] == "UNAVAILABLE"
    assert (await warm.active(ref), await cold.active(ref)) == (True, True)
    cold.publish(ref, 4)
    alternating = [await scaler.desired(ref) for scaler in (warm, cold) * 10]
    assert set(alternating) == {4}


async def test_k23_the_same_name_in_two_namespaces_is_two_objects(keda: Keda) -> None:
    quiet, busy = keda.ref(namespace="a"), keda.ref(namespace="b")
    keda.publish(quiet, 2, active=False)
    keda.publish(busy, 90)

    assert (await keda.desired(quiet), await keda.desired(busy)) == (2, 90)
    assert (await keda.active(quiet), await keda.active(busy)) == (False, True)


async def test_the_observer_hears_of_every_call(keda: Keda) -> None:
    ref = keda.ref()
    await keda.stub.GetMetricSpec(ref)
    await keda.refusal(ref)
    keda.publish(ref, 1)
    await keda.desired(ref)
    await keda.active(ref)

    assert keda.ledger.calls == [
        ("GetMetricSpec", "OK"),
        ("GetMetrics", "UNAVAILABLE"),
        ("GetMetrics", "OK"),
        ("IsActive", "OK"),
    ]


async def test_the_observer_hears_of_the_contract_and_of_nothing_else(keda: Keda) -> None:
    """A stranger can name any method: what is not ours must not become a label."""
    made_up = keda.channel.unary_unary(
        "/externalscaler.ExternalScaler/Evil",
        ScaledObjectRef.SerializeToString,
        ScaledObjectRef.FromString,
    )
    with pytest.raises(grpc.aio.AioRpcError, match="UNIMPLEMENTED"):
        await made_up(keda.ref(), timeout=5)
    await health_pb2_grpc.HealthStub(keda.channel).Check(health_pb2.HealthCheckRequest())
    with pytest.raises(grpc.aio.AioRpcError, match="UNIMPLEMENTED"):
        await keda.stub.StreamMetricSpec(keda.ref(), timeout=5).read()
    keda.publish(keda.ref(), active=True)
    stream = keda.stub.StreamIsActive(keda.ref())
    await stream.read()
    stream.cancel()
    await until(lambda: len(keda.ledger.calls) == 2)
    await keda.active(keda.ref())

    assert keda.ledger.calls == [
        ("StreamMetricSpec", "UNIMPLEMENTED"),
        ("StreamIsActive", "CANCELLED"),
        ("IsActive", "OK"),
    ]
    assert keda.ledger.timed == {"IsActive"}


async def test_the_real_times_are_those_promised() -> None:
    service = Service(Store(SystemClock()), SystemClock())

    assert (service._first_wait, service._deadline, service._stale_after) == (1.5, 2.0, 120.0)
