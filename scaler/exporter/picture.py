"""The last hour of a trigger as an SVG picture, and its signals as bars.

Colours come from the page's style sheet by class; lines differ in their dashes and width as well.
Coordinates are user units of the view box.
"""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import count as count_up
from itertools import pairwise
from math import isfinite
from statistics import median
from typing import TYPE_CHECKING

from scaler.exporter.markup import Html, element
from scaler.exporter.words import SIGNAL_NAMES, number
from scaler.store import TRAIL_SECONDS, TRAIL_STEP_SECONDS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from scaler.core.model import Decision, Signal, SignalReading
    from scaler.store import TrailPoint

WIDTH, HEIGHT = 720, 220
LEFT, RIGHT, TOP, BOTTOM = 34, WIDTH - 14, 12, HEIGHT - 26
# (span, seconds between time ticks): the shortest span that holds all that is known.
SPANS = ((600, 120), (1800, 300), (int(TRAIL_SECONDS), 600))
MOST_TICKS = 6
MOST_REPLICAS = 1_000_000  # a number beyond is a defect, and must not make a page without end

BAR_WIDTH, BAR_HEIGHT = 400, 16
BEYOND = 3.0  # times what counts: a bar that is longer runs out of the picture

Point = tuple[float, float]


class _Scale:
    """Maps unix seconds and replicas to the view box."""

    def __init__(self, oldest: float, end: float, most: float) -> None:
        span, self.tick = next((s for s in SPANS if end - oldest <= s[0]), SPANS[-1])
        self.start, self.end = end - span, end
        most = min(most, MOST_REPLICAS)
        self.step = _tick_step(most)
        self.top = 1.08 * max(self.step, -(-most // self.step) * self.step)

    def x(self, at: float) -> float:
        share = (at - self.start) / (self.end - self.start)
        return LEFT + min(1.0, max(0.0, share)) * (RIGHT - LEFT)

    def y(self, count: float) -> float:
        return BOTTOM - min(1.0, count / self.top) * (BOTTOM - TOP)


def last_hour(trail: Sequence[TrailPoint], now: datetime, title: str) -> Html:
    """Draw desired, composite, serving and floor over the hour that ends at ``now``.

    A trail that is younger than that is drawn over less time, so that there is something to see.
    """
    end = now.timestamp()
    seen = [point for point in trail if end - TRAIL_SECONDS <= point.at <= end]
    values = [v for p in seen for v in (p.desired, p.composite, p.serving, p.floor) if v]
    values = [value for value in values if isfinite(value)]
    scale = _Scale(seen[0].at if seen else end - TRAIL_SECONDS, end, max(values, default=1))
    runs = list(_runs(seen, end))
    return element(
        "svg",
        element("title", title),
        *_axes(scale),
        *(_area(scale, run) for run in _known(runs, lambda p: p.serving)),
        *(_curve(scale, run) for run in _known(runs, lambda p: p.composite)),
        *(_steps(scale, run, "desired") for run in _known(runs, lambda p: p.desired)),
        # Last: a floor is dashed, so what lies under it shows through.
        *(_steps(scale, run, "floor") for run in _known(runs, lambda p: p.floor or None)),
        None if seen else _empty(),
        viewBox=f"0 0 {WIDTH} {HEIGHT}",
        role="img",
        class_="hour",
    )


def _runs(points: Sequence[TrailPoint], end: float) -> Iterator[list[tuple[TrailPoint, float]]]:
    """Cut where nothing was recorded; pair each point with the instant it holds until."""
    gaps = [later.at - earlier.at for earlier, later in pairwise(points)]
    usual = max(median(gaps) if gaps else 0.0, TRAIL_STEP_SECONDS)
    run: list[tuple[TrailPoint, float]] = []
    held_until = [*(point.at for point in points[1:]), end]
    for point, until in zip(points, held_until, strict=False):
        broken = until - point.at > 3 * usual
        run.append((point, point.at + usual if broken else until))
        if broken:
            yield run
            run = []
    if run:
        yield run


def _known(
    runs: Sequence[Sequence[tuple[TrailPoint, float]]],
    read: Callable[[TrailPoint], float | None],
) -> Iterator[list[tuple[float, float, float]]]:
    """Yield (from, until, value) of one line, cut where its value is not known."""
    for run in runs:
        known: list[tuple[float, float, float]] = []
        for point, until in run:
            value = read(point)
            if value is not None and isfinite(value):
                known.append((point.at, until, value))
            elif known:
                yield known
                known = []
        if known:
            yield known


def _staircase(scale: _Scale, run: Sequence[tuple[float, float, float]]) -> Iterator[Point]:
    previous: float | None = None
    for start, until, value in run:
        if value != previous:  # a level stretch needs its two ends only
            if previous is not None:
                yield scale.x(start), scale.y(previous)
            yield scale.x(start), scale.y(value)
        previous = value
        last = scale.x(until), scale.y(value)
    yield last


def _steps(scale: _Scale, run: Sequence[tuple[float, float, float]], kind: str) -> Html:
    return element("polyline", points=_points(_staircase(scale, run)), class_=kind)


def _area(scale: _Scale, run: Sequence[tuple[float, float, float]]) -> Html:
    outline = list(_staircase(scale, run))
    closed = [(outline[0][0], BOTTOM), *outline, (outline[-1][0], BOTTOM)]
    return element("polygon", points=_points(closed), class_="serving")


def _curve(scale: _Scale, run: Sequence[tuple[float, float, float]]) -> Html:
    ends = [(scale.x(start), scale.y(value)) for start, _, value in run]
    if len(ends) == 1:
        ends.append((scale.x(run[0][1]), ends[0][1]))
    return element("polyline", points=_points(ends), class_="composite")


def _points(points: Iterator[Point] | Sequence[Point]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _axes(scale: _Scale) -> Iterator[Html]:
    for count in range(0, int(scale.top) + 1, scale.step):
        y = scale.y(count)
        yield element("line", x1=LEFT, x2=RIGHT, y1=y, y2=y, class_="grid")
        yield element("text", number(count), x=LEFT - 6, y=y + 4, class_="tick left")
    first = -(-scale.start // scale.tick) * scale.tick
    for tick in range(int(first), int(scale.end) + 1, scale.tick):
        x = scale.x(tick)
        clock = f"{datetime.fromtimestamp(tick, tz=UTC):%H:%M}"
        # Every other label goes on a narrow screen.
        odd = " odd" if tick // scale.tick % 2 else ""
        yield element("line", x1=x, x2=x, y1=BOTTOM, y2=BOTTOM + 4, class_="axis")
        yield element("text", clock, x=x, y=BOTTOM + 18, class_=f"tick middle{odd}")


def _tick_step(most: float) -> int:
    """Return the least of 1, 2, 5, 10, 20 … that needs no more than ``MOST_TICKS`` lines."""
    steps = (base * 10**power for power in count_up() for base in (1, 2, 5))
    return int(next(step for step in steps if most <= MOST_TICKS * step))


def _empty() -> Html:
    return element(
        "text",
        "nothing recorded yet",
        x=(LEFT + RIGHT) / 2,
        y=(TOP + BOTTOM) / 2,
        class_="tick middle",
    )


# --- bars ---------------------------------------------------------------------------------------


def bar_limit(decision: Decision) -> float:
    """Return the replicas at the right end of the bars.

    What counts, what is wanted and what serves fit well; a signal that asks for far more (a queue
    of hundreds against a target of five) runs out of the picture rather than flatten the others.
    """
    reads = decision.signals.values()
    counted = [read.counted for read in reads if read.counted is not None]
    most = max([*counted, decision.desired, decision.counts.serving, 1.0])
    return min(1.1 * max([most, *(read.needed for read in reads)]), BEYOND * most)


def bar(signal: Signal, read: SignalReading, serving: int, limit: float) -> Html:
    """Draw one signal: what it needs, how much of that counted, and a mark at the serving pods."""

    def x(count: float) -> float:
        return min(1.0, max(0.0, count / limit)) * BAR_WIDTH

    counted = 0.0 if read.counted is None else min(read.counted, read.needed)
    rest = x(read.needed) - x(counted)
    title = f"{SIGNAL_NAMES[signal]} needs {number(read.needed)} replicas; {serving} serve now"
    return element(
        "svg",
        element("title", title),
        element("rect", x=0, y=3, width=x(counted), height=BAR_HEIGHT - 6, class_="counted"),
        element("rect", x=x(counted), y=3, width=rest, height=BAR_HEIGHT - 6, class_="needed")
        if rest
        else None,
        element("line", x1=x(serving), x2=x(serving), y1=0, y2=BAR_HEIGHT, class_="mark"),
        viewBox=f"-2 0 {BAR_WIDTH + 4} {BAR_HEIGHT}",
        preserveAspectRatio="none",
        role="img",
        class_="bar",
    )


def legend() -> Html:
    """Say what the lines of :func:`last_hour` are."""
    return element(
        "p",
        *(
            element(
                "span",
                element(
                    "svg",
                    element("polyline", points="0,6 28,6", class_=kind)
                    if kind != "serving"
                    else element("rect", x=0, y=2, width=28, height=8, class_=kind),
                    viewBox="0 0 28 12",
                    class_="key",
                    aria_hidden="true",
                ),
                f" {words}",
            )
            for kind, words in (
                ("desired", "desired replicas"),
                ("serving", "serving pods"),
                ("composite", "what the load needs"),
                ("floor", "floor"),
            )
        ),
        element("span", "times are UTC"),
        class_="legend",
    )
