"""What ``check`` has to say about a line of a manifest."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Level(IntEnum):
    """How much a remark matters."""

    NOTE = 0
    WARNING = 1
    ERROR = 2


@dataclass(frozen=True, slots=True, order=True)
class Remark:
    """One remark. ``value`` is "" where there is none to show."""

    line: int
    level: Level
    key: str
    value: str
    message: str

    def __str__(self) -> str:
        kind = "" if self.level is Level.ERROR else f"{self.level.name.lower()}: "
        return kind + ": ".join(
            part for part in (self.key, _shown(self.value), self.message) if part
        )


def _shown(value: str, limit: int = 60) -> str:
    shown = value if value.isprintable() else repr(value)
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
