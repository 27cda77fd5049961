"""Cron windows -> the floor at an instant.

A window is open when its last start lies after its last end, both found by looking back in local
wall time (ends are exclusive; an end and a start at the same minute: closed). Its floor applies
from ``start - lead``, subtracted in absolute time (case T13), so a lead never depends on local
dates. Overlapping windows do not add up: the highest counts (case F10).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from scaler.core.cron import (
    first_after,
    last_before,
    last_firing,
    next_firing,
    parse_cron,
    to_instant,
)

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Sequence
    from datetime import date

    from scaler.core.cron import Cron
    from scaler.core.policy import Window

# Cron counts in minutes: who writes 23:59 for the end of the day means 24:00 (case T07).
HOLE = timedelta(seconds=60)

# Starts that are ends too open nothing. So many in a row are skipped, then the search gives up.
_TIES = 100

_BEGINNING = datetime.min.replace(tzinfo=UTC)
_NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class OpenWindow:
    """A window whose floor applies.

    ``opened_at`` is the real start in UTC, lead excluded: while only the lead runs it lies ahead.
    ``closes_at`` is the end in UTC, exclusive; None when no end lies within nine years.
    """

    window: Window
    opened_at: datetime
    closes_at: datetime | None

    @property
    def floor(self) -> int:
        """Replicas this window asks for."""
        return self.window.desired_replicas


@dataclass(frozen=True, slots=True)
class ScheduleView:
    """What the schedule asks for, true for every instant in [``valid_from``, ``valid_until``).

    A caller may keep a view until the wall clock leaves that span, in either direction (T15).
    ``open`` is ordered by floor, the highest first; ``next_opening`` includes the lead.
    """

    open: tuple[OpenWindow, ...] = ()
    next_opening: datetime | None = None
    valid_from: datetime = _BEGINNING
    valid_until: datetime = _NEVER

    @property
    def floor(self) -> int:
        """The highest floor of the open windows; 0 when none is open."""
        return self.open[0].floor if self.open else 0

    @property
    def window(self) -> str:
        """The window that sets the floor, in words; empty when none is open."""
        return describe(self.open[0].window) if self.open else ""

    @property
    def opened_at(self) -> datetime | None:
        """The real start of the window that sets the floor, lead excluded."""
        return self.open[0].opened_at if self.open else None

    def holds_at(self, at: datetime) -> bool:
        """Tell whether this view is still the answer at ``at``."""
        return self.valid_from <= at < self.valid_until


def describe(window: Window) -> str:
    """Return a window in words, for a log line and a page."""
    span = f"{window.start} to {window.end}, {window.timezone}"
    return f"{window.name} ({span})" if window.name else span


def evaluate(windows: Sequence[Window], lead: float, at: datetime) -> ScheduleView:
    """Return which windows are open at ``at`` (aware), each ``lead`` seconds ahead of its start."""
    ahead = timedelta(seconds=lead)
    located = [_locate(window, at) for window in windows]
    spans = [place.span(ahead, at) or _bridge(place, located, at) for place in located]
    openings = [
        opening
        for place, span in zip(located, spans, strict=True)
        if (opening := place.opening_after(span, ahead)) is not None
    ]
    changes = {change for place in located for change in place.changes(ahead)}
    return ScheduleView(
        open=tuple(
            sorted((span for span in spans if span), key=lambda span: span.floor, reverse=True)
        ),
        next_opening=min(openings, default=None),
        valid_from=max((change for change in changes if change <= at), default=_BEGINNING),
        valid_until=min((change for change in changes if change > at), default=_NEVER),
    )


@dataclass(frozen=True, slots=True)
class _Located:
    """A window's firings around an instant, as naive local times; None: none within nine years.

    Local times are compared with one another, not their instants: a start at 03:00 and an end at
    02:30 that the clocks skip happen at the same instant, and the start is still the later one.
    """

    window: Window
    zone: ZoneInfo
    start: Cron
    end: Cron
    last_start: datetime | None
    last_end: datetime | None
    next_start: datetime | None
    next_end: datetime | None

    def instant(self, wall: datetime) -> datetime:
        return to_instant(wall, self.zone)

    def span(self, ahead: timedelta, at: datetime) -> OpenWindow | None:
        """Return the window as open at ``at``, by itself or by its lead."""
        opening = self._opening(self.last_start, self.last_end)
        if opening is not None:
            return self.opened(opening, self.next_end)
        if self.next_start and self.instant(self.next_start) - ahead <= at:
            return self.opened(self.next_start, first_after(self.end, self.next_start))
        return None

    def opening_before(self, end: datetime) -> datetime | None:
        """Return the start of the stretch that the firing ``end`` closed; None: it closed none."""
        excluded = self.window.excluded
        return self._opening(last_before(self.start, end, excluded), last_before(self.end, end))

    def _opening(self, start: datetime | None, end: datetime | None) -> datetime | None:
        """Return the first start after ``end`` when the last one, ``start``, lies after it."""
        if start is None or (end is not None and start <= end):
            return None
        # Starts may repeat inside a window (case T17): the first one opened it.
        return start if end is None else first_after(self.start, end, self.window.excluded)

    def opened(self, start: datetime, end: datetime | None) -> OpenWindow:
        closes_at = None if end is None else self.instant(end)
        return OpenWindow(self.window, self.instant(start), closes_at)

    def opening_after(self, span: OpenWindow | None, ahead: timedelta) -> datetime | None:
        """Return when the window, closed once more, opens next (lead included)."""
        if span is None:
            return None if self.next_start is None else self.instant(self.next_start) - ahead
        if span.closes_at is None:
            return None
        start = _next_opening(self.start, self.end, self.zone, span.closes_at, self.window.excluded)
        if start is None:
            return None
        opening = self.instant(start) - ahead
        return opening if opening > span.closes_at else None  # else it stays open

    def changes(self, ahead: timedelta) -> Iterable[datetime]:
        """Yield the instants at which the answer for this window may change."""
        for wall in (self.last_start, self.last_end, self.next_start, self.next_end):
            if wall is not None:
                yield self.instant(wall)
        if self.next_start is not None:
            yield self.instant(self.next_start) - ahead


def _locate(window: Window, at: datetime) -> _Located:
    zone = ZoneInfo(window.timezone)
    start, end = parse_cron(window.start), parse_cron(window.end)
    return _Located(
        window=window,
        zone=zone,
        start=start,
        end=end,
        last_start=last_firing(start, zone, at, window.excluded),
        last_end=last_firing(end, zone, at),
        next_start=_next_opening(start, end, zone, at, window.excluded),
        next_end=next_firing(end, zone, at),
    )


def _next_opening(
    start: Cron, end: Cron, zone: ZoneInfo, at: datetime, skip: Container[date]
) -> datetime | None:
    """Return the first start after ``at`` that is not also an end: such a start opens nothing."""
    wall = next_firing(start, zone, at, skip)
    for _ in range(_TIES):
        if wall is None or not end.fires_at(wall):
            return wall
        wall = first_after(start, wall, skip)
    return None


def _bridge(place: _Located, located: Iterable[_Located], at: datetime) -> OpenWindow | None:
    """Keep a window over a hole of at most a minute to the next start of any window (case T07)."""
    if place.last_end is None:
        return None
    closed_at = place.instant(place.last_end)
    opening = place.opening_before(place.last_end) if at - closed_at < HOLE else None
    starts = [other.instant(other.next_start) for other in located if other.next_start]
    joint = min((start for start in starts if start - closed_at <= HOLE), default=None)
    if opening is None or joint is None:
        return None
    return OpenWindow(place.window, place.instant(opening), joint)
