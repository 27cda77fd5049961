"""Counters over a short window: deltas a pod, slots of fixed granularity for the fleet.

A delta is taken per pod between two of its samples, so a pod that joins, leaves or goes silent
contributes no change. Deltas are added into slots of a twelfth of the window; a delta that spans
several slots (irregular scrapes) is spread over them, so that a late scrape is not a burst.
Rates divide by the time the slots really cover.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import floor, inf
from typing import TYPE_CHECKING

from scaler.core.model import Count, Histogram, Latency, ModelSample, Quantiles

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

SLOTS = 12
RECENT_SLOTS = 3  # a quarter of the window, for what must follow quickly
NEWEST_SLOTS = 1  # the shortest stretch whose rate means something
# No engine on one machine does a million requests or a hundred million tokens a second: a counter
# that says so is broken, and is left out rather than believed.
ABSURD_REQUESTS_PER_SECOND = 1e6
ABSURD_TOKENS_PER_SECOND = 1e8

Bounds = tuple[float, ...]
Counts = tuple[float, ...]

NOTHING = ModelSample(running=0.0, waiting=0.0)


@dataclass(frozen=True, slots=True)
class Delta:
    """What changed on one pod between two samples, ``start`` to ``end`` (monotonic seconds).

    ``latencies`` holds cumulative bucket increments and the increment of the sum, by kind and
    bucket bounds. The two arrival counts are two views of the same thing, see :func:`delta`.
    """

    start: float
    end: float
    counts: Mapping[Count, float]
    first_tokens: float
    arrivals_by_finish: float
    arrivals_by_first_token: float
    latencies: Mapping[tuple[Latency, Bounds], tuple[Counts, float]]

    @property
    def moved(self) -> bool:
        """Whether anything was served or arrived: activity that gauges may have missed."""
        return bool(
            self.first_tokens
            or self.arrivals_by_finish
            or self.counts.get(Count.FINISHED)
            or self.counts.get(Count.GENERATION_TOKENS)
        )


def delta(
    before: ModelSample, after: ModelSample, start: float, end: float, *, restarted: bool | None
) -> Delta | None:
    """Return what changed between two samples, or None where the pair says nothing.

    ``restarted`` is what the process's start time says (None: not exported). A restarted process
    starts at zero, so all it shows happened since (case V11). Without that word a counter that
    falls to half or less is a restart, and one that falls a little is a glitch that says nothing.
    A counter absent before was not born yet (labelled counters are born on first use): zero.

    Arrivals, without a gateway: finished + change of in-flight; and, because aborted requests
    finish without a trace (vllm #31503), first tokens + change of waiting. Each is a lower bound.
    """
    if end <= start:
        return None
    fell = _fell(before, after)
    if restarted or (restarted is None and fell is _RESTART):
        before = NOTHING
    elif fell is not None:
        return None
    counts = {name: value - before.counts.get(name, 0.0) for name, value in after.counts.items()}
    if _absurd(counts, end - start):
        return None
    first_tokens = _observations(after, Latency.TTFT) - _observations(before, Latency.TTFT)
    in_flight = after.running + after.waiting - before.running - before.waiting
    return Delta(
        start,
        end,
        counts,
        first_tokens,
        max(0.0, counts.get(Count.FINISHED, 0.0) + in_flight),
        max(0.0, first_tokens + after.waiting - before.waiting),
        _latency_changes(before, after),
    )


_RESTART = "restart"
_GLITCH = "glitch"


def _fell(before: ModelSample, after: ModelSample) -> str | None:
    """Say whether counters went down: like a restart, like a glitch, or not (None)."""
    verdict = None
    for name, old in before.counts.items():
        new = after.counts.get(name, old)
        if new < old:
            if new > old / 2:
                return _GLITCH
            verdict = _RESTART
    for kind, histogram in before.latencies.items():
        newer = after.latencies.get(kind)
        if newer is not None and newer.count < histogram.count:
            if newer.count > histogram.count / 2:
                return _GLITCH
            verdict = _RESTART
    return verdict


def _absurd(counts: Mapping[Count, float], seconds: float) -> bool:
    requests = counts.get(Count.FINISHED, 0.0)
    tokens = counts.get(Count.PROMPT_TOKENS, 0.0) + counts.get(Count.GENERATION_TOKENS, 0.0)
    return (
        requests > ABSURD_REQUESTS_PER_SECOND * seconds
        or tokens > ABSURD_TOKENS_PER_SECOND * seconds
    )


def _observations(sample: ModelSample, kind: Latency) -> float:
    histogram = sample.latencies.get(kind)
    return 0.0 if histogram is None else histogram.count


def _latency_changes(
    before: ModelSample, after: ModelSample
) -> dict[tuple[Latency, Bounds], tuple[Counts, float]]:
    changes = {}
    for kind, new in after.latencies.items():
        old = before.latencies.get(kind)
        if old is None:
            old = Histogram(new.bounds, (0.0,) * len(new.bounds), 0.0)
        if old.bounds != new.bounds or old.count == new.count:
            continue
        grown = tuple([n - o for n, o in zip(new.counts, old.counts, strict=True)])
        changes[kind, new.bounds] = (grown, new.sum - old.sum)
    return changes


# --- the fleet's slots ----------------------------------------------------------------------------


@dataclass(slots=True)
class _Sum:
    """Deltas added up, the oldest of which began at ``start``.

    Mutable while it is being filled, then kept inside frozen slots.
    """

    start: float = inf
    counts: dict[Count, float] = field(default_factory=dict)
    first_tokens: float = 0.0
    by_finish: float = 0.0
    by_first: float = 0.0
    latencies: dict[tuple[Latency, Bounds], tuple[list[float], float]] = field(default_factory=dict)

    def add(self, change: Delta, start: float, share: float) -> None:
        self.start = min(self.start, start)
        for name, value in change.counts.items():
            self.counts[name] = self.counts.get(name, 0.0) + value * share
        self.first_tokens += change.first_tokens * share
        self.by_finish += change.arrivals_by_finish * share
        self.by_first += change.arrivals_by_first_token * share
        for key, (counts, total) in change.latencies.items():
            self._add_latency(key, counts, total, share)

    def add_scalars(self, other: _Sum) -> None:
        self.start = min(self.start, other.start)
        for name, value in other.counts.items():
            self.counts[name] = self.counts.get(name, 0.0) + value
        self.first_tokens += other.first_tokens
        self.by_finish += other.by_finish
        self.by_first += other.by_first

    def merge(self, other: _Sum) -> None:
        self.add_scalars(other)
        for key, (counts, total) in other.latencies.items():
            self._add_latency(key, counts, total, 1.0)

    def _add_latency(
        self, key: tuple[Latency, Bounds], counts: Sequence[float], total: float, share: float
    ) -> None:
        held = self.latencies.get(key)
        if held is None:
            self.latencies[key] = ([count * share for count in counts], total * share)
            return
        mine, my_total = held
        added = [m + c * share for m, c in zip(mine, counts, strict=True)]
        self.latencies[key] = (added, my_total + total * share)


@dataclass(frozen=True, slots=True)
class FleetWindow:
    """The last ``SLOTS`` slots of ``granularity`` seconds, oldest first, keyed by slot number.

    ``until`` is when the newest delta ended (monotonic), None before the first.
    """

    granularity: float
    slots: tuple[tuple[int, _Sum], ...] = ()
    until: float | None = None

    def push(self, deltas: Iterable[Delta], now: float) -> FleetWindow:
        """Return the window with ``deltas`` added and what is too old at ``now`` dropped."""
        oldest = floor(now / self.granularity) - SLOTS
        slots = {number: held for number, held in self.slots if number >= oldest}
        fresh: dict[int, _Sum] = {}
        until = self.until
        for change in deltas:
            until = change.end if until is None else max(until, change.end)
            for number, start, share in self._shares(change):
                if number >= oldest:
                    fresh.setdefault(number, _Sum()).add(change, start, share)
        for number, added in fresh.items():
            if number in slots:
                added.merge(slots[number])
            slots[number] = added
        return FleetWindow(self.granularity, tuple(sorted(slots.items())), until)

    def _shares(self, change: Delta) -> Iterable[tuple[int, float, float]]:
        """Yield the slots a delta belongs to, with when its part of each begins and its share."""
        last = floor(change.end / self.granularity)
        length = change.end - change.start
        if length <= 1.5 * self.granularity:
            return ((last, change.start, 1.0),)
        shares = []
        for number in range(floor(change.start / self.granularity), last + 1):
            begin = max(change.start, number * self.granularity)
            end = min(change.end, (number + 1) * self.granularity)
            shares.append((number, begin, (end - begin) / length))
        return shares

    def total(self, slots: int = SLOTS, *, latencies: bool = True) -> WindowTotal | None:
        """Add up the newest ``slots`` full slots and the one being filled; None: nothing yet."""
        if self.until is None:
            return None
        oldest = floor(self.until / self.granularity) - slots
        total = _added([held for number, held in self.slots if number >= oldest], latencies)
        return WindowTotal(self.until - total.start, total) if total.start < self.until else None


def _added(parts: Sequence[_Sum], latencies: bool) -> _Sum:
    """Add up slots. Histograms are the larger half of the work, so they are left out on request."""
    total = _Sum()
    for part in parts:
        total.add_scalars(part)
    if not latencies:
        return total
    keys = dict.fromkeys(key for part in parts for key in part.latencies)
    for key in keys:
        held = [part.latencies[key] for part in parts if key in part.latencies]
        columns = zip(*(counts for counts, _ in held), strict=True)
        total.latencies[key] = ([sum(column) for column in columns], sum(t for _, t in held))
    return total


@dataclass(frozen=True, slots=True)
class WindowTotal:
    """What the fleet did in ``seconds`` of window."""

    seconds: float
    _sum: _Sum

    def rate(self, name: Count) -> float | None:
        """Per second, or None where no pod exports the counter."""
        value = self._sum.counts.get(name)
        return None if value is None else value / self.seconds

    def change(self, name: Count) -> float | None:
        """Increase over the window, or None where no pod exports the counter."""
        return self._sum.counts.get(name)

    @property
    def first_token_rate(self) -> float:
        """First tokens per second."""
        return self._sum.first_tokens / self.seconds

    @property
    def arrival_rate(self) -> float:
        """Requests that arrived per second, the better of two lower bounds, plus refused ones."""
        admitted = max(self._sum.by_finish, self._sum.by_first)
        return (admitted + self._sum.counts.get(Count.REJECTIONS, 0.0)) / self.seconds

    def latency(self, kind: Latency) -> Histogram | None:
        """Merge the window's observations of all pods on the edges they share; None: none."""
        parts = [
            (bounds, counts, total)
            for (name, bounds), (counts, total) in self._sum.latencies.items()
            if name is kind and counts[-1] > 0
        ]
        if not parts:
            return None
        shared = sorted(set.intersection(*(set(bounds) for bounds, _, _ in parts)))
        merged = [0.0] * len(shared)
        for bounds, counts, _ in parts:
            at = dict(zip(bounds, counts, strict=True))
            merged = [m + at[edge] for m, edge in zip(merged, shared, strict=True)]
        return Histogram(tuple(shared), tuple(merged), sum(total for _, _, total in parts))


@dataclass(frozen=True, slots=True)
class Pace:
    """Rates of the newest part of the window, per second; None: not known.

    ``first_token_rate`` is that of the last quarter; ``arrival_rate`` the quickest of the whole
    window, its last quarter and its newest slot.
    """

    first_token_rate: float | None = None
    arrival_rate: float | None = None


def quantile(histogram: Histogram, q: float) -> tuple[float, float, float]:
    """Return (estimate, lower edge, upper edge) of the ``q`` quantile, seconds.

    Interpolates inside the bucket as Prometheus' ``histogram_quantile`` does; in the last bucket,
    which has no upper edge, the estimate is its lower edge.
    """
    rank = q * histogram.count
    below_edge, below_count = 0.0, 0.0
    for edge, count in zip(histogram.bounds, histogram.counts, strict=True):
        if count >= rank and count > below_count:
            if edge == inf:
                return below_edge, below_edge, inf
            share = (rank - below_count) / (count - below_count)
            return below_edge + (edge - below_edge) * share, below_edge, edge
        below_edge, below_count = edge, count
    return below_edge, below_edge, inf


def summarize(histogram: Histogram) -> Quantiles:
    """Return mean and quantiles of the window's observations."""
    return Quantiles(
        count=histogram.count,
        mean=histogram.sum / histogram.count,
        p50=quantile(histogram, 0.5),
        p95=quantile(histogram, 0.95),
        p99=quantile(histogram, 0.99),
    )


def share_within(histogram: Histogram, limit: float) -> tuple[float, float]:
    """Bound the share of observations at most ``limit``: what the edges around it say."""
    low = high = 0.0
    for edge, count in zip(histogram.bounds, histogram.counts, strict=True):
        high = count
        if edge > limit:
            break
        low = count
        if edge == limit:
            break
    return low / histogram.count, high / histogram.count
