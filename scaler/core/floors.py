"""Floors: the schedule's, with its lead and its release, and the forecast's.

A floor joins by maximum and can only add. A window whose spike does not come lets go, so that a
schedule nobody removed does not hold GPUs for a meeting nobody holds.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from scaler.core.model import Floors
from scaler.core.schedule import evaluate
from scaler.core.state import SpikeWatch

if TYPE_CHECKING:
    from scaler.core.model import Now, Snapshot
    from scaler.core.policy import TriggerPolicy
    from scaler.core.schedule import ScheduleView
    from scaler.core.state import ScalerState

# A spike has not come while demand is under this share of the floor, this long after the start.
NO_SHOW_SHARE = 0.2
NO_SHOW_SECONDS = 15 * 60.0


def read_floors(
    snapshot: Snapshot,
    state: ScalerState,
    policy: TriggerPolicy,
    demand: float | None,
    now: Now,
) -> tuple[Floors, ScheduleView | None, SpikeWatch | None]:
    """Return the floors at ``now``, the schedule's view to keep, and what is known of the spike.

    ``demand`` is the composite in replicas, None while it is not known: an outage is no proof that
    the spike stayed away.
    """
    if not policy.windows:
        return Floors(forecast=snapshot.forecast_floor), None, None
    lead = policy.lead(snapshot.learned_cold_start)
    view = state.schedule
    # A view is good until something opens or closes, whichever way the wall clock steps (T15).
    if view is None or state.schedule_lead != lead or not view.holds_at(now.wall):
        view = evaluate(policy.windows, lead, now.wall)
    spike = _watch(view, state.spike, demand, now)
    released = spike is not None and _released(spike, now)
    floors = Floors(
        schedule=0 if released else view.floor,
        forecast=snapshot.forecast_floor,
        window=view.window,
        released=released,
        next_opening=view.next_opening,
    )
    return floors, view, spike


def _watch(
    view: ScheduleView, spike: SpikeWatch | None, demand: float | None, now: Now
) -> SpikeWatch | None:
    if view.opened_at is None or view.opened_at > now.wall:
        return None  # closed, or open only by its lead
    if spike is None or spike.opened_at != view.opened_at:
        spike = SpikeWatch(view.opened_at)
    if spike.came or demand is None:
        return replace(spike, quiet_since=None)
    if demand >= NO_SHOW_SHARE * view.floor:
        return replace(spike, came=True, quiet_since=None)
    return spike if spike.quiet_since is not None else replace(spike, quiet_since=now.monotonic)


def _released(spike: SpikeWatch, now: Now) -> bool:
    if spike.quiet_since is None:
        return False
    quiet = now.monotonic - spike.quiet_since >= NO_SHOW_SECONDS
    return quiet and now.wall - spike.opened_at >= timedelta(seconds=NO_SHOW_SECONDS)
