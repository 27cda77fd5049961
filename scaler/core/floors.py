"""Floors: the schedule's, with its lead and its release, and the forecast's.

A floor joins by maximum and can only add. A window whose spike does not come lets go, so that a
schedule nobody removed does not hold GPUs for a meeting nobody holds.
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

from scaler.core.model import Floors
from scaler.core.schedule import describe, evaluate
from scaler.core.state import SpikeWatch

if TYPE_CHECKING:
    from scaler.core.model import Now, Snapshot
    from scaler.core.policy import TriggerPolicy
    from scaler.core.schedule import OpenWindow, ScheduleView
    from scaler.core.state import ScalerState

# A spike has not come while demand is under this share of the floor, this long after the start.
NO_SHOW_SHARE = 0.2
NO_SHOW_SECONDS = 15 * 60.0


def read_floors(
    snapshot: Snapshot, state: ScalerState, policy: TriggerPolicy, demand: float | None, now: Now
) -> tuple[Floors, ScheduleView | None, dict[str, SpikeWatch]]:
    """Return the floors at ``now``, the schedule's view to keep, and what is known of the spikes.

    ``demand`` is the composite in replicas, None while it is not known: an outage is no proof that
    the spike stayed away.
    """
    if not policy.windows:
        return Floors(forecast=snapshot.forecast_floor), None, {}
    lead = policy.lead(snapshot.learned_cold_start)
    view = state.schedule
    # A view is good until something opens or closes, whichever way the wall clock steps (T15).
    if view is None or state.schedule_lead != lead or not view.holds_at(now.wall):
        view = evaluate(policy.windows, lead, now.wall)
    spikes = {
        opening(window): _watch(window, state.spikes.get(opening(window)), demand, now)
        for window in view.open
    }
    # The highest first: where its spike stayed away, the next lower window may still be wanted.
    wanted = [w for w in view.open if not _released(w, spikes[opening(w)], now)]
    shown = (wanted or view.open)[:1]
    floors = Floors(
        schedule=wanted[0].floor if wanted else 0,
        forecast=snapshot.forecast_floor,
        window=describe(shown[0].window) if shown else "",
        released=len(wanted) < len(view.open),
        next_opening=view.next_opening,
    )
    return floors, view, spikes


def opening(window: OpenWindow) -> str:
    """Return the name of one opening of one window, the same in every process."""
    return f"{window.opened_at.isoformat()} {window.floor} at {describe(window.window)}"


def _watch(
    window: OpenWindow, spike: SpikeWatch | None, demand: float | None, now: Now
) -> SpikeWatch:
    if spike is None or window.opened_at > now.wall:  # new, or open only by its lead
        spike = SpikeWatch()
    if spike.came or demand is None or window.opened_at > now.wall:
        return SpikeWatch(came=spike.came)
    if demand >= NO_SHOW_SHARE * window.floor:
        return SpikeWatch(came=True)
    return spike if spike.quiet_since is not None else SpikeWatch(quiet_since=now.monotonic)


def _released(window: OpenWindow, spike: SpikeWatch, now: Now) -> bool:
    if spike.quiet_since is None:
        return False
    quiet = now.monotonic - spike.quiet_since >= NO_SHOW_SECONDS
    return quiet and now.wall - window.opened_at >= timedelta(seconds=NO_SHOW_SECONDS)
