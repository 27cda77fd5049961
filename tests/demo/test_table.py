"""What the terminal shows of a decision."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO

import pytest
from fakes import START
from rich.console import Console

from scaler.core.model import (
    Decision,
    FleetView,
    Latency,
    Now,
    Quantiles,
    Reason,
    Signal,
    SignalReading,
)
from scaler.demo.operator import Answers, Standing
from scaler.demo.table import ROWS, LiveTable, PlainLines, Row

TTFT = Quantiles(10, 0.5, (0.4, 0.25, 0.5), (1.234, 1.0, 2.5), (2.0, 1.0, 2.5))
LOADED = Decision(
    sequence=1,
    at=Now(wall=START, monotonic=50.0),
    valid=True,
    desired=3,
    active=True,
    reason=Reason.LOAD,
    message="",
    binding=Signal.CONCURRENCY,
    composite=2.4,
    signals={
        Signal.QUEUE: SignalReading(0.0, 0.0, 5.0, 0.0),
        Signal.CONCURRENCY: SignalReading(2.4, 307.0, 128.0, 2.4),
    },
    fleet=FleetView(running=300.0, waiting=7.0, kv_max=0.41, latencies={Latency.TTFT: TTFT}),
)
BLIND = replace(
    LOADED,
    valid=False,
    desired=0,
    reason=Reason.NO_DATA,
    message="no pod answers",
    binding=None,
    composite=None,
    signals={},
    fleet=FleetView(),
)


def at(decision: Decision, seconds: float) -> Decision:
    return replace(decision, at=Now(wall=START, monotonic=seconds))


def test_a_row_says_it_all() -> None:
    row = Row.of(LOADED, Standing(2))

    assert (row.in_flight, row.waiting, row.kv, row.ttft) == ("307", "7", "41%", "1.23 s")
    assert row.signals == (("queue 0.0", False), ("conc 2.4", True))
    assert (row.desired, row.replicas) == ("3", "2")
    assert "in flight 307, waiting 7, KV 41%, TTFT p95 1.23 s" in row.line
    assert "[queue 0.0 conc 2.4*]  desired 3, HPA 2: Wants 3 replicas" in row.line


def test_what_is_not_known_is_no_zero() -> None:
    row = Row.of(BLIND, Standing(2))

    assert {row.in_flight, row.waiting, row.kv, row.ttft, row.desired} == {"?"}
    assert "No answer" in row.words


def test_an_error_of_the_call_comes_first() -> None:
    row = Row.of(LOADED, Standing(2, Answers(error="UNAVAILABLE: no data")))

    assert row.words == "UNAVAILABLE: no data"


def test_a_line_when_something_changes_and_every_five_seconds() -> None:
    written: list[str] = []
    with PlainLines(["heading"], written.append) as lines:
        for seconds in (0.0, 1.0, 2.0, 4.9, 5.0, 6.0):
            lines.show(at(LOADED, seconds), Standing(2))
        lines.show(at(LOADED, 6.5), Standing(3))
        lines.show(at(replace(LOADED, desired=4), 7.0), Standing(3))

    assert written[0] == "heading"
    assert len(written) == 5
    assert "HPA 3" in written[3]
    assert "desired 4" in written[4]


@pytest.mark.parametrize("width", [80, 140])
def test_the_table_holds_the_newest_rows(width: int) -> None:
    console = Console(file=StringIO(), width=width, height=60, force_terminal=True)
    with LiveTable(["title", "more"], console) as table:
        for number in range(ROWS + 3):
            table.show(replace(LOADED, desired=100 + number), Standing(2))
        picture = table.picture()

    plain = Console(file=StringIO(), width=width, record=True)
    plain.print(picture)
    text = plain.export_text()
    assert text.splitlines()[:2] == ["title", "more"]
    assert f"{100 + ROWS + 2}" in text
    assert "102" not in text
    assert max(map(len, text.splitlines())) <= width
