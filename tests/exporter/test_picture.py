"""The picture of the last hour and the bars, as SVG."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.core.model import Signal, SignalReading
from scaler.exporter.picture import (
    BAR_WIDTH,
    BOTTOM,
    LEFT,
    RIGHT,
    TOP,
    bar,
    bar_limit,
    last_hour,
)
from scaler.store import TrailPoint

if TYPE_CHECKING:
    from collections.abc import Sequence

    from exporter.conftest import Fleet

NOW = datetime(2026, 11, 30, 9, 0, tzinfo=UTC)


def point(
    ago: float,
    desired: int | None = 2,
    *,
    composite: float | None = None,
    serving: int = 1,
    floor: int = 0,
) -> TrailPoint:
    return TrailPoint(
        at=NOW.timestamp() - ago,
        desired=desired,
        composite=composite,
        serving=serving,
        floor=floor,
        in_flight=None,
    )


def drawn(trail: Sequence[TrailPoint]) -> ET.Element:
    return ET.fromstring(last_hour(trail, NOW, "the last hour"))  # noqa: S314 - our own output


def lines(picture: ET.Element, kind: str) -> list[list[tuple[float, float]]]:
    return [
        [(float(x), float(y)) for x, y in (p.split(",") for p in line.attrib["points"].split())]
        for line in picture
        if line.attrib.get("class") == kind
    ]


def test_desired_is_a_staircase_to_the_present() -> None:
    picture = drawn([point(3600, 1), point(3590, 1), point(3580, 2), *tail(3570, 2)])
    (line,) = lines(picture, "desired")

    assert line[0][0] == LEFT
    assert line[-1][0] == RIGHT
    # Level stretches need their ends only: start, before the step, after it, end.
    assert len(line) == 4
    assert all(a[0] == b[0] or a[1] == b[1] for a, b in pairwise(line))


def tail(start: int, desired: int | None, **values: int) -> list[TrailPoint]:
    return [point(ago, desired, **values) for ago in range(start, -1, -10)]


def test_an_unknown_desired_is_a_gap() -> None:
    trail = [*tail(300, 2)[:10], *tail(200, None)[:10], *tail(100, 3)]
    before, after = lines(drawn(trail), "desired")

    assert before[-1][0] < after[0][0]
    assert len(lines(drawn(trail), "serving")) == 1


def test_a_time_without_decisions_is_a_gap_in_every_line() -> None:
    trail = [*tail(1800, 2, floor=1)[:60], *tail(600, 2, floor=1)]
    picture = drawn(trail)

    assert [len(lines(picture, kind)) for kind in ("desired", "serving", "floor")] == [2, 2, 2]


def test_a_slow_scaler_draws_no_gaps() -> None:
    """One decision a minute is a minute's resolution, not 59 seconds of silence."""
    trail = [point(ago) for ago in range(3600, -1, -60)]

    assert len(lines(drawn(trail), "desired")) == 1


def test_silence_since_the_last_decision_is_not_drawn_as_the_present() -> None:
    trail = tail(1800, 2)[:60]  # until 1210 s ago
    (line,) = lines(drawn(trail), "desired")

    # The trail is half an hour old, and so is the picture's left edge.
    assert line[0][0] == LEFT
    assert line[-1][0] == pytest.approx(LEFT + (RIGHT - LEFT) * (1800 - 1200) / 1800, abs=0.1)


@pytest.mark.parametrize(
    ("age", "labels"),
    [
        (60, ["08:50", "08:52", "08:54", "08:56", "08:58", "09:00"]),
        (700, ["08:30", "08:35", "08:40", "08:45", "08:50", "08:55", "09:00"]),
        (3600, ["08:00", "08:10", "08:20", "08:30", "08:40", "08:50", "09:00"]),
    ],
)
def test_a_young_trail_is_drawn_over_less_time(age: int, labels: list[str]) -> None:
    ticks = [t.text for t in drawn(tail(age, 2)) if "middle" in t.attrib.get("class", "")]

    assert ticks == labels


def test_no_floor_draws_no_line_at_zero() -> None:
    assert lines(drawn(tail(600, 2)), "floor") == []


def test_points_older_than_the_hour_are_left_out() -> None:
    old = [point(ago, 50) for ago in range(7200, 3700, -10)]

    assert lines(drawn(old), "desired") == []
    assert "nothing recorded yet" in "".join(drawn(old).itertext())


def test_it_has_a_title_and_axes() -> None:
    picture = drawn(tail(3600, 4))
    labels = [text.text for text in picture if text.attrib.get("class", "").startswith("tick")]

    assert picture.attrib["role"] == "img"
    assert picture[0].tag == "title"
    assert picture[0].text == "the last hour"
    assert labels == [
        *("0", "1", "2", "3", "4"),
        *("08:00", "08:10", "08:20", "08:30", "08:40", "08:50", "09:00"),
    ]


@pytest.mark.parametrize(
    ("most", "labels"),
    [
        (1, ["0", "1"]),
        (6, ["0", "1", "2", "3", "4", "5", "6"]),
        (7, ["0", "2", "4", "6", "8"]),
        (25, ["0", "5", "10", "15", "20", "25"]),
        (1000, ["0", "200", "400", "600", "800", "1,000"]),
    ],
)
def test_the_axis_counts_in_round_steps(most: int, labels: list[str]) -> None:
    ticks = [t.text for t in drawn(tail(100, most)) if t.attrib.get("class") == "tick left"]

    assert ticks == labels


known = st.one_of(st.none(), st.integers(0, 10_000))
trails = st.lists(
    st.builds(
        point,
        st.floats(-100, 8000),
        known,
        composite=st.one_of(st.none(), st.floats(min_value=0)),
        serving=st.integers(0, 500),
        floor=st.integers(0, 500),
    ),
    max_size=40,
)


@given(trails)
def test_every_trail_stays_inside_the_picture(trail: list[TrailPoint]) -> None:
    """Whatever the clock and the fleet did: well-formed, and nothing outside the frame."""
    picture = drawn(sorted(trail, key=lambda p: p.at))

    for kind in ("desired", "serving", "composite", "floor"):
        for line in lines(picture, kind):
            assert all(LEFT <= x <= RIGHT and TOP <= y <= BOTTOM for x, y in line)


@pytest.mark.parametrize(
    ("counted", "solid", "dashed"),
    [
        pytest.param(4.0, 4.0, None, id="counted-in-full"),
        pytest.param(3.0, 3.0, 1.0, id="capped"),
        pytest.param(None, 0.0, 4.0, id="not-counted"),
    ],
)
def test_bars(counted: float | None, solid: float, dashed: float | None) -> None:
    read = SignalReading(4.0, 512.0, 128.0, counted)
    picture = ET.fromstring(bar(Signal.CONCURRENCY, read, 3, 8.0))  # noqa: S314 - our own output
    widths = {
        part.attrib["class"]: float(part.attrib["width"]) for part in picture if part.tag == "rect"
    }
    (mark,) = (part for part in picture if part.attrib.get("class") == "mark")
    unit = BAR_WIDTH / 8.0

    assert widths.get("counted") == solid * unit
    assert widths.get("needed") == (None if dashed is None else dashed * unit)
    assert float(mark.attrib["x1"]) == 3 * unit
    assert picture[0].text == "Requests in flight needs 4 replicas; 3 serve now"


def test_all_bars_and_the_mark_fit(fleet: Fleet) -> None:
    busy = fleet.busy()

    assert bar_limit(busy) == pytest.approx(1.1 * 4.6)
    assert bar_limit(fleet.busy(signals={}, desired=0)) == pytest.approx(1.1 * 3)


def test_a_wild_signal_runs_out_of_the_picture_and_does_not_flatten_the_others(
    fleet: Fleet,
) -> None:
    wild = {Signal.QUEUE: SignalReading(592.0, 2962.0, 5.0, 6.0)}

    assert bar_limit(fleet.busy(signals=wild, desired=7)) == pytest.approx(3 * 7)


def test_a_clock_that_went_back_draws_what_lies_in_the_hour() -> None:
    ahead = TrailPoint((NOW + timedelta(minutes=5)).timestamp(), 9, None, 9, 0, None)

    assert len(lines(drawn([*tail(100, 2), ahead]), "desired")) == 1
