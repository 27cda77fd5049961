"""Dates on which a window does not open: public holidays of a country, and single dates."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import TYPE_CHECKING, Any

import holidays
import holidays.countries  # all of them, at the start: left to the first use, 0.1 s on the loop

if TYPE_CHECKING:
    from collections.abc import Container

MAX_DATES = 1000

_COUNTRY = re.compile(r"[A-Za-z]{2}", re.ASCII)
_ISO_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


@dataclass(frozen=True, slots=True)
class Holidays:
    """The public holidays of a country or one of its subdivisions, observed days included."""

    country: str
    subdivision: str | None = None

    def __contains__(self, day: object) -> bool:
        return day in _calendar(self.country, self.subdivision)


@dataclass(frozen=True, slots=True)
class Excluded:
    """Holidays and single dates together."""

    holidays: Holidays | None
    dates: frozenset[date]

    def __contains__(self, day: object) -> bool:
        return day in self.dates or (self.holidays is not None and day in self.holidays)


def excluded(holiday_calendar: Holidays | None, dates: frozenset[date]) -> Container[date]:
    """Return the simplest container that holds both."""
    return dates if holiday_calendar is None else Excluded(holiday_calendar, dates)


@cache
def _calendar(country: str, subdivision: str | None) -> holidays.HolidayBase:
    # Filled a year at a time as dates are asked for; the keys are checked codes, so few.
    return holidays.country_holidays(country, subdiv=subdivision)


def read_holidays(text: str) -> Holidays | None:
    """Read ``DE``, ``DE-BY`` or ``off``. Raises ValueError naming the unknown part."""
    if text == "off":
        return None
    country, dash, subdivision = text.partition("-")
    if not _COUNTRY.fullmatch(country) or (dash and not subdivision):
        raise ValueError("must be a country code, optionally with a subdivision: DE or DE-BY")
    country = country.upper()
    known = _subdivisions(country)
    if known is None:
        raise ValueError(f"unknown country {country!r}: no public holidays are known for it")
    if not dash:
        return Holidays(country)
    for candidate in (subdivision.upper(), subdivision):
        if candidate in known:
            return Holidays(country, candidate)
    listed = ", ".join(_entity(country).subdivisions) or "none"
    raise ValueError(f"unknown subdivision {subdivision[:20]!r} of {country}; known are {listed}")


def _entity(country: str) -> Any:
    """Return the class of a country's holidays, unfilled. Raises AttributeError."""
    return getattr(holidays, country)


@cache
def _subdivisions(country: str) -> frozenset[str] | None:
    """Return codes and aliases of a country's subdivisions, None for no country; 676 at most."""
    try:
        entity = _entity(country)
        return frozenset(entity.subdivisions) | frozenset(entity.subdivisions_aliases)
    except AttributeError:
        return None


def read_dates(text: str) -> frozenset[date]:
    """Read comma-separated ISO dates. Raises ValueError naming every one that is none."""
    parts = [part for word in text.split(",") if (part := word.strip())]
    if len(parts) > MAX_DATES:
        raise ValueError(f"must be at most {MAX_DATES} dates, got {len(parts)}")
    wrong = [part for part in parts if not _is_date(part)]
    if wrong:
        named = ", ".join(repr(part[:20]) for part in wrong[:10])
        raise ValueError(f"must be dates such as 2026-12-24, separated by commas; not {named}")
    return frozenset(date.fromisoformat(part) for part in parts)


def _is_date(text: str) -> bool:
    try:
        return _ISO_DATE.fullmatch(text) is not None and bool(date.fromisoformat(text))
    except ValueError:
        return False
