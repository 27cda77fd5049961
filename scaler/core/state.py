"""What a decision must remember: passed in, returned new, never edited."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scaler.core.window import SLOTS, FleetWindow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scaler.core.model import ModelSample
    from scaler.core.policy import TriggerPolicy
    from scaler.core.schedule import ScheduleView


@dataclass(frozen=True, slots=True)
class PodMemory:
    """What is remembered of one pod between two decisions. Instants are monotonic seconds.

    ``sample`` is the newest good one of the trigger's model, taken at ``sampled_at``; ``moved_at``
    is when its counters last moved or it last had nothing to do.
    """

    first_seen: float
    sample: ModelSample | None = None
    sampled_at: float | None = None
    moved_at: float | None = None
    process_start: float | None = None


@dataclass(frozen=True, slots=True)
class SpikeWatch:
    """Whether the spike of an open window has come.

    ``quiet_since`` (monotonic) is when demand was first seen too low after the window's start, None
    while it is not low or not known.
    """

    came: bool = False
    quiet_since: float | None = None


@dataclass(frozen=True, slots=True)
class ScalerState:
    """The memory of one trigger.

    ``desired`` is the newest valid answer that rested on data, and ``sighted_at`` (monotonic) when
    a quorum was last seen; both None before the first. ``busy_at`` is the last sign of activity,
    ``waiting_since`` when the queue last rose from empty, ``tokens_per_request`` the last known
    mean, ``peak_running`` the most one pod was seen to run while requests waited there.
    """

    window: FleetWindow
    pods: Mapping[str, PodMemory] = field(default_factory=dict)
    desired: int | None = None
    sighted_at: float | None = None
    active: bool | None = None
    busy_at: float | None = None
    waiting_since: float | None = None
    tokens_per_request: float | None = None
    peak_running: float | None = None
    model: str | None = None
    schedule: ScheduleView | None = None
    schedule_lead: float | None = None  # the lead that ``schedule`` was evaluated with, seconds
    # By the window's opening, in words: see ``floors.opening``.
    spikes: Mapping[str, SpikeWatch] = field(default_factory=dict)


def initial_state(policy: TriggerPolicy) -> ScalerState:
    """Return the memory of a trigger that has not been decided on yet."""
    return ScalerState(window=FleetWindow(granularity=policy.signal_window / SLOTS))
