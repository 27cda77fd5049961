"""Five-field cron expressions in local wall time.

The dialect is the one KEDA's cron scaler documents: minute, hour, day of month, month, day of week;
``*``, numbers, names, ranges, lists and steps; ``?`` for either day field. When both day fields are
restricted a day matches if either does (crontab(5)); ``*/2`` counts as restricted, as in KEDA.
Anything else is refused with the token that is at fault, never read as ``*`` (case T10).

Why not a library's iterator: see docs/decisions/0020-cron-by-looking-back.md.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from functools import cache, cached_property, lru_cache, reduce
from operator import or_
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator

# The longest wait between two leap days is eight years (1896 to 1904, 2096 to 2104).
HORIZON = timedelta(days=9 * 366)

_DAY = timedelta(days=1)
_MINUTES_A_DAY = 24 * 60
_LAST_MINUTE = _MINUTES_A_DAY - 1
_ONE = ord("1")
_EPOCH = datetime(2024, 1, 1)  # noqa: DTZ001 - local; a Monday that begins a leap year


class CronError(ValueError):
    """An expression outside the dialect; the message names the token."""


@dataclass(frozen=True, slots=True)
class _Field:
    name: str
    low: int
    high: int
    names: tuple[str, ...] = ()

    @property
    def allowed(self) -> str:
        named = f" or {self.names[0]}-{self.names[-1]}" if self.names else ""
        return f"{self.low}-{self.high}{named}"


# fmt: off
_MONTHS = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN",
           "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
# fmt: on
_WEEKDAYS = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_MINUTE = _Field("minute", 0, 59)
_HOUR = _Field("hour", 0, 23)
_DAY_OF_MONTH = _Field("day of month", 1, 31)
_MONTH = _Field("month", 1, 12, _MONTHS)
_DAY_OF_WEEK = _Field("day of week", 0, 7, _WEEKDAYS)
_FIELDS = (_MINUTE, _HOUR, _DAY_OF_MONTH, _MONTH, _DAY_OF_WEEK)
_DAY_FIELDS = (_DAY_OF_MONTH, _DAY_OF_WEEK)
_MONTH_LENGTHS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@dataclass(frozen=True)
class Cron:
    """A parsed expression. ``times`` are minutes of the day, ascending; ``weekdays``: 0 is Sunday.

    ``None`` for ``days`` or ``weekdays`` means unrestricted.
    """

    times: tuple[int, ...]
    days: frozenset[int] | None
    months: frozenset[int]
    weekdays: frozenset[int] | None

    def matches(self, day: date) -> bool:
        """Tell whether the expression fires on a local date."""
        if day.month not in self.months:
            return False
        by_day = self.days is not None and day.day in self.days
        by_weekday = self.weekdays is not None and day.isoweekday() % 7 in self.weekdays
        return by_day or by_weekday or (self.days is None and self.weekdays is None)

    def fires_at(self, wall: datetime) -> bool:
        """Tell whether the expression fires in a local minute."""
        minute = 60 * wall.hour + wall.minute
        index = bisect_left(self.times, minute)
        return self.times[index : index + 1] == (minute,) and self.matches(wall.date())

    def firings_until(
        self, wall: datetime, skip: Container[date] = frozenset()
    ) -> Iterator[datetime]:
        """Yield the firings at or before a local time, the newest first, for nine years.

        A valid expression has one; with dates to ``skip`` there may be none.
        """
        today = wall.date()
        for day in self.days_from(today, back=True):
            if day not in skip:
                past = self._up_to(wall) if day == today else self.times
                yield from (_at(day, minute) for minute in reversed(past))

    def firings_after(
        self, wall: datetime, skip: Container[date] = frozenset()
    ) -> Iterator[datetime]:
        """Yield the firings after a local time, the next first, for nine years; see above."""
        today = wall.date()
        for day in self.days_from(today):
            if day not in skip:
                future = self.times[len(self._up_to(wall)) :] if day == today else self.times
                yield from (_at(day, minute) for minute in future)

    def _up_to(self, wall: datetime) -> tuple[int, ...]:
        return self.times[: bisect_right(self.times, 60 * wall.hour + wall.minute)]

    def within(self, other: Cron) -> bool:
        """Tell whether every firing is one of ``other`` too."""
        return not (self._minutes & ~other._minutes or self._calendar & ~other._calendar)

    def meets(self, other: Cron) -> bool:
        """Tell whether ``other`` fires one minute after a firing of this one, within nine years."""
        same_day = bool(self._minutes << 1 & other._minutes)
        overnight = bool(self._minutes >> _LAST_MINUTE & other._minutes & 1)
        return bool(
            (same_day and self._calendar & other._calendar)
            or (overnight and self._calendar << 1 & other._calendar)
        )

    @cached_property
    def _minutes(self) -> int:
        """The minutes of the day that fire, a bit each: pairs of windows compare at once."""
        return _mask(self.times)

    @cached_property
    def _calendar(self) -> int:
        """The days from the epoch on that fire, a bit each, up to the horizon."""
        every = _days()
        by_day = _any(every.days[day] for day in self.days or ())
        by_weekday = _any(every.weekdays[day] for day in self.weekdays or ())
        if self.days is None and self.weekdays is None:
            return _any(every.months[month] for month in self.months)
        return (by_day | by_weekday) & _any(every.months[month] for month in self.months)

    @property
    def shortest_gap(self) -> timedelta:
        """The shortest time between two firings, daylight saving aside: the period."""
        # Even a leap day comes twice before the horizon.
        overnight = _MINUTES_A_DAY * _closest(self._calendar) + self.times[0] - self.times[-1]
        one_a_day = len(self.times) == 1
        return timedelta(
            minutes=overnight if one_a_day else min(overnight, _closest(self._minutes))
        )

    def days_from(self, day: date, *, back: bool = False) -> Iterator[date]:
        """Yield matching local dates from ``day`` on, in either direction, up to the horizon."""
        last = day - HORIZON if back else day + HORIZON
        while (day >= last) if back else (day <= last):
            if day.month not in self.months:
                day = _month_edge(day, back=back)
                continue
            if self.matches(day):
                yield day
            day += -_DAY if back else _DAY


class _Days(NamedTuple):
    """The days from the epoch to the horizon, a bit each, by what a field may ask of a day."""

    days: dict[int, int]
    months: dict[int, int]
    weekdays: dict[int, int]


@cache
def _days() -> _Days:
    """Return the tables: a calendar is a few ORs of them, whoever writes the expression."""
    found = _Days(defaultdict(int), defaultdict(int), defaultdict(int))
    for offset in range(HORIZON.days):
        day = _EPOCH.date() + offset * _DAY
        found.days[day.day] |= 1 << offset
        found.months[day.month] |= 1 << offset
        found.weekdays[day.isoweekday() % 7] |= 1 << offset
    return found


def _any(masks: Iterable[int]) -> int:
    return reduce(or_, masks, 0)


@lru_cache(maxsize=256)
def _mask(minutes: tuple[int, ...]) -> int:
    digits = bytearray(b"0") * _MINUTES_A_DAY
    for minute in minutes:
        digits[_LAST_MINUTE - minute] = _ONE
    return int(digits, 2)


def _closest(mask: int) -> int:
    """Return how far apart the closest two of a mask's bits are; it has two at least."""
    zeros_between = f"{mask:b}".strip("0")[1:-1].split("1")
    return 1 + min(map(len, zeros_between))


def _month_edge(day: date, *, back: bool) -> date:
    """Return the nearest day of the neighbouring month, in either direction."""
    first = day.replace(day=1)
    return first - _DAY if back else (first + timedelta(days=32)).replace(day=1)


# --- reading --------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def parse_cron(text: str) -> Cron:
    """Read an expression. Raises CronError naming the token that is at fault."""
    tokens = text.split()
    if len(tokens) == 1 and tokens[0].startswith("@"):
        raise CronError(f"{tokens[0]!r} is not supported; write five fields")
    if len(tokens) != len(_FIELDS):
        raise CronError(f"expected 5 fields, got {len(tokens)}")
    sets = [_read_field(token.upper(), field) for token, field in zip(tokens, _FIELDS, strict=True)]
    minutes, hours, days, months, weekdays = sets
    cron = Cron(
        times=_times(hours, minutes),
        days=None if _unrestricted(tokens[2]) else days,
        months=months,
        weekdays=None if _unrestricted(tokens[4]) else frozenset(day % 7 for day in weekdays),
    )
    if _never_matches(cron):
        raise CronError(f"{' '.join(tokens)!r} never matches: no such day of the month")
    return cron


@lru_cache(maxsize=256)
def _times(hours: frozenset[int], minutes: frozenset[int]) -> tuple[int, ...]:
    return tuple([60 * hour + minute for hour in sorted(hours) for minute in sorted(minutes)])


def _unrestricted(token: str) -> bool:
    return any(term in {"*", "?", "*/1", "?/1"} for term in token.split(","))


def _never_matches(cron: Cron) -> bool:
    if cron.days is None or cron.weekdays is not None:
        return False
    return min(cron.days) > max(_MONTH_LENGTHS[month - 1] for month in cron.months)


def _read_field(token: str, field: _Field) -> frozenset[int]:
    return frozenset().union(*(_read_term(term, field) for term in token.split(",")))


def _read_term(term: str, field: _Field) -> range:
    """Read ``*``, ``?``, ``N``, ``N-M``, each with an optional ``/step``; ``N/step`` runs on."""
    span, slash, step_text = term.partition("/")
    step = 1
    if slash:
        if not _is_number(step_text) or int(step_text) == 0:
            raise _refuse(term, field, "a step is a whole number above 0")
        step = int(step_text)
    if span == "*" or (span == "?" and field in _DAY_FIELDS):
        return range(field.low, field.high + 1, step)
    first_text, dash, last_text = span.partition("-")
    first = _read_value(first_text, term, field)
    if dash:
        last = _read_value(last_text, term, field)
    else:
        # Sunday's second number must not join "1/2".
        last = (6 if field is _DAY_OF_WEEK else field.high) if slash else first
    if last < first:
        raise _refuse(term, field, "the range runs backwards")
    return range(first, last + 1, step)


def _read_value(text: str, term: str, field: _Field) -> int:
    if text in field.names:
        return field.names.index(text) + field.low
    if not _is_number(text) or not field.low <= int(text) <= field.high:
        raise _refuse(term, field, f"allowed is {field.allowed}")
    return int(text)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 4


def _refuse(term: str, field: _Field, why: str) -> CronError:
    return CronError(f"{term!r} is no {field.name}: {why}")


def _at(day: date, minute: int) -> datetime:
    return datetime.combine(day, time(minute // 60, minute % 60))
