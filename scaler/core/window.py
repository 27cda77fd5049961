"""The last minute of the fleet, in slots of a twelfth of the window.

Deltas of all pods are added into slots; one that spans several (irregular scrapes) is spread over
them, so that a late scrape is not a burst. Rates divide by the time the slots really cover.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor
from typing import TYPE_CHECKING

from scaler.core.delta import add_up
from scaler.core.model import Count, Histogram

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from scaler.core.delta import Delta
    from scaler.core.model import Latency

SLOTS = 12
RECENT_SLOTS = 3  # a quarter of the window, for what must follow quickly
NEWEST_SLOTS = 1  # the shortest stretch whose rate means something


@dataclass(frozen=True, slots=True)
class Pace:
    """Rates of the newest part of the window, per second; None: not known.

    ``first_token_rate`` is that of the last quarter; ``arrival_rate`` the quickest of the whole
    window, its last quarter and its newest slot.
    """

    first_token_rate: float | None = None
    arrival_rate: float | None = None


@dataclass(frozen=True, slots=True)
class FleetWindow:
    """The last ``SLOTS`` slots of ``granularity`` seconds, oldest first, keyed by slot number.

    ``until`` is when the newest delta ended (monotonic), None before the first.
    """

    granularity: float
    slots: tuple[tuple[int, Delta], ...] = ()
    until: float | None = None

    def push(self, deltas: Iterable[Delta], now: float) -> FleetWindow:
        """Return the window with ``deltas`` added and what is too old at ``now`` dropped."""
        oldest = floor(now / self.granularity) - SLOTS
        held = {number: [slot] for number, slot in self.slots if number >= oldest}
        until = self.until
        for change in deltas:
            until = change.end if until is None else max(until, change.end)
            for number, part in self._parts(change):
                if number >= oldest:
                    held.setdefault(number, []).append(part)
        slots = tuple((number, add_up(held[number])) for number in sorted(held))
        return FleetWindow(self.granularity, slots, until)

    def _parts(self, change: Delta) -> Iterable[tuple[int, Delta]]:
        """Yield a delta's parts by the slots they belong to."""
        last = floor(change.end / self.granularity)
        if change.end - change.start <= 1.5 * self.granularity:
            return ((last, change),)
        return [
            (
                number,
                change.part(
                    max(change.start, number * self.granularity),
                    min(change.end, (number + 1) * self.granularity),
                ),
            )
            for number in range(floor(change.start / self.granularity), last + 1)
        ]

    def total(self) -> WindowTotal | None:
        """Add up the whole window; None: nothing yet."""
        held = self._newest(SLOTS)
        if self.until is None or not held:
            return None
        total = add_up(held)
        return WindowTotal(self.until - total.start, total)

    def pace(self) -> Pace:
        """Return the rates of the newest part of the window, not known before the first delta."""
        whole, recent, newest = map(self._newest, (SLOTS, RECENT_SLOTS, NEWEST_SLOTS))
        if self.until is None or not newest:
            return Pace()
        seconds = self.until - min(part.start for part in recent)
        first_tokens = [part.counts.get(Count.FIRST_TOKENS) for part in recent]
        known = [count for count in first_tokens if count is not None]
        return Pace(
            first_token_rate=sum(known) / seconds if known else None,
            arrival_rate=max(_arrival_rate(part, self.until) for part in (whole, recent, newest)),
        )

    def _newest(self, slots: int) -> list[Delta]:
        """Return the newest full slots and the one being filled."""
        if self.until is None:
            return []
        oldest = floor(self.until / self.granularity) - slots
        return [held for number, held in self.slots if number >= oldest]


def _arrival_rate(parts: Sequence[Delta], until: float) -> float:
    """Requests a second: the better of two lower bounds, and those that were refused."""
    admitted = max(
        sum([part.arrivals_by_finish for part in parts]),
        sum([part.arrivals_by_first_token for part in parts]),
    )
    refused = sum([part.counts.get(Count.REJECTIONS, 0.0) for part in parts])
    return (admitted + refused) / (until - min([part.start for part in parts]))


@dataclass(frozen=True, slots=True)
class WindowTotal:
    """What the fleet did in ``seconds`` of window."""

    seconds: float
    _sum: Delta

    def rate(self, name: Count) -> float | None:
        """Per second, or None where no pod exports the counter."""
        value = self._sum.counts.get(name)
        return None if value is None else value / self.seconds

    def change(self, name: Count) -> float | None:
        """Increase over the window, or None where no pod exports the counter."""
        return self._sum.counts.get(name)

    @property
    def arrival_rate(self) -> float:
        """Requests that arrived per second, the better of two lower bounds, plus refused ones."""
        return _arrival_rate([self._sum], self._sum.start + self.seconds)

    def latency(self, kind: Latency) -> Histogram | None:
        """Merge the window's observations of all pods on the edges they share; None: none."""
        parts = [
            (bounds, counts, total)
            for (name, bounds), (counts, total) in self._sum.latencies.items()
            if name is kind and counts[-1] > 0
        ]
        if not parts:
            return None
        if len(parts) == 1:
            [(bounds, grown, total)] = parts
            return Histogram(bounds, grown, total)
        shared = sorted(set.intersection(*(set(bounds) for bounds, _, _ in parts)))
        merged = [0.0] * len(shared)
        for bounds, counts, _ in parts:
            at = dict(zip(bounds, counts, strict=True))
            merged = [m + at[edge] for m, edge in zip(merged, shared, strict=True)]
        return Histogram(tuple(shared), tuple(merged), sum(total for _, _, total in parts))
