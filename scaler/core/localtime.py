"""Between instants and local wall time, with clocks that skip hours and repeat them.

A skipped local time happens at the first existing minute after it (case T01); a repeated one
happens once, at its first occurrence. So instants never run backwards while local times run
forwards, and a schedule can be reasoned about in local time alone.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zoneinfo import ZoneInfo

_SECOND = timedelta(seconds=1)


def to_instant(wall: datetime, zone: ZoneInfo) -> datetime:
    """Return when a naive local time happens, in UTC."""
    local = wall.replace(tzinfo=zone)
    instant = local.astimezone(UTC)
    if instant.astimezone(zone).replace(tzinfo=None) == wall:
        return instant
    # Skipped. Read with the offset after the gap (fold=1) it is an instant before the gap.
    return _transition(local.replace(fold=1).astimezone(UTC), instant, zone)


def shown_by(at: datetime, zone: ZoneInfo) -> datetime:
    """Return the latest naive local time that the clocks have shown by the instant ``at``.

    That is the present local time, except while an hour repeats: then it is the hour's end.
    """
    local = at.astimezone(zone)
    if not local.fold:
        return local.replace(tzinfo=None)
    first_pass = local.replace(fold=0).astimezone(UTC)
    change = _transition(first_pass, at, zone)
    return (change - _SECOND).astimezone(zone).replace(tzinfo=None)


def _transition(before: datetime, after: datetime, zone: ZoneInfo) -> datetime:
    """Return the first whole second in (``before``, ``after``] at which the offset has changed."""
    before, after = before.replace(microsecond=0), after.replace(microsecond=0)
    offset = before.astimezone(zone).utcoffset()
    while after - before > _SECOND:
        middle = before + (after - before) // (2 * _SECOND) * _SECOND
        if middle.astimezone(zone).utcoffset() == offset:
            before = middle
        else:
            after = middle
    return after
