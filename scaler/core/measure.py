"""What the fleet does now: the load, rates and latencies over the window, as one FleetView."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from scaler.core.model import Count, FleetView, Latency
from scaler.core.quantile import share_within, summarize
from scaler.core.window import Pace

if TYPE_CHECKING:
    from scaler.core.pods import FleetReading, Load
    from scaler.core.policy import TriggerPolicy
    from scaler.core.window import FleetWindow, WindowTotal

# Fewer finished requests than this say little about the mean answer: short ones finish first.
ENOUGH_FINISHED = 10


def measure(
    reading: FleetReading,
    window: FleetWindow,
    policy: TriggerPolicy,
    now: float,
    *,
    since: float | None,
    known_tokens: float | None,
) -> tuple[FleetView, Pace]:
    """Return the fleet's view at ``now`` (monotonic) and its newest pace.

    ``since`` is when the queue rose from empty, ``known_tokens`` the last known tokens a request.
    Rates are None before two samples of one pod, and once the newest pair has left the window.
    """
    load = reading.load
    if load is None:
        return FleetView(), Pace()
    total = window.total()
    if total is None or window.until is None or now - window.until > policy.signal_window:
        return _gauges(load, expected_wait=0.0 if load.waiting == 0 else None), Pace()
    pace = window.pace()
    wait = _expected_wait(load.waiting, pace.first_token_rate, since, now)
    return _with_rates(_gauges(load, wait), total, known_tokens, policy), pace


def waiting_since(before: float | None, load: Load | None, now: float) -> float | None:
    """Return when the queue last rose from empty (monotonic), None while it is empty."""
    if load is None:
        return before
    if load.waiting <= 0:
        return None
    return now if before is None else before


def _gauges(load: Load, expected_wait: float | None) -> FleetView:
    return FleetView(
        running=load.running,
        waiting=load.waiting,
        waiting_by_reason=load.waiting_by_reason,
        kv_mean=load.kv_mean,
        kv_max=load.kv_max,
        expected_wait=expected_wait,
    )


def _with_rates(
    gauges: FleetView, total: WindowTotal, known_tokens: float | None, policy: TriggerPolicy
) -> FleetView:
    tokens = tokens_per_request(total) or known_tokens
    arrivals = total.arrival_rate
    histograms = {kind: h for kind in Latency if (h := total.latency(kind)) is not None}
    ttft = histograms.get(Latency.TTFT)
    promised = policy.target_ttft
    return replace(
        gauges,
        arrival_rate=arrivals,
        finish_rate=total.rate(Count.FINISHED),
        rejection_rate=total.rate(Count.REJECTIONS),
        error_rate=total.rate(Count.ERRORS),
        preemption_rate=total.rate(Count.PREEMPTIONS),
        prompt_token_rate=total.rate(Count.PROMPT_TOKENS),
        generation_token_rate=total.rate(Count.GENERATION_TOKENS),
        tokens_per_request=tokens,
        arriving_token_rate=None if tokens is None else arrivals * tokens,
        latencies={kind: summarize(histogram) for kind, histogram in histograms.items()},
        within_promise=None if ttft is None or promised is None else share_within(ttft, promised),
    )


def tokens_per_request(total: WindowTotal) -> float | None:
    """Return the mean computed tokens of a request, prompt (without cache hits) and answer.

    None while too few requests finished in the window to say.
    """
    finished = total.change(Count.OUTPUT_LENGTH_COUNT)
    first_tokens = total.change(Count.FIRST_TOKENS)
    prompt = total.change(Count.PROMPT_TOKENS)
    if finished is None or finished < ENOUGH_FINISHED or prompt is None or not first_tokens:
        return None
    computed = max(0.0, prompt - (total.change(Count.CACHED_TOKENS) or 0.0))
    answer = (total.change(Count.OUTPUT_LENGTH_SUM) or 0.0) / finished
    return computed / first_tokens + answer


def _expected_wait(
    waiting: float, first_token_rate: float | None, since: float | None, now: float
) -> float | None:
    """ΣW over first tokens a second; with none of late, at least the time since W rose.

    None while requests wait and nothing is known of first tokens.
    """
    if waiting <= 0:
        return 0.0
    if first_token_rate is None:
        return None
    if first_token_rate > 0:
        return waiting / first_token_rate
    return None if since is None else now - since
