"""What a pod's counters did between two of its samples, and how such deltas are added up.

A delta is taken per pod between two of its own samples, so a pod that joins, leaves or goes silent
contributes no change.
"""

from __future__ import annotations

from dataclasses import dataclass
from operator import sub
from typing import TYPE_CHECKING

from scaler.core.model import Count, Histogram, Latency, ModelSample

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# No engine on one machine does a million requests or a hundred million tokens a second: a counter
# that says so is broken, and is left out rather than believed.
ABSURD_REQUESTS_PER_SECOND = 1e6
ABSURD_TOKENS_PER_SECOND = 1e8

Bounds = tuple[float, ...]
Counts = tuple[float, ...]

NOTHING = ModelSample(running=0.0, waiting=0.0)


@dataclass(frozen=True, slots=True)
class Delta:
    """What changed from ``start`` to ``end`` (monotonic seconds): on one pod, or on all of them.

    ``latencies`` holds cumulative bucket increments and the increment of the sum, by kind and
    bucket bounds. The two arrival counts are two views of the same thing, see :func:`delta`.
    """

    start: float
    end: float
    counts: Mapping[Count, float]
    arrivals_by_finish: float
    arrivals_by_first_token: float
    latencies: Mapping[tuple[Latency, Bounds], tuple[Counts, float]]
    reset: bool = False  # the counters started anew

    def part(self, begin: float, end: float) -> Delta:
        """Return the share of this change that falls between two instants, as if it were even."""
        share = (end - begin) / (self.end - self.start)
        return Delta(
            begin,
            end,
            {name: change * share for name, change in self.counts.items()},
            self.arrivals_by_finish * share,
            self.arrivals_by_first_token * share,
            {
                key: (tuple([count * share for count in grown]), total * share)
                for key, (grown, total) in self.latencies.items()
            },
        )

    @property
    def moved(self) -> bool:
        """Whether anything was served or arrived: activity that gauges may have missed."""
        return bool(
            self.arrivals_by_finish
            or self.counts.get(Count.FIRST_TOKENS)
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
    counts = _count_changes(before, after)
    fell = _fell(before, after, counts)
    reset = bool(restarted) or (restarted is None and fell is _RESTART)
    if reset:
        before = NOTHING
        counts = dict(after.counts)
    elif fell is not None:
        return None
    if _absurd(counts, end - start):
        return None
    first_tokens = 0.0
    if Latency.TTFT in after.latencies:
        first_tokens = _observations(after, Latency.TTFT) - _observations(before, Latency.TTFT)
        counts[Count.FIRST_TOKENS] = first_tokens
    in_flight = after.running + after.waiting - before.running - before.waiting
    return Delta(
        start,
        end,
        counts,
        max(0.0, counts.get(Count.FINISHED, 0.0) + in_flight),
        max(0.0, first_tokens + after.waiting - before.waiting),
        _latency_changes(before, after),
        reset,
    )


_RESTART = "restart"
_GLITCH = "glitch"


def _count_changes(before: ModelSample, after: ModelSample) -> dict[Count, float]:
    old = before.counts
    return {name: value - old.get(name, 0.0) for name, value in after.counts.items()}


def _fell(before: ModelSample, after: ModelSample, counts: Mapping[Count, float]) -> str | None:
    """Say whether counters went down: like a restart, like a glitch, or not (None)."""
    verdict = None
    if min(counts.values(), default=0.0) < 0:
        pairs = [(before.counts[name], after.counts[name]) for name in counts if counts[name] < 0]
        if any(new > old / 2 for old, new in pairs):
            return _GLITCH
        verdict = _RESTART
    for kind, histogram in before.latencies.items():
        newer = after.latencies.get(kind)
        if newer is not None and newer.counts[-1] < histogram.counts[-1]:
            if newer.counts[-1] > histogram.counts[-1] / 2:
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
        if old.counts[-1] == new.counts[-1] or old.bounds != new.bounds:
            continue
        changes[kind, new.bounds] = (tuple(map(sub, new.counts, old.counts)), new.sum - old.sum)
    return changes


# --- adding up ------------------------------------------------------------------------------------


def add_up(parts: Sequence[Delta]) -> Delta:
    """Return all changes as one; ``parts`` is not empty.

    Column by column: this runs at every decision, over every pod and every slot.
    """
    if len(parts) == 1:
        return parts[0]
    return Delta(
        min([part.start for part in parts]),
        max([part.end for part in parts]),
        _add_counts([part.counts for part in parts]),
        sum([part.arrivals_by_finish for part in parts]),
        sum([part.arrivals_by_first_token for part in parts]),
        _add_latencies([part.latencies for part in parts]),
    )


def _add_counts(parts: Sequence[Mapping[Count, float]]) -> dict[Count, float]:
    names = list(parts[0])
    if all(list(part) == names for part in parts):
        columns = zip(*[part.values() for part in parts], strict=True)
        return dict(zip(names, map(sum, columns), strict=True))
    total: dict[Count, float] = {}
    for part in parts:
        for name, change in part.items():
            total[name] = total.get(name, 0.0) + change
    return total


def _add_latencies(
    parts: Sequence[Mapping[tuple[Latency, Bounds], tuple[Counts, float]]],
) -> dict[tuple[Latency, Bounds], tuple[Counts, float]]:
    held: dict[tuple[Latency, Bounds], list[tuple[Counts, float]]] = {}
    for part in parts:
        for key, grown in part.items():
            held.setdefault(key, []).append(grown)
    return {
        key: (
            tuple(map(sum, zip(*[counts for counts, _ in grown], strict=True))),
            sum([total for _, total in grown]),
        )
        for key, grown in held.items()
    }
