"""The schedule against a model that shares nothing with it: clocks watched minute by minute.

The model walks over real minutes, keeps the latest local time the clocks have shown, and lets each
local minute happen the first time they reach or pass it. No looking back, no arithmetic on offsets.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim, CronSimError
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.core.cron import CronError, parse_cron
from scaler.core.localtime import shown_by, to_instant
from scaler.core.policy import Window
from scaler.core.schedule import evaluate

MINUTE = timedelta(minutes=1)
LOOK_BACK = timedelta(days=9)  # every pattern below ends at least once a week

# Weeks around changes of the clocks: by an hour, by half an hour, at midnight, by a whole day.
CHANGES = [
    ("Europe/Berlin", datetime(2026, 3, 29, 1, tzinfo=UTC)),
    ("Europe/Berlin", datetime(2026, 10, 25, 1, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 3, 8, 7, tzinfo=UTC)),
    ("America/New_York", datetime(2026, 11, 1, 6, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 4, 15, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 10, 3, 15, 30, tzinfo=UTC)),
    ("America/Havana", datetime(2026, 3, 8, 5, tzinfo=UTC)),
    ("America/Havana", datetime(2026, 11, 1, 5, tzinfo=UTC)),
    ("America/St_Johns", datetime(2010, 11, 7, 2, 31, tzinfo=UTC)),
    ("Pacific/Apia", datetime(2011, 12, 30, 10, tzinfo=UTC)),
    ("Asia/Kolkata", datetime(2026, 6, 1, tzinfo=UTC)),
    ("UTC", datetime(2026, 2, 28, 23, tzinfo=UTC)),
]


@dataclass(frozen=True)
class Pattern:
    """A cron expression as sets; None is ``*``."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int] | None
    weekdays: frozenset[int] | None

    @property
    def text(self) -> str:
        fields = (self.minutes, self.hours, self.days, None, self.weekdays)
        return " ".join(
            "*" if field is None else ",".join(str(value) for value in sorted(field))
            for field in fields
        )

    def fires(self, wall: datetime) -> bool:
        if wall.minute not in self.minutes or wall.hour not in self.hours:
            return False
        chosen = [
            wall.day in self.days if self.days is not None else None,
            (wall.weekday() + 1) % 7 in self.weekdays if self.weekdays is not None else None,
        ]
        return any(chosen) or chosen == [None, None]


def subsets(low: int, high: int, most: int = 3) -> st.SearchStrategy[frozenset[int]]:
    return st.frozensets(st.integers(low, high), min_size=1, max_size=most)


def patterns(*, weekly: bool) -> st.SearchStrategy[Pattern]:
    # Hours near the changes are drawn more often than chance would.
    hours = st.one_of(subsets(0, 3), subsets(0, 23), subsets(22, 23))
    weekdays = subsets(0, 6, 5) if weekly else st.none() | subsets(0, 6, 5)
    days = st.none() | subsets(1, 31, 6)
    every_minute = st.just(frozenset(range(60)))
    return st.builds(Pattern, subsets(0, 59) | every_minute, hours, days, weekdays)


@dataclass(frozen=True)
class Drawn:
    start: Pattern
    end: Pattern
    desired: int
    zone: str
    excluded: frozenset[date]

    @property
    def window(self) -> Window:
        return Window(self.zone, self.start.text, self.end.text, self.desired, self.excluded)


@dataclass
class Watched:
    """What a window did: its openings and closings, in UTC, and how it stood at an instant."""

    openings: list[datetime]
    closings: list[datetime]
    opened_at: datetime | None


def watch(drawn: Drawn, at: datetime, until: datetime) -> Watched:
    """Watch the clocks from nine days before ``at``; ``opened_at`` is the state at ``at``."""
    zone = ZoneInfo(drawn.zone)
    now = (at - LOOK_BACK).replace(second=0, microsecond=0)
    shown = now.astimezone(zone).replace(tzinfo=None) - MINUTE
    opened: datetime | None = None
    watched = Watched([], [], None)
    while now <= until:
        local = now.astimezone(zone).replace(tzinfo=None)
        while shown < local:
            shown += MINUTE
            if drawn.end.fires(shown):
                if opened is not None:
                    watched.closings.append(now)
                opened = None
            elif drawn.start.fires(shown) and shown.date() not in drawn.excluded:
                watched.openings.append(now)
                opened = opened or now
        if now <= at:
            watched.opened_at = opened
        now += MINUTE
    return watched


def model_floor(windows: list[Drawn], lead: timedelta, at: datetime) -> int:
    histories = [watch(drawn, at, at + lead + 2 * MINUTE) for drawn in windows]
    floor = 0
    for drawn, history in zip(windows, histories, strict=True):
        led = any(at < opening <= at + lead for opening in history.openings)
        closed = [instant for instant in history.closings if instant <= at]
        # A hole of a minute or less, from the last end to any window's next start.
        bridged = bool(closed) and any(
            at < opening <= closed[-1] + MINUTE for other in histories for opening in other.openings
        )
        if history.opened_at is not None or led or bridged:
            floor = max(floor, drawn.desired)
    return floor


@st.composite
def scenes(draw: st.DrawFn) -> tuple[list[Drawn], timedelta, datetime]:
    zone, change = draw(st.sampled_from(CHANGES))
    at = change + timedelta(seconds=draw(st.integers(-100_000, 100_000)))
    days = st.frozensets(
        st.sampled_from([change.date() + timedelta(days=offset) for offset in range(-3, 3)]),
        max_size=2,
    )
    windows = draw(
        st.lists(
            st.builds(
                Drawn,
                patterns(weekly=False),
                patterns(weekly=True),
                st.integers(1, 20),
                st.just(zone),
                days,
            ).filter(lambda drawn: drawn.start != drawn.end),
            min_size=1,
            max_size=3,
        )
    )
    lead = timedelta(seconds=draw(st.integers(0, 5400)))
    return windows, lead, at


@settings(max_examples=40, deadline=None)
@given(scenes())
def test_the_floor_is_the_one_that_watching_the_clocks_gives(
    scene: tuple[list[Drawn], timedelta, datetime],
) -> None:
    windows, lead, at = scene

    view = evaluate([drawn.window for drawn in windows], lead.total_seconds(), at)

    assert view.floor == model_floor(windows, lead, at)


@settings(max_examples=40, deadline=None)
@given(scenes())
def test_an_open_window_began_when_watching_the_clocks_says(
    scene: tuple[list[Drawn], timedelta, datetime],
) -> None:
    windows, lead, at = scene

    view = evaluate([windows[0].window], lead.total_seconds(), at)
    history = watch(windows[0], at, at)

    if history.opened_at is not None and windows[0].start.days is None:
        assert view.opened_at == history.opened_at
        assert view.open[0].closes_at > at


@settings(max_examples=80, deadline=None)
@given(scenes(), st.floats(0, 1))
def test_a_view_is_true_as_long_as_it_says(
    scene: tuple[list[Drawn], timedelta, datetime], share: float
) -> None:
    windows, lead, at = scene
    written = [drawn.window for drawn in windows]
    view = evaluate(written, lead.total_seconds(), at)
    length = view.valid_until - view.valid_from

    for instant in (
        view.valid_from,
        view.valid_from + share * length,
        view.valid_until - timedelta(microseconds=1),
    ):
        if view.holds_at(instant):
            assert evaluate(written, lead.total_seconds(), instant) == view


@settings(max_examples=80, deadline=None)
@given(scenes())
def test_the_next_opening_is_the_next_time_a_closed_schedule_opens(
    scene: tuple[list[Drawn], timedelta, datetime],
) -> None:
    windows, lead, at = scene
    written = [windows[0].window]
    view = evaluate(written, lead.total_seconds(), at)

    if not view.open and view.next_opening is not None:
        assert view.next_opening > at
        assert (
            evaluate(written, lead.total_seconds(), view.next_opening).floor
            == written[0].desired_replicas
        )
        before = view.next_opening - timedelta(microseconds=1)
        assert evaluate(written, lead.total_seconds(), before).floor == 0


@pytest.mark.parametrize(("zone", "change"), CHANGES)
def test_local_time_and_instants_are_two_sides_of_one_order(zone: str, change: datetime) -> None:
    """A local time has happened by an instant exactly when the clocks have shown it by then."""
    info = ZoneInfo(zone)
    base = change.astimezone(info).replace(tzinfo=None, second=0)
    walls = [base + timedelta(minutes=offset) for offset in range(-150, 150, 7)]
    instants = [change + timedelta(seconds=offset) for offset in range(-9000, 9000, 401)]

    for wall in walls:
        for instant in instants:
            assert (to_instant(wall, info) <= instant) == (wall <= shown_by(instant, info))


@settings(max_examples=80, deadline=None)
@given(
    patterns(weekly=False).filter(lambda pattern: len(pattern.minutes) < 60),
    st.sampled_from([zone for zone, _ in CHANGES if zone != "Pacific/Apia"]),
    st.none() | subsets(1, 12),
)
def test_firings_agree_with_cronsim(
    pattern: Pattern, zone: str, months: frozenset[int] | None
) -> None:
    """An independent, well-kept library, going forwards from noon of a quiet day.

    It looks ahead for 50 years, we for nine: only the next eight are compared.
    """
    fields = pattern.text.split()
    if months is not None:
        fields[3] = ",".join(str(month) for month in sorted(months))
    text = " ".join(fields)
    info = ZoneInfo(zone)
    begin = datetime(2026, 2, 1, 12, 0, tzinfo=info)

    horizon = begin.replace(year=2034)
    try:
        theirs = list(takewhile(horizon.__gt__, islice(CronSim(text, begin), 40)))
    except CronSimError:
        with pytest.raises(CronError, match="never matches"):
            parse_cron(text)
        return
    walls = islice(parse_cron(text).firings_after(begin.replace(tzinfo=None)), 80)
    # Several local times that the clocks skip are one firing to cronsim.
    ours = dict.fromkeys(to_instant(wall, info) for wall in walls)

    expected = [instant.astimezone(UTC) for instant in theirs]
    assert [instant for instant in ours if instant < horizon][: len(expected)] == expected
