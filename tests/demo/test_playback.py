"""The played-back fleet: what was recorded, when it was recorded, over and over."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import aiohttp
import pytest
from fakes import START

from scaler.core.model import Now, PodSample
from scaler.demo.playback import STAGGER, Fleet, Reel
from scaler.demo.stage import RECORDING
from scaler.vllm.exposition import read_exposition
from scaler.vllm.recording import RecordedScrape, read_recording

FAST = [RecordedScrape(1000.0 + n, 0.0, 200, f"scrape {n}\n") for n in range(4)]


class Hands:
    """A clock whose hands the test moves."""

    def __init__(self) -> None:
        self.seconds = 100.0

    def now(self) -> Now:
        return Now(wall=START, monotonic=self.seconds)


async def get(url: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(f"{url}/metrics") as response:
        return response.status, await response.text()


def test_every_instant_has_its_frame_and_the_end_is_the_beginning() -> None:
    reel = Reel(FAST)

    played = [reel.at(at / 2).at for at in range(12)]

    assert reel.seconds == 4.0
    assert played == [0, 0, 1, 1, 2, 2, 3, 3, 0, 0, 1, 1]


def test_an_empty_recording_is_refused() -> None:
    with pytest.raises(ValueError, match="the recording is empty"):
        Reel([])


def test_the_shipped_recording_takes_little_memory_and_says_what_it_said() -> None:
    reel = Reel.load(RECORDING)
    scrapes = list(read_recording(RECORDING))

    frames = [reel.at(scrape.at - scrapes[0].at) for scrape in scrapes]

    assert len(scrapes) == 242
    assert reel.seconds == pytest.approx(242.0, abs=0.1)
    assert sum(len(frame.packed) for frame in frames) < 2_000_000
    assert [frame.at for frame in frames] == [scrape.at - scrapes[0].at for scrape in scrapes]


async def test_pods_play_in_real_time_each_a_little_further_on() -> None:
    hands = Hands()
    async with Fleet(Reel(FAST), hands, pods=2, begin=1.0) as fleet:
        first, second = fleet.urls
        shown = []
        for _ in range(5):
            shown.append([(await get(url))[1].strip() for url in (first, second)])
            hands.seconds += 1.0

    assert STAGGER == 2.0
    assert shown == [
        ["scrape 1", "scrape 3"],
        ["scrape 2", "scrape 0"],
        ["scrape 3", "scrape 1"],
        ["scrape 0", "scrape 2"],
        ["scrape 1", "scrape 3"],
    ]


async def test_what_was_slow_is_slow_and_what_failed_fails() -> None:
    slow = [
        replace(FAST[0], seconds=0.15),
        replace(FAST[1], status=500, body="broken"),
        replace(FAST[2], status=0, body="ConnectionRefusedError"),
    ]
    hands, loop = Hands(), asyncio.get_running_loop()
    async with Fleet(Reel(slow), hands, pods=1) as fleet:
        began = loop.time()
        assert await get(fleet.urls[0]) == (200, "scrape 0\n")
        assert loop.time() - began >= 0.15
        hands.seconds += 1.0
        assert await get(fleet.urls[0]) == (500, "broken")
        hands.seconds += 1.0
        with pytest.raises(aiohttp.ServerDisconnectedError):
            await get(fleet.urls[0])


async def test_the_servers_end_with_the_fleet() -> None:
    async with Fleet(Reel(FAST), Hands(), pods=2) as fleet:
        urls = fleet.urls

    assert len(set(urls)) == 2
    for url in urls:
        with pytest.raises(aiohttp.ClientConnectorError):
            await get(url)


async def test_the_scaler_can_read_what_is_played() -> None:
    async with Fleet(Reel.load(RECORDING), Hands(), pods=1, begin=60.5) as fleet:
        status, body = await get(fleet.urls[0])

    sample = read_exposition(body.encode())
    assert status == 200
    assert isinstance(sample, PodSample)
    assert (sample.models["llama-8b"].running, sample.models["llama-8b"].waiting) == (660, 158)
