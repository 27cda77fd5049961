"""StreamIsActive: edges, ends, and what is left behind."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING

import grpc.aio
import pytest
from keda.conftest import Hands, resident_bytes, until
from keda.proxy import Proxy

from scaler.keda._pb.externalscaler_pb2 import IsActiveResponse
from scaler.keda._pb.externalscaler_pb2_grpc import ExternalScalerStub

if TYPE_CHECKING:
    from grpc.aio import UnaryStreamCall
    from keda.conftest import Keda, Launcher

    from scaler.keda._pb.externalscaler_pb2 import ScaledObjectRef

    Stream = UnaryStreamCall[ScaledObjectRef, IsActiveResponse]

GOOD = {"scalerAddress": "vllm-scaler.keda:6000"}
BAD = {**GOOD, "targetWaiting": "-1"}


async def _told(stream: Stream) -> list[bool]:
    """Return everything the stream says until it ends in good order."""
    return [answer.result async for answer in stream]


async def _next(stream: Stream) -> bool:
    answer = await stream.read()
    assert isinstance(answer, IsActiveResponse)  # not the end of the stream
    return answer.result


async def _opened(keda: Keda, count: int) -> None:
    await until(lambda: keda.ledger.open == count)


async def test_a_stream_tells_rises_only(keda: Keda) -> None:
    ref = keda.ref()
    stream = keda.stub.StreamIsActive(ref)
    told = asyncio.ensure_future(_told(stream))
    await _opened(keda, 1)
    for active in [False, True, True, False, False, True, False]:
        await keda.caught_up(keda.trigger(ref))
        keda.publish(ref, active=active)
    await keda.caught_up(keda.trigger(ref))

    assert await keda.service.end_streams(5)

    assert await told == [True, True]
    assert await stream.code() is grpc.StatusCode.OK


@pytest.mark.parametrize(("active", "first"), [(True, [True]), (False, [])])
async def test_a_stream_that_opens_tells_activity_at_once(
    keda: Keda, *, active: bool, first: list[bool]
) -> None:
    ref = keda.ref()
    keda.publish(ref, active=active)
    told = asyncio.ensure_future(_told(keda.stub.StreamIsActive(ref)))
    await keda.caught_up(keda.trigger(ref))

    await keda.service.end_streams(5)

    assert await told == first


async def test_an_invalid_decision_pushes_its_activity_all_the_same(keda: Keda) -> None:
    ref = keda.ref()
    keda.publish(ref, active=True, invalid="quorum lost")

    stream = keda.stub.StreamIsActive(ref)

    assert await _next(stream) is True


async def test_streams_end_with_ok_and_a_reconnect_is_told_again(launch: Launcher) -> None:
    """A restart: KEDA's back-off starts anew at 2 s only if the old server ended in good order."""
    old, new = await launch(), await launch()
    ref = old.ref()
    old.publish(ref, active=True)
    stream = old.stub.StreamIsActive(ref)
    told = asyncio.ensure_future(_told(stream))
    await old.caught_up(old.trigger(ref))

    await old.server.stop(5)

    assert await told == [True]
    assert await stream.code() is grpc.StatusCode.OK
    new.publish(ref, active=True)
    assert await _next(new.stub.StreamIsActive(ref)) is True


async def test_while_stopping_a_new_stream_ends_at_once_with_ok(keda: Keda) -> None:
    ref = keda.ref()
    keda.publish(ref, active=True)
    await keda.service.end_streams(5)

    stream = keda.stub.StreamIsActive(ref)

    assert await _told(stream) == []
    assert await stream.code() is grpc.StatusCode.OK


@pytest.mark.parametrize(
    ("metadata", "barred", "code"),
    [
        pytest.param(BAD, None, "INVALID_ARGUMENT", id="bad-metadata"),
        pytest.param(GOOD, "host 10.0.0.9 is not allowed", "PERMISSION_DENIED", id="barred"),
    ],
)
async def test_a_stream_that_can_never_tell_anything_is_refused(
    keda: Keda, metadata: dict[str, str], barred: str | None, code: str
) -> None:
    ref = keda.ref(metadata=metadata)
    if barred is not None:
        keda.trigger(ref).refuse(barred)

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await keda.stub.StreamIsActive(ref).read()

    assert caught.value.code().name == code
    assert keda.ledger.calls == [("StreamIsActive", code)]
    assert keda.ledger.open == 0


async def test_open_streams_are_bounded(launch: Launcher) -> None:
    keda = await launch(max_streams=2)
    streams = [keda.stub.StreamIsActive(keda.ref()) for _ in range(2)]
    await _opened(keda, 2)

    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await keda.stub.StreamIsActive(keda.ref()).read()

    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert caught.value.details() == "already 2 streams open"
    streams[0].cancel()
    await _opened(keda, 1)
    again = keda.stub.StreamIsActive(keda.ref())
    await _opened(keda, 2)
    again.cancel()


async def test_a_trigger_does_not_expire_under_a_stream_nor_when_it_ends(launch: Launcher) -> None:
    hands = Hands()
    keda = await launch(clock=hands)
    trigger = keda.trigger(keda.ref())
    stream = keda.stub.StreamIsActive(keda.ref())
    await _opened(keda, 1)

    hands.advance(86_400)
    assert keda.store.expire() == ()
    stream.cancel()
    await _opened(keda, 0)
    assert keda.store.expire() == ()  # a poll may follow: as if KEDA had just asked
    hands.advance(601)
    assert keda.store.expire() == (trigger.key,)


async def test_two_streams_of_one_trigger_are_both_told(keda: Keda) -> None:
    ref = keda.ref()
    streams = [keda.stub.StreamIsActive(ref) for _ in range(2)]
    await _opened(keda, 2)
    await keda.caught_up(keda.trigger(ref), streams=2)

    keda.publish(ref, active=True)

    assert [await _next(stream) for stream in streams] == [True, True]


async def test_p16_unary_calls_pass_five_hundred_streams_on_one_connection(keda: Keda) -> None:
    refs = [keda.ref(f"object-{n}") for n in range(500)]
    for ref in refs:
        keda.publish(ref, 3, active=True)
    streams = [keda.stub.StreamIsActive(ref) for ref in refs]
    assert all(await asyncio.gather(*map(_next, streams)))
    await _opened(keda, 500)

    values = await asyncio.gather(*(keda.desired(ref) for ref in refs))

    assert values == [3] * 500
    assert keda.ledger.open == 500


async def test_p16_a_steady_rate_is_answered_beside_streams_that_are_told(keda: Keda) -> None:
    """Calls go one after the other, 200 of them, while every decision wakes all 500 streams.

    How fast they are answered is what benchmarks/rpc.py measures.
    """
    refs = [keda.ref(f"object-{n}") for n in range(500)]
    for ref in refs:
        keda.publish(ref, 1, active=True)
    streams = [keda.stub.StreamIsActive(ref) for ref in refs]
    await asyncio.gather(*map(_next, streams))
    answers = []
    for turn in range(200):
        if turn % 20 == 0:
            for ref in refs:
                keda.publish(ref, turn, active=turn % 40 == 0)
        ref = refs[turn % 500]
        answers.append((await keda.desired(ref), await keda.active(ref)))

    assert answers == [(turn // 20 * 20, turn // 20 % 2 == 0) for turn in range(200)]
    assert keda.ledger.open == 500
    assert not any(stream.done() for stream in streams)


async def test_p05_cancelled_streams_leave_nothing_behind(keda: Keda, launch: Launcher) -> None:
    """Half are reset by the client, half go with their connection: 5,000, three times over.

    A leak grows each time, and the allocator's noise does not: the least growth is what counts.
    """
    ref = keda.ref()
    keda.publish(ref, active=True)
    await _open_and_leave(keda, launch, ref, rounds=2)
    tasks, memory = len(asyncio.all_tasks()), [resident_bytes()]

    for _ in range(3):
        await _open_and_leave(keda, launch, ref, rounds=25)
        memory.append(resident_bytes())

    await until(lambda: len(asyncio.all_tasks()) <= tasks)
    assert keda.trigger(ref).streams == 0
    assert keda.service._streams._waits == set()
    assert {code for _, code in keda.ledger.calls} == {"CANCELLED"}
    assert min(after - before for before, after in pairwise(memory)) < 10e6


async def _open_and_leave(
    keda: Keda, launch: Launcher, ref: ScaledObjectRef, *, rounds: int
) -> None:
    for _ in range(rounds):
        channel = await launch.channel(keda.target)
        dropped = ExternalScalerStub(channel)
        streams = [keda.stub.StreamIsActive(ref) for _ in range(100)]
        streams += [dropped.StreamIsActive(ref) for _ in range(100)]
        await _opened(keda, 200)
        for stream in streams[:50]:
            await _next(stream)  # some have been told, some are cut off while being told
        for stream in streams[:100]:
            stream.cancel()
        await channel.close(None)
        await _opened(keda, 0)


async def test_p05_a_peer_that_vanished_is_noticed(launch: Launcher) -> None:
    """No RST, no FIN: only our own keepalive can tell. The shipped times are 30 s and 10 s."""
    options = (("grpc.keepalive_time_ms", 200), ("grpc.http2.ping_timeout_ms", 200))
    keda = await launch(options=options)
    async with Proxy(keda.port) as proxy:
        stub = ExternalScalerStub(await launch.channel(f"127.0.0.1:{proxy.port}"))
        streams = [stub.StreamIsActive(keda.ref()) for _ in range(20)]
        await _opened(keda, 20)

        proxy.vanish()

        await _opened(keda, 0)
        for stream in streams:
            stream.cancel()
    assert {code for _, code in keda.ledger.calls} == {"CANCELLED"}
