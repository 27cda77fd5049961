"""What only shows when the values of a trigger are seen together."""

from __future__ import annotations

from datetime import timedelta
from itertools import product
from typing import TYPE_CHECKING

from scaler.config.durations import format_duration
from scaler.config.keys import CRON_KEYS, EXCLUDE_DATES, HOLIDAYS, SCHEDULE
from scaler.core.cron import parse_cron

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from scaler.config.findings import Findings
    from scaler.core.policy import TriggerPolicy, Window


def check_together(metadata: Mapping[str, str], policy: TriggerPolicy, findings: Findings) -> None:
    """Note contradictions (problems) and settings that cannot do what they say (warnings).

    Values that could not be read stand at their defaults in ``policy``.
    """
    _check_bounds(policy, findings)
    _check_lead(policy, findings)
    _check_windows(policy, findings)
    _check_targets(policy, findings)
    if SCHEDULE not in metadata and not any(key in metadata for key in CRON_KEYS):
        for key in ("leadTime", HOLIDAYS, EXCLUDE_DATES):
            if key in metadata:
                findings.warn(key, None, "has no effect without a schedule")


def _check_bounds(policy: TriggerPolicy, findings: Findings) -> None:
    if policy.max_replicas is not None and policy.min_replicas > policy.max_replicas:
        message = f"must be at most maxReplicas, {policy.max_replicas}"
        findings.refuse("minReplicas", str(policy.min_replicas), message)


def _check_lead(policy: TriggerPolicy, findings: Findings) -> None:
    if policy.lead_time is None:
        return
    for window in policy.windows:
        period = parse_cron(window.start).shortest_gap
        if timedelta(seconds=policy.lead_time) > period:
            findings.refuse(
                "leadTime",
                format_duration(policy.lead_time),
                f"must be at most {format_duration(period.total_seconds())}, the period of "
                f"the window that starts at {window.start!r}",
            )


def _check_windows(policy: TriggerPolicy, findings: Findings) -> None:
    highest = max((window.desired_replicas for window in policy.windows), default=0)
    if policy.max_replicas is not None and highest > policy.max_replicas:
        message = f"cuts off a window that asks for {highest}"
        findings.warn("maxReplicas", str(policy.max_replicas), message)
    if policy.windows and policy.min_replicas >= highest:
        message = f"is never below a window's floor, at most {highest}: the schedule does nothing"
        findings.warn("minReplicas", str(policy.min_replicas), message)
    holes = set(_holes(policy.windows))
    if holes:
        end, start = min(holes)
        more = f" (and {len(holes) - 1} more)" if len(holes) > 1 else ""
        message = (
            f"windows leave a 60 s hole from the end {end!r} to the start {start!r}{more}; "
            f"it is bridged, but ends are exclusive: end at the start itself"
        )
        findings.warn("end", None, message)


def _holes(windows: tuple[Window, ...]) -> Iterator[tuple[str, str]]:
    """Yield each end and start of one zone where the start may come a minute late (case T07)."""
    for zone in {window.timezone for window in windows}:
        here = [window for window in windows if window.timezone == zone]
        ends = {window.end: parse_cron(window.end) for window in here}
        starts = {window.start: parse_cron(window.start) for window in here}
        for (end, closing), (start, opening) in product(ends.items(), starts.items()):
            if closing.meets(opening):
                yield end, start


def _check_targets(policy: TriggerPolicy, findings: Findings) -> None:
    targets = (
        policy.target_waiting,
        policy.target_in_flight,
        policy.target_kv_usage,
        policy.target_queue_time,
        policy.target_ttft,
        policy.target_token_rate,
    )
    if all(target is None for target in targets):
        findings.warn("targetWaiting", "off", "every signal is off: only floors can scale this")
    queue_time, ttft = policy.target_queue_time, policy.target_ttft
    if queue_time is not None and ttft is not None and queue_time >= ttft:
        message = f"leaves nothing of targetTtft, {format_duration(ttft)}, for the prompt itself"
        findings.warn("targetQueueTime", format_duration(queue_time), message)
