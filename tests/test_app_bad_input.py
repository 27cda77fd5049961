"""Pods that say nonsense, through the whole scaler: KEDA gets a sound number or a named error."""

from __future__ import annotations

import math

import grpc
import pytest
from test_app import World, world

pytestmark = pytest.mark.timeout(30)

LABEL = '{engine="0",model_name="llama"}'
LARGEST = 2.0**53  # above it a float no longer holds every whole number

NONSENSE = {
    "waiting NaN": ("NaN", "1", "0.5"),
    "waiting +Inf": ("+Inf", "1", "0.5"),
    "waiting -Inf": ("-Inf", "1", "0.5"),
    "waiting negative": ("-3", "1", "0.5"),
    "running NaN": ("3", "NaN", "0.5"),
    "running +Inf": ("3", "+Inf", "0.5"),
    "running negative": ("3", "-1", "0.5"),
    "kv NaN": ("3", "1", "NaN"),
    "kv +Inf": ("3", "1", "+Inf"),
    "kv negative": ("3", "1", "-0.5"),
    "all NaN": ("NaN", "NaN", "NaN"),
    "beyond a double": ("1e999", "1", "0.5"),
    "beyond an int64": ("1e300", "1", "0.5"),
}
KV_ALONE = {name for name in NONSENSE if name.startswith("kv")}


def body(waiting: str, running: str, kv: str) -> str:
    return (
        f"# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{LABEL} {running}\n"
        f"# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{LABEL} {waiting}\n"
        f"# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{LABEL} {kv}\n"
    )


async def answers(w: World, count: int) -> list[float | grpc.StatusCode]:
    """What KEDA is told over ``count`` decisions, each sound."""
    [trigger] = w.app.store.triggers()
    assert trigger.decision is not None
    told: list[float | grpc.StatusCode] = []
    last = trigger.decision.sequence + count
    async for decision in trigger.decisions():
        try:
            value: float | grpc.StatusCode = await w.keda.value()
        except grpc.aio.AioRpcError as error:
            value = error.code()
        told.append(value)
        await w.keda.active()
        if decision.sequence >= last:
            break
    return told


def assert_sound(told: list[float | grpc.StatusCode]) -> None:
    assert told
    for answer in told:
        if isinstance(answer, float):
            assert math.isfinite(answer)
            assert 0 <= answer < LARGEST
        else:
            assert answer is grpc.StatusCode.UNAVAILABLE


def rejected(exposition: str) -> float:
    """How many values were dropped from the newest samples of all pods."""
    family = "vllm_scaler_rejected_values{"
    lines = [line for line in exposition.splitlines() if line.startswith(family)]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


@pytest.mark.parametrize("nonsense", NONSENSE)
async def test_v13_nonsense_on_one_pod_then_on_all_is_never_unknown(nonsense: str) -> None:
    async with world(3) as w:
        for pod in w.pods:
            pod.waiting = 10
        await w.keda.until(lambda v: v == 6)
        w.pods[0].raw = body(*NONSENSE[nonsense])
        on_one = await answers(w, 4)
        for pod in w.pods:
            pod.raw = body(*NONSENSE[nonsense])
        on_all = await answers(w, 4)
        w.clock.advance(61)
        later = await answers(w, 4)
        _, exposition = await w.get("/metrics")

    for told in (on_one, on_all, later):
        assert_sound(told)
    assert grpc.StatusCode.UNAVAILABLE not in on_one  # two good pods are a quorum
    if nonsense in KV_ALONE:
        assert later[-1] == 2  # 3 pods x 3 waiting over a target of 5
        assert rejected(exposition) == 3  # one a pod
    elif nonsense != "beyond an int64":
        assert later[-1] is grpc.StatusCode.UNAVAILABLE


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        pytest.param("", "the answer is empty", id="an empty body"),
        pytest.param(
            '# TYPE python_info gauge\npython_info{version="3.12"} 1\n'
            "# TYPE process_start_time_seconds gauge\nprocess_start_time_seconds 1.7e9\n",
            "no vllm:* families",
            id="python and process families alone",
        ),
    ],
)
async def test_v03_200_without_vllm_families_holds_then_is_unavailable_with_pod_and_cause(
    raw: str, why: str
) -> None:
    async with world(1) as w:
        w.pods[0].waiting = 10
        await w.keda.until(lambda v: v == 2)
        w.pods[0].raw = raw
        held = await answers(w, 3)
        w.clock.advance(61)
        code, text = await w.keda.until_error()
        url = w.pods[0].url

    assert held == [2.0] * len(held)
    assert code is grpc.StatusCode.UNAVAILABLE
    assert url in text
    assert f"{why} (stats logging disabled, or wrong port?)" in text
