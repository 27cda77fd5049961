"""What a trigger asks for, checked and frozen.

``config/trigger.py`` builds a :class:`TriggerPolicy` from scaler metadata; nothing here parses.
Durations are seconds, ratios are 0..1, counts are replicas or requests.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container
    from datetime import date

# One KEDA poll and one HPA sync at their defaults: what passes between our answer and a new pod.
POLL_SECONDS = 30.0
SYNC_SECONDS = 15.0


@dataclass(frozen=True, slots=True)
class Window:
    """A cron window: at least ``desired_replicas`` from each ``start`` to the next ``end``.

    ``start`` and ``end`` are checked five-field cron expressions read in ``timezone`` (an IANA
    name). A start that falls on a local date in ``excluded`` does not open.
    """

    timezone: str
    start: str
    end: str
    desired_replicas: int
    excluded: Container[date] = frozenset()
    name: str = ""


@dataclass(frozen=True, slots=True)
class TriggerPolicy:
    """One trigger's scaler metadata as plain values. Field order follows the documentation."""

    # Which pods. None: find them in Kubernetes; (): there are none.
    endpoints: tuple[str, ...] | None = None
    model: str | None = None
    metrics_path: str = "/metrics"
    # What one replica carries. None: the signal is off.
    target_waiting: float | None = 5.0
    target_in_flight: float | None = None
    target_kv_usage: float | None = 0.85
    target_queue_time: float | None = None
    target_ttft: float | None = None
    target_token_rate: float | None = None
    drain_time: float = 60.0
    signal_window: float = 60.0
    # Bounds and damping.
    min_replicas: int = 0
    max_replicas: int | None = None
    down_ratio: float = 1.0
    spare_replicas: int = 0
    # Missing data.
    hold_seconds: float = 60.0
    quorum: float = 0.5
    stall_after: float = 120.0
    active_hold: float = 300.0
    # Floors. lead_time None is ``auto``: the cold start (learned, else given), one poll, one sync.
    windows: tuple[Window, ...] = ()
    lead_time: float | None = None
    cold_start: float = 180.0

    @property
    def asks_for_load(self) -> bool:
        """Whether any signal is on; with all of them off only floors and bounds count."""
        targets = (
            self.target_waiting,
            self.target_in_flight,
            self.target_kv_usage,
            self.target_queue_time,
            self.target_ttft,
            self.target_token_rate,
        )
        return any(target is not None for target in targets)

    def lead(self, learned_cold_start: float | None = None) -> float:
        """Return how long before a window's start its floor applies, in seconds."""
        if self.lead_time is not None:
            return self.lead_time
        cold_start = self.cold_start if learned_cold_start is None else learned_cold_start
        return cold_start + POLL_SECONDS + SYNC_SECONDS
