"""The whole demo: real servers, real gRPC, the real recording, on free ports."""

from __future__ import annotations

import asyncio
import os
import pty
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

import aiohttp
import pytest
from click.testing import CliRunner

import scaler.commands.demo as command
from scaler.clock import SystemClock
from scaler.commands.demo import demo
from scaler.config.settings import Address
from scaler.demo.stage import Plan, free_or_any, staged

if TYPE_CHECKING:
    from scaler.core.model import Decision
    from scaler.demo.operator import Standing

ANY = Address("127.0.0.1", 0)
FREE_PORTS = [f"--{name}-address=127.0.0.1:0" for name in ("grpc", "http", "page")]


class Notes:
    """A display that remembers, and stops the demo after so many decisions with an answer."""

    def __init__(self, enough: int) -> None:
        self.enough = enough
        self.shown: list[tuple[Decision, Standing]] = []
        self.troubles: list[str] = []
        self.began, self.stop = asyncio.Event(), asyncio.Event()

    def show(self, decision: Decision, standing: Standing) -> None:
        self.shown.append((decision, standing))
        self.began.set()
        if sum(d.valid for d, _ in self.shown) >= self.enough:
            self.stop.set()

    def trouble(self, text: str) -> None:
        self.troubles.append(text)
        self.began.set()


async def test_decisions_on_the_recording_come_at_once() -> None:
    plan = Plan(ANY, ANY, ANY, pods=2, scrape_interval=0.25, pace=0.25)
    notes = Notes(enough=6)

    async with asyncio.timeout(20), staged(plan, SystemClock()) as stage:
        heading = stage.heading()
        await stage.play(notes, notes.stop)
        async with aiohttp.ClientSession() as session:
            metrics = f"http://127.0.0.1:{stage.addresses.http_port}/metrics"
            async with session.get(metrics) as response:
                exported = await response.text()

    decision, standing = notes.shown[-1]
    assert decision.valid
    assert (decision.counts.total, decision.counts.fresh) == (2, 2)
    assert decision.model == "llama-8b"
    assert (decision.fleet.in_flight or 0) > 0
    assert (standing.replicas, standing.answers.error) == (1, "")
    assert 'vllm_scaler_desired_replicas{namespace="demo",scaledobject="vllm"' in exported
    assert heading[0].startswith("PLAYBACK, not a live fleet: each of 2 pods plays")
    assert any("cannot react" in line for line in heading)
    assert any("targetInFlight 128, targetTokenRate 39649, targetTtft 3s" in h for h in heading)
    assert f":{stage.addresses.page_port}/" in heading[-1]


async def test_given_endpoints_are_watched_with_nothing_assumed() -> None:
    plan = Plan(
        ANY, ANY, ANY, ("http://127.0.0.1:1",), metadata=(("targetInFlight", "9"),), pace=0.25
    )
    notes = Notes(enough=1)

    async with asyncio.timeout(20), staged(plan, SystemClock()) as stage:
        playing = asyncio.create_task(stage.play(notes, notes.stop))
        await notes.began.wait()
        notes.stop.set()
        await playing

    decision, _ = notes.shown[0]
    assert dict(stage.metadata) == {
        "endpoints": "http://127.0.0.1:1",
        "maxReplicas": "12",
        "targetInFlight": "9",
    }
    assert not decision.valid  # nobody is there: no zero is made of it
    assert stage.heading()[0] == "Watching http://127.0.0.1:1"


async def test_what_keeps_decisions_from_coming_is_shown() -> None:
    """Here: endpoints given twice, and only the first are allowed."""
    metadata = (("endpoints", "http://10.0.0.1:8000"),)
    plan = Plan(ANY, ANY, ANY, ("http://127.0.0.1:1",), metadata=metadata, pace=0.25)
    notes = Notes(enough=1)

    async with asyncio.timeout(20), staged(plan, SystemClock()) as stage:
        playing = asyncio.create_task(stage.play(notes, notes.stop))
        await notes.began.wait()
        notes.stop.set()
        await playing

    assert notes.shown == []
    assert notes.troubles[0].startswith("PERMISSION_DENIED: 10.0.0.1:8000: not allowed")


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_a_port_that_is_taken_gives_way(host: str) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        taken = socket.create_server((host, 0), family=family)
    except OSError:
        pytest.skip(f"this machine has no {host}")
    with taken:
        port = taken.getsockname()[1]
        assert free_or_any(Address(host, port)) == Address(host, 0)
    assert free_or_any(Address(host, port)) == Address(host, port)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        pytest.param(["--set", "targetInFlight"], "must be KEY=VALUE", id="no value"),
        pytest.param(["--set", "=3"], "must be KEY=VALUE", id="no key"),
        pytest.param(["--pods", "0"], "1<=x<=50", id="no pods"),
        pytest.param(["--set", "quorum=50"], "quorum='50': must be", id="bad value"),
        pytest.param(
            ["--endpoints", "localhost:8000"], "endpoints='localhost:8000': must be", id="no scheme"
        ),
        pytest.param(
            ["--set", "quorum=50", "--set", "targetTtft=soon"], "targetTtft='soon': ", id="several"
        ),
    ],
)
def test_wrong_arguments_are_named(arguments: list[str], told: str) -> None:
    result = CliRunner().invoke(demo, arguments)

    assert result.exit_code == 2
    assert told in " ".join(result.output.split())


def test_an_unknown_key_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "configure_logging", lambda *_: None)
    arguments = [*FREE_PORTS, "--duration=1ms", "--pods=1", "--set", "targetInFligt=3"]

    result = CliRunner().invoke(demo, arguments)

    assert result.exit_code == 0
    assert "Warning: targetInFligt: " in result.output


def run_demo(*, terminal: bool) -> str:
    """Run the command for three seconds; return what it printed."""
    line = [sys.executable, "-m", "scaler", "demo", "--duration=3s", "--scrape-interval=500ms"]
    line += [*FREE_PORTS, "--pace=500ms"]
    if not terminal:
        done = subprocess.run(line, capture_output=True, text=True, timeout=50, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "140", "LINES": "40"}
    with subprocess.Popen(line, stdout=follower, stderr=follower, env=environment) as process:
        os.close(follower)
        shown = b""
        try:
            while chunk := os.read(leader, 1 << 16):
                shown += chunk
        except OSError:  # how Linux says that the other end is closed
            pass
        finally:
            os.close(leader)
        assert process.wait(timeout=50) == 0
    return shown.decode()


def test_piped_it_prints_plain_lines() -> None:
    lines = run_demo(terminal=False).splitlines()

    assert lines[0].startswith("PLAYBACK, not a live fleet: each of 3 pods plays")
    assert any("desired 1, HPA 1: Wants 1 replica" in line for line in lines)
    assert "\x1b" not in "".join(lines)


def test_on_a_terminal_it_is_a_live_table() -> None:
    shown = run_demo(terminal=True)

    assert "PLAYBACK" in shown
    assert "Replicas by signal, the binding one in yellow" in shown
    assert "\x1b[" in shown
