"""Cron windows -> the floor at an instant.

A window is open when its last start lies after its last end, both found by looking back in local
wall time (ends are exclusive; an end and a start at the same minute: closed). Its floor applies
from ``start - lead``, subtracted in absolute time (case T13), so a lead never depends on local
dates. Overlapping windows do not add up: the highest counts (case F10).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

from scaler.core.cron import parse_cron
from scaler.core.localtime import shown_by, to_instant

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scaler.core.cron import Cron
    from scaler.core.policy import Window

# Cron counts in minutes: who writes 23:59 for the end of the day means 24:00 (case T07).
HOLE = timedelta(seconds=60)

_MINUTE = timedelta(minutes=1)

# Starts that are ends too open nothing. So many in a row are skipped, then the search gives up.
_TIES = 100

_BEGINNING = datetime.min.replace(tzinfo=UTC)
_NEVER = datetime.max.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class OpenWindow:
    """A window whose floor applies.

    ``opened_at`` is the real start in UTC, lead excluded: while only the lead runs it lies ahead.
    ``closes_at`` is the end in UTC, exclusive.
    """

    window: Window
    opened_at: datetime
    closes_at: datetime

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
    """A window's firings around an instant, as naive local times.

    Local times are compared with one another, not their instants: a start at 03:00 and an end at
    02:30 that the clocks skip happen at the same instant, and the start is still the later one.
    A start is None when there is none within nine years (all excluded); an end always exists.
    """

    window: Window
    zone: ZoneInfo
    start: Cron
    end: Cron
    last_start: datetime | None
    last_end: datetime
    next_start: datetime | None
    next_end: datetime

    def instant(self, wall: datetime) -> datetime:
        return to_instant(wall, self.zone)

    def span(self, ahead: timedelta, at: datetime) -> OpenWindow | None:
        """Return the window as open at ``at``, by itself or by its lead."""
        if self.last_start is not None and self.last_start > self.last_end:
            return self._opened(self._first_start_after(self.last_end), self.next_end)
        if self.next_start is not None and self.instant(self.next_start) - ahead <= at:
            return self._opened(self.next_start, next(self.end.firings_after(self.next_start)))
        return None

    def closed_by(self, end: datetime, joint: datetime) -> OpenWindow | None:
        """Return the window as open until ``joint``, if its firing ``end`` was what closed it."""
        start = next(self.start.firings_until(end - _MINUTE, self.window.excluded), None)
        earlier_end = next(self.end.firings_until(end - _MINUTE))
        if start is None or start <= earlier_end:
            return None
        opened_at = self.instant(self._first_start_after(earlier_end))
        return OpenWindow(self.window, opened_at, joint)

    def _first_start_after(self, end: datetime) -> datetime:
        # Starts may repeat inside a window (case T17): the first one opened it.
        return next(self.start.firings_after(end, self.window.excluded))

    def _opened(self, start: datetime, end: datetime) -> OpenWindow:
        return OpenWindow(self.window, self.instant(start), self.instant(end))

    def opening_after(self, span: OpenWindow | None, ahead: timedelta) -> datetime | None:
        """Return when the window, closed once more, opens next (lead included)."""
        closes_at = None if span is None else span.closes_at
        start = self.next_start
        if closes_at is not None:
            start = _next_opening(self.window, self.start, self.end, shown_by(closes_at, self.zone))
        if start is None:
            return None
        opening = self.instant(start) - ahead
        return None if closes_at is not None and opening <= closes_at else opening

    def changes(self, ahead: timedelta) -> Iterable[datetime]:
        """Yield the instants at which the answer for this window may change."""
        yield self.instant(self.last_end)
        yield self.instant(self.next_end)
        if self.last_start is not None:
            yield self.instant(self.last_start)
        if self.next_start is not None:
            yield self.instant(self.next_start)
            yield self.instant(self.next_start) - ahead


def _locate(window: Window, at: datetime) -> _Located:
    zone = ZoneInfo(window.timezone)
    start, end = parse_cron(window.start), parse_cron(window.end)
    now = shown_by(at, zone)
    return _Located(
        window=window,
        zone=zone,
        start=start,
        end=end,
        last_start=next(start.firings_until(now, window.excluded), None),
        last_end=next(end.firings_until(now)),
        next_start=_next_opening(window, start, end, now),
        next_end=next(end.firings_after(now)),
    )


def _next_opening(window: Window, start: Cron, end: Cron, wall: datetime) -> datetime | None:
    """Return the first start after ``wall`` that is not also an end: such a start opens nothing."""
    starts = islice(start.firings_after(wall, window.excluded), _TIES)
    return next((firing for firing in starts if not end.fires_at(firing)), None)


def _bridge(place: _Located, located: Iterable[_Located], at: datetime) -> OpenWindow | None:
    """Keep a window over a hole of at most a minute to the next start of any window (case T07)."""
    closed_at = place.instant(place.last_end)
    if at - closed_at >= HOLE:
        return None
    starts = (other.instant(other.next_start) for other in located if other.next_start is not None)
    joint = min((start for start in starts if start - closed_at <= HOLE), default=None)
    return None if joint is None else place.closed_by(place.last_end, joint)
