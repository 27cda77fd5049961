"""The only reader of time.

Everything below takes ``now`` as an argument; everything above asks a :class:`Clock`.
"""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Protocol

from scaler.core.model import Now


class Clock(Protocol):
    """Gives the present instant. Tests pass one whose hands they move."""

    def now(self) -> Now:
        """Return wall and monotonic time, read together."""
        ...


class SystemClock:
    """The machine's clocks."""

    def now(self) -> Now:
        """Return aware UTC wall time and monotonic seconds."""
        return Now(wall=datetime.now(tz=UTC), monotonic=time.monotonic())
