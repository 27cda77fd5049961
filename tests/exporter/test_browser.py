"""The page in a real browser: headless Chromium under our own Content-Security-Policy.

A missing Chromium fails these tests: Debian's ``chromium`` package is part of what they need.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import struct
import zlib
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scaler.config.settings import Address
from scaler.core.model import PodState, PodView, ScrapeCause, ScrapeFailure
from scaler.exporter.http import HttpServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from exporter.conftest import Fleet

    from scaler.core.model import Now

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
    "--enable-logging=stderr",
)
DARK = ("--blink-settings=preferredColorScheme=0",)
SCREENSHOTS = "VLLM_SCALER_TEST_SCREENSHOTS"  # an existing directory, to look at them


class Ticking:
    """A clock that is a second later each time it is asked: every fetch sees another page."""

    def __init__(self, fleet: Fleet) -> None:
        self._clock = fleet.clock

    def now(self) -> Now:
        self._clock.forward(1)
        return self._clock.now()


@asynccontextmanager
async def page_of(fleet: Fleet) -> AsyncIterator[str]:
    address = Address("127.0.0.1", 0)
    server = HttpServer(address, address, fleet.store, Ticking(fleet), collectors=[])
    _, port = await server.start()
    try:
        yield f"http://127.0.0.1:{port}/"
    finally:
        await server.stop()


async def chromium(profile: Path, *arguments: str) -> str:
    """Run Chromium to its end; return what it printed. Its complaints about the page fail."""
    browser = shutil.which("chromium")
    assert browser is not None, "chromium is missing: apt-get install chromium"
    process = await asyncio.create_subprocess_exec(
        browser,
        *FLAGS,
        f"--user-data-dir={profile}",
        *arguments,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
        start_new_session=True,
    )
    try:
        async with asyncio.timeout(50):
            out, err = await process.communicate()
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
    assert process.returncode == 0, err.decode()[-2000:]
    complaints = [line for line in err.decode().splitlines() if "CONSOLE" in line]
    assert complaints == []
    return out.decode()


async def screenshot(tmp_path: Path, url: str, name: str, size: str, *flags: str) -> Path:
    path = Path(os.environ.get(SCREENSHOTS, tmp_path), f"{name}.png")
    await chromium(
        tmp_path / f"profile-{name}", f"--window-size={size}", *flags, f"--screenshot={path}", url
    )
    return path


def colours(png: bytes) -> dict[str, int]:
    """Count the pixels of a PNG by colour; enough of the format for Chromium's (PNG 3, 9.2)."""
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    width, height, depth, kind = struct.unpack(">IIBB", png[16:26])
    assert (depth, kind) in {(8, 2), (8, 6)}
    size = 3 if kind == 2 else 4
    data, at = b"", 8
    while at < len(png):
        (length,) = struct.unpack(">I", png[at : at + 4])
        if png[at + 4 : at + 8] == b"IDAT":
            data += png[at + 8 : at + 8 + length]
        at += length + 12
    rows = zlib.decompress(data)
    above = bytearray(width * size)
    counted: dict[str, int] = {}
    for y in range(height):
        start = y * (width * size + 1)
        row = bytearray(rows[start + 1 : start + 1 + width * size])
        _unfilter(rows[start], row, above, size)
        for x in range(0, len(row), 5 * size):  # every fifth pixel will do
            colour = "#" + row[x : x + 3].hex()
            counted[colour] = counted.get(colour, 0) + 1
        above = row
    return counted


def _unfilter(kind: int, row: bytearray, above: bytearray, size: int) -> None:
    for i in range(len(row)):
        left = row[i - size] if i >= size else 0
        corner = above[i - size] if i >= size else 0
        if kind == 1:
            row[i] = (row[i] + left) & 255
        elif kind == 2:
            row[i] = (row[i] + above[i]) & 255
        elif kind == 3:
            row[i] = (row[i] + (left + above[i]) // 2) & 255
        elif kind == 4:
            guess = left + above[i] - corner
            nearest = min((left, above[i], corner), key=lambda v: abs(guess - v))
            row[i] = (row[i] + nearest) & 255


async def test_the_script_replaces_the_page_under_our_policy(fleet: Fleet, tmp_path: Path) -> None:
    """Twelve seconds of browser time: the script has fetched, and main shows a later time."""
    fleet.publish(fleet.busy())
    async with page_of(fleet) as url:
        dom = await chromium(tmp_path, "--virtual-time-budget=12000", "--dump-dom", url)

    assert "Wants 4 replicas: 512 requests in flight, a replica carries 128." in dom
    (shown,) = re.findall(r"(\d\d:\d\d:\d\d) UTC", dom)
    assert shown > "09:00:31", "the first fetch is all that is shown"
    assert dom.count("<main>") == 1
    assert '<p role="status" id="trouble"></p>' in dom


async def test_hostile_names_stay_text_in_a_browser(fleet: Fleet, tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)><script>alert(2)</script>\"'"
    failure = ScrapeFailure(ScrapeCause.NOT_METRICS, evil)
    fleet.publish(
        fleet.busy(
            model=evil, notes=(evil,), pods=(PodView(evil, PodState.MISSING, failure=failure),)
        ),
        name=evil,
        namespace=evil,
    )
    async with page_of(fleet) as url:
        dom = await chromium(tmp_path, "--dump-dom", url)

    assert dom.count("<script") == 1
    assert "<img" not in dom
    assert dom.count("&lt;script&gt;alert(2)") >= 5


@pytest.mark.parametrize(
    ("flags", "paper", "line"),
    [
        pytest.param((), "#f6f7f9", "#1a56c4", id="light"),
        pytest.param(DARK, "#10151c", "#8ab4ff", id="dark"),
    ],
)
async def test_both_schemes_are_painted(
    fleet: Fleet, tmp_path: Path, flags: tuple[str, ...], paper: str, line: str
) -> None:
    """The style sheet passes the policy, and follows what the person prefers."""
    fleet.an_hour(fleet.publish(fleet.busy()))
    async with page_of(fleet) as url:
        path = await screenshot(tmp_path, url, "dark" if flags else "light", "900,1100", *flags)
    found = colours(path.read_bytes())

    assert found.get(paper, 0) > 1000
    assert found.get(line, 0) > 100


async def test_it_fits_a_phone(fleet: Fleet, tmp_path: Path) -> None:
    """At 500 px (Chromium's narrowest window) the right edge is margin: nothing sticks out."""
    fleet.an_hour(fleet.publish(fleet.busy()))
    fleet.publish(fleet.blind(), "a-rather-long-name-" * 8)
    async with page_of(fleet) as url:
        path = await screenshot(tmp_path, url, "phone", "500,2400")
    found = colours(path.read_bytes())

    assert found.get("#f6f7f9", 0) > 1000
    assert found.get("#1a56c4", 0) > 100
