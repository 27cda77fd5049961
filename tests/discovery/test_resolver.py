"""Names are looked up without holding up anything else, however long the system takes."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from typing import TYPE_CHECKING

import pytest
from fakes_dns import hanging

from scaler.resolver import Resolver, admitted, system_addresses

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.timeout(20)


async def give_up(resolver: Resolver, *names: str, seconds: float = 0.1) -> list[object]:
    """Ask for names at once with a deadline each; return what came of it."""

    async def one(name: str) -> object:
        async with asyncio.timeout(seconds):
            return await resolver(name)

    return await asyncio.gather(*(one(name) for name in names), return_exceptions=True)


async def happens(check: Callable[[], bool]) -> None:
    """Let the loop turn until something is so; the test's time-out bounds the wait."""
    while not check():  # noqa: ASYNC110 - what is waited for happens in a thread
        await asyncio.sleep(0.001)


async def test_look_ups_that_hang_leave_the_default_executor_free() -> None:
    hung = [f"hung-{n}" for n in range(32)]
    with hanging("10.0.0.1", names=hung) as look_up:
        outcomes = await give_up(Resolver(look_up, lane=33), *hung, "good", seconds=0.5)
        free = await asyncio.wait_for(asyncio.to_thread(lambda: "free"), 5)

    assert [type(outcome) for outcome in outcomes[:-1]] == [TimeoutError] * 32
    assert (outcomes[-1], free) == (["10.0.0.1"], "free")


async def test_a_name_is_looked_up_once_for_all_who_ask() -> None:
    with hanging("10.0.0.1", names={"a"}) as look_up:
        resolver = Resolver(look_up)
        early = [asyncio.create_task(resolver("a")) for _ in range(10)]
        assert [type(o) for o in await give_up(resolver, *["a"] * 5)] == [TimeoutError] * 5
        late = asyncio.create_task(resolver("a"))
        early[0].cancel()  # one that leaves takes nobody along
        await asyncio.sleep(0)
        look_up.let_go.set()
        answers = await asyncio.gather(*early[1:], late)
        again = await resolver("a")

    assert answers == [["10.0.0.1"]] * 10
    assert again == ["10.0.0.1"]
    assert look_up.asked == ["a", "a"]  # the second: nothing is remembered


async def test_a_hung_name_is_not_asked_again_while_it_hangs() -> None:
    with hanging("10.0.0.1", names={"a"}) as look_up:
        resolver = Resolver(look_up)
        for _ in range(4):
            assert [type(o) for o in await give_up(resolver, "a", seconds=0.02)] == [TimeoutError]
        assert look_up.asked == ["a"]


async def test_no_more_threads_than_the_lanes_hold_and_what_nobody_awaits_is_not_begun() -> None:
    hung = [f"hung-{n}" for n in range(20)]
    with hanging("10.0.0.1", names=hung) as look_up:
        resolver = Resolver(look_up, lane=4, slow_lane=2)
        await give_up(resolver, *hung)
        before = list(look_up.asked)
        look_up.let_go.set()
        answer = await resolver("good")

    assert (len(before), look_up.most) == (4, 4)
    assert answer == ["10.0.0.1"]
    assert look_up.asked == [*before, "good"]


async def test_names_that_hung_wait_in_a_lane_of_their_own() -> None:
    hung = [f"hung-{n}" for n in range(4)]
    with hanging("10.0.0.1", names=hung) as look_up:
        resolver = Resolver(look_up, lane=4, slow_lane=1)
        await give_up(resolver, *hung)
        look_up.let_go.set()  # the servers answer, too late for anybody
        await happens(lambda: not resolver._running)
        look_up.let_go.clear()
        outcomes = await give_up(resolver, *hung, "a", "b", "c", "d", seconds=0.3)

    assert [type(outcome) for outcome in outcomes[:4]] == [TimeoutError] * 4
    assert outcomes[4:] == [["10.0.0.1"]] * 4


async def test_a_name_that_answers_in_time_again_leaves_the_slow_lane() -> None:
    with hanging("10.0.0.1", names={"a"}) as look_up:
        resolver = Resolver(look_up, slow_lane=1)
        await give_up(resolver, "a")
        look_up.let_go.set()
        await happens(lambda: not resolver._running)
        assert list(resolver._hung) == ["a"]
        await resolver("a")

    assert list(resolver._hung) == []


async def test_an_error_is_every_askers() -> None:
    def broken(host: str) -> list[str]:
        raise OSError(f"no such name: {host}")

    outcomes = await give_up(Resolver(broken), "a", "a", "b")

    assert [str(outcome) for outcome in outcomes] == [
        "no such name: a",
        "no such name: a",
        "no such name: b",
    ]


async def test_close_lets_go_of_everything() -> None:
    with hanging("10.0.0.1", names={"a"}) as look_up:
        resolver = Resolver(look_up)
        asker = asyncio.create_task(resolver("a"))
        await happens(lambda: look_up.asked == ["a"])
        resolver.close()
        with pytest.raises(asyncio.CancelledError):
            await asker


def test_a_hung_look_up_does_not_hold_up_the_end_of_the_process() -> None:
    program = """
import asyncio, threading
from scaler.resolver import Resolver
async def main():
    try:
        async with asyncio.timeout(0.1):
            await Resolver(lambda host: threading.Event().wait())("a")
    except TimeoutError:
        print("gave up")
asyncio.run(main())
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program],
        capture_output=True,
        text=True,
        timeout=15,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "gave up\n", "")


def test_the_systems_resolver() -> None:
    assert set(system_addresses("127.0.0.1")) == {"127.0.0.1"}
    for name in ("vllm.invalid", "a" * 64 + ".svc", "a..b"):
        with pytest.raises(OSError, match=r"Errno|not known|failure|no host name"):
            system_addresses(name)
    assert threading.active_count() < 100


@pytest.mark.parametrize(
    ("answers", "left"),
    [
        (["10.0.0.1", "fd00::1", "10.0.0.1"], ["10.0.0.1", "fd00::1"]),
        (["127.0.0.1", "10.0.0.1"], ["10.0.0.1"]),
        (["169.254.169.254"], []),
        (["fd00:ec2::254", "100.100.100.200", "168.63.129.16"], []),
        (["64:ff9b::a9fe:a9fe", "2002:7f00:1::", "::127.0.0.1"], []),
        (
            ["64:ff9b::a00:1", "2002:a00:1::1", "fd00::7"],
            ["64:ff9b::a00:1", "2002:a00:1::1", "fd00::7"],
        ),
        (["fe80::1%3", "::1", "::", "0.0.0.0", "ff02::1", "224.0.0.251"], []),
        (["::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:10.0.0.1"], ["10.0.0.1"]),
    ],
)
def test_what_a_name_alone_may_lead_to(answers: list[str], left: list[str]) -> None:
    assert [str(a) for a in admitted("vllm.svc", 80, answers, lambda *_: False)] == left
