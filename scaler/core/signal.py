"""Snapshot to replicas needed: one function a signal.

Each returns a :class:`SignalReading`, or None where its input or its target is absent: an absent
signal is absent, not zero. Level signals divide the fleet's total by what one replica carries, so
the answer does not depend on how many pods happen to share the load. Ratio signals multiply the
pods that serve now, so pods that are still loading are credited (aibrix #2670).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from scaler.core.model import Latency, Signal, SignalReading

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from scaler.core.model import FleetView
    from scaler.core.policy import TriggerPolicy
    from scaler.core.window import Pace

# A ratio signal may at most double the serving pods in one step: it is a slow corrector.
MAX_RATIO = 2.0
# With this many requests a pod between arrival and first token, they queue for prefill.
PREFILL_QUEUE = 2.0


@dataclass(frozen=True, slots=True)
class SignalInputs:
    """What the signals read. ``kv_used`` is ΣK over busy pods (0..pods), ``serving`` a pod count.

    ``complete`` says that every expected pod has fresh data; ``pace`` is what the newest part of
    the window adds to the fleet's view.
    """

    fleet: FleetView
    pace: Pace
    kv_used: float | None
    serving: int
    complete: bool


def read_signals(
    inputs: SignalInputs, policy: TriggerPolicy
) -> tuple[dict[Signal, SignalReading], bool]:
    """Return all signals that have input and target, and whether the promise is infeasible."""
    readings = {
        name: reading
        for name, read in _SIGNALS.items()
        if (reading := read(inputs, policy)) is not None
    }
    _cap_by_throughput(readings, inputs, policy)
    infeasible = _judge_ttft(readings, inputs, policy)
    return readings, infeasible


def binding(readings: Mapping[Signal, SignalReading]) -> tuple[Signal | None, float | None]:
    """Return the signal that counts most, and the composite in replicas.

    None for both: no signal counts. None and zero: nothing is needed, so nothing binds.
    """
    counted = {name: r.counted for name, r in readings.items() if r.counted is not None}
    if not counted:
        return None, None
    name = max(counted, key=lambda signal: counted[signal])
    return (name if counted[name] > 0 else None), counted[name]


def _level(observed: float | None, target: float | None) -> SignalReading | None:
    if observed is None or target is None:
        return None
    needed = observed / target
    return SignalReading(needed, observed, target, needed)


def _ratio(observed: float | None, target: float | None, serving: int) -> SignalReading | None:
    if observed is None or target is None:
        return None
    needed = serving * min(MAX_RATIO, observed / target)
    return SignalReading(needed, observed, target, needed)


def queue(inputs: SignalInputs, policy: TriggerPolicy) -> SignalReading | None:
    """ΣW / targetWaiting: the write-ups' metric. Late when ``max_num_seqs`` is large."""
    return _level(inputs.fleet.waiting, policy.target_waiting)


def concurrency(inputs: SignalInputs, policy: TriggerPolicy) -> SignalReading | None:
    """Σ(R + W) / targetInFlight: leads the queue by ten seconds and more on real hardware."""
    return _level(inputs.fleet.in_flight, policy.target_in_flight)


def throughput(inputs: SignalInputs, policy: TriggerPolicy) -> SignalReading | None:
    """(arriving tokens/s + backlog tokens / drainTime) / targetTokenRate: the steady-state need."""
    return _level(_work(inputs, policy, inputs.fleet.arrival_rate), policy.target_token_rate)


def _work(inputs: SignalInputs, policy: TriggerPolicy, arrival_rate: float | None) -> float | None:
    """Tokens per second that arrive, and that empty the backlog within ``drainTime``.

    The backlog is what waits, or what is in flight beyond targetInFlight a serving pod, whichever
    is more: with vLLM's default ``max_num_seqs`` the queue hides inside ``running``, and under a
    closed loop of clients arrivals never exceed what is served.
    """
    fleet, tokens = inputs.fleet, inputs.fleet.tokens_per_request
    if arrival_rate is None or tokens is None or fleet.waiting is None or fleet.in_flight is None:
        return None
    backlog = fleet.waiting
    if policy.target_in_flight is not None:
        backlog = max(backlog, fleet.in_flight - policy.target_in_flight * inputs.serving)
    return (arrival_rate + backlog / policy.drain_time) * tokens


def kv(inputs: SignalInputs, policy: TriggerPolicy) -> SignalReading | None:
    """ΣK / targetKvUsage: a saturation guard, bounded by nature."""
    return _level(inputs.kv_used, policy.target_kv_usage)


def queue_time(inputs: SignalInputs, policy: TriggerPolicy) -> SignalReading | None:
    """Serving pods x max(p95 queue time, expected wait) / targetQueueTime, at most doubled.

    vLLM observes queue time when a request finishes; the expected wait leads it.
    """
    waits = (_p95(inputs.fleet, Latency.QUEUE_TIME), inputs.fleet.expected_wait)
    longest = max((wait for wait in waits if wait is not None), default=None)
    reading = _ratio(longest, policy.target_queue_time, inputs.serving)
    if reading is not None and not inputs.fleet.in_flight:
        return replace(reading, counted=None)  # the histogram still tells of a burst that is over
    return reading


def ttft(inputs: SignalInputs, policy: TriggerPolicy) -> SignalReading | None:
    """Serving pods x p95 TTFT / targetTtft, at most doubled: the promise, as a slow corrector."""
    return _ratio(_p95(inputs.fleet, Latency.TTFT), policy.target_ttft, inputs.serving)


def _p95(fleet: FleetView, kind: Latency) -> float | None:
    seen = fleet.latencies.get(kind)
    return None if seen is None else seen.p95[0]


# Of two that ask for the same, the earlier in this list is said to bind: the leading one.
_SIGNALS: Mapping[Signal, Callable[[SignalInputs, TriggerPolicy], SignalReading | None]] = {
    Signal.CONCURRENCY: concurrency,
    Signal.THROUGHPUT: throughput,
    Signal.QUEUE: queue,
    Signal.KV: kv,
    Signal.QUEUE_TIME: queue_time,
    Signal.TTFT: ttft,
}


def _cap_by_throughput(
    readings: dict[Signal, SignalReading], inputs: SignalInputs, policy: TriggerPolicy
) -> None:
    """Let queue and concurrency ask for no more pods than the work is worth.

    A burst of short requests fills the queue and is gone before a pod starts. The work is taken at
    its quickest recent pace: the window's mean would hold back the answer to a ramp by half a
    window (our H200 stand-up: 10 s). Only while every pod is seen: a pace that misses a pod is too
    low to cap anything.
    """
    worth = _level(_work(inputs, policy, inputs.pace.arrival_rate), policy.target_token_rate)
    if worth is None or not inputs.complete:
        return
    for name in (Signal.QUEUE, Signal.CONCURRENCY):
        reading = readings.get(name)
        if reading is not None and reading.needed > worth.needed:
            readings[name] = replace(reading, counted=worth.needed)


def _judge_ttft(
    readings: dict[Signal, SignalReading], inputs: SignalInputs, policy: TriggerPolicy
) -> bool:
    """Let TTFT count only with evidence of queueing; broken without it, the promise is infeasible.

    One more pod shortens a queue; it does not make one long prompt faster.
    """
    reading = readings.get(Signal.TTFT)
    if reading is None or _queueing(inputs, policy):
        return False
    readings[Signal.TTFT] = replace(reading, counted=None)
    return reading.observed > reading.target


def _queueing(inputs: SignalInputs, policy: TriggerPolicy) -> bool:
    """Whether requests queue, seen (waiting, preempted) or hidden inside ``running``."""
    fleet = inputs.fleet
    if not fleet.in_flight:
        return False
    if fleet.waiting or fleet.preemption_rate:
        return True
    target = policy.target_in_flight
    if target is not None and fleet.in_flight >= target * inputs.serving:
        return True
    # Little's law on first tokens: how many requests sit between arrival and first token.
    before_first_token = (inputs.pace.first_token_rate or 0.0) * fleet.latencies[Latency.TTFT].mean
    return before_first_token >= PREFILL_QUEUE * inputs.serving
