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
from scaler.demo.table import ROWS, Cell, LiveTable, PlainLines, Row

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
    assert row.signals == {
        Signal.QUEUE: Cell("0.0", binds=False),
        Signal.CONCURRENCY: Cell("2.4", binds=True),
    }
    assert (row.desired, row.replicas) == ("3", "2")
    assert "in flight 307, waiting 7, KV 41%, TTFT p95 1.23 s" in row.line
    assert "[queue 0.0, concurrency 2.4*]  desired 3, HPA 2: Wants 3 replicas" in row.line


def test_what_is_not_known_is_no_zero() -> None:
    row = Row.of(BLIND, Standing(2))

    assert {row.in_flight, row.waiting, row.kv, row.ttft, row.desired} == {"?"}
    assert "No answer" in row.words


@pytest.mark.parametrize(
    ("needed", "counted", "text"),
    [
        pytest.param(5.16, 2.6, "2.6^", id="capped"),
        pytest.param(5.16, 5.16, "5.2", id="counted whole"),
        pytest.param(5.16, None, "(5.2)", id="not counted"),
    ],
)
def test_a_cell_shows_what_counts(needed: float, counted: float | None, text: str) -> None:
    reading = SignalReading(needed, 660.0, 128.0, counted)

    assert Cell.of(reading, binds=False).text == text


def test_a_cap_of_the_binding_signal_is_told_and_no_other() -> None:
    queue, concurrency = SignalReading(9.0, 45.0, 5.0, 2.4), SignalReading(5.2, 666.0, 128.0, 2.4)
    signals = {Signal.QUEUE: queue, Signal.CONCURRENCY: LOADED.signals[Signal.CONCURRENCY]}

    other = Row.of(replace(LOADED, signals=signals), Standing(2))
    binding = Row.of(
        replace(LOADED, signals=signals | {Signal.CONCURRENCY: concurrency}), Standing(2)
    )

    assert "capped" not in other.words
    assert binding.words.endswith(", capped by throughput")


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


def test_trouble_is_a_line_once_and_gives_way_to_decisions() -> None:
    written: list[str] = []
    with PlainLines(["heading"], written.append) as lines:
        for text in ("PERMISSION_DENIED: x", "PERMISSION_DENIED: x", "UNAVAILABLE: y"):
            lines.trouble(text)
        lines.show(LOADED, Standing(2))

    assert written[1:3] == ["PERMISSION_DENIED: x", "UNAVAILABLE: y"]
    assert "desired 3" in written[3]


def test_trouble_takes_the_place_of_the_wait_in_the_table() -> None:
    console = Console(file=StringIO(), width=100, height=30, force_terminal=True)
    plain = Console(file=StringIO(), width=100, record=True)
    with LiveTable(["title"], console) as table:
        plain.print(table.picture())
        table.trouble("PERMISSION_DENIED: x")
        plain.print(table.picture())
    shown = plain.export_text()

    assert shown.count("Waiting for the first sweep of the pods.") == 1
    assert shown.count("PERMISSION_DENIED: x") == 1


@pytest.mark.parametrize(
    ("width", "reason"), [pytest.param(80, False, id="narrow"), pytest.param(120, True, id="wide")]
)
def test_the_table_holds_the_newest_rows_each_on_one_line(width: int, *, reason: bool) -> None:
    """Eighty columns are enough for every signal at its worst."""
    signals = {signal: SignalReading(33.0, 1.0, 1.0, 14.6) for signal in Signal}
    console = Console(file=StringIO(), width=width, height=60, force_terminal=True)
    with LiveTable(["title", "more"], console) as table:
        for number in range(ROWS + 3):
            table.show(replace(LOADED, desired=100 + number, signals=signals), Standing(2))
        picture = table.picture()

    plain = Console(file=StringIO(), width=width, record=True)
    plain.print(picture)
    lines = plain.export_text().splitlines()
    rows = [line for line in lines if "14.6^" in line]
    assert lines[:2] == ["title", "more"]
    assert [row.split()[-3:][-2 - reason] for row in rows] == [
        str(100 + n) for n in range(3, ROWS + 3)
    ]
    assert all(row.count("14.6^") == len(Signal) for row in rows)
    assert all(("load" in row) == reason for row in rows)
    assert max(map(len, lines)) <= width
