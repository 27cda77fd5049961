"""What of a trigger's memory survives a restart, as plain values.

Monotonic instants mean nothing in another process: they are written as ages and read back as
instants of the new clock. Windows and samples are left out; counters of pods are read anew.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from math import isfinite
from typing import TYPE_CHECKING, Any

from scaler.core.state import SpikeWatch, initial_state

if TYPE_CHECKING:
    from collections.abc import Mapping

    from scaler.core.model import Now
    from scaler.core.policy import TriggerPolicy
    from scaler.core.state import ScalerState


KEPT_FOR = timedelta(hours=24)  # older memories describe another day


def dump(state: ScalerState, now: Now) -> dict[str, Any]:
    """Return what is worth keeping of ``state``, as JSON values."""
    return {
        "at": now.wall.timestamp(),
        "desired": state.desired,
        "active": state.active,
        "sighted_ago": _ago(state.sighted_at, now),
        "busy_ago": _ago(state.busy_at, now),
        "tokens_per_request": state.tokens_per_request,
        "peak_running": state.peak_running,
        "spikes_came": [opening for opening, spike in state.spikes.items() if spike.came],
    }


def load(kept: Mapping[str, Any], policy: TriggerPolicy, now: Now) -> ScalerState:
    """Return the memory that :func:`dump` kept, aged by the time that has passed since.

    Raises ValueError, KeyError or TypeError where ``kept`` is not what :func:`dump` wrote.
    """
    # A wall clock that was set back meanwhile must not make the past lie ahead.
    since = max(0.0, now.wall.timestamp() - (_number(kept["at"]) or 0.0))
    return replace(
        initial_state(policy),
        desired=None if kept["desired"] is None else int(kept["desired"]),
        active=None if kept["active"] is None else bool(kept["active"]),
        sighted_at=_instant(kept["sighted_ago"], since, now),
        busy_at=_instant(kept["busy_ago"], since, now),
        tokens_per_request=_number(kept["tokens_per_request"]),
        peak_running=_number(kept["peak_running"]),
        spikes={str(opening): SpikeWatch(came=True) for opening in list(kept["spikes_came"])},
    )


def _ago(instant: float | None, now: Now) -> float | None:
    return None if instant is None else now.monotonic - instant


def _instant(ago: Any, since: float, now: Now) -> float | None:
    seconds = _number(ago)
    return None if seconds is None else now.monotonic - max(0.0, seconds) - since


def _number(value: Any) -> float | None:
    if value is None:
        return None
    number = float(value)
    if not isfinite(number):
        raise ValueError(f"{number} is not a number to keep")
    return number
