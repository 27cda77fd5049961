"""The exception tree.

::

    ScalerError
    ├── ConfigError            something a person wrote is wrong; carries every problem at once
    │   ├── InvalidTrigger     scaler metadata of a ScaledObject
    │   └── InvalidSettings    flags or environment of this process
    ├── EndpointNotAllowed     metadata names a host that the operator did not allow
    └── TooManyTriggers        the bound on registered triggers is reached

A scrape that fails is not an exception: it is a :class:`scaler.core.model.ScrapeFailure`.
A decision that cannot be made is not one either: it is an invalid ``Decision``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong: which key, what it says, and what is allowed.

    ``value`` is None where it must not be echoed (unknown keys, ``…FromEnv`` keys).
    """

    key: str
    value: str | None
    message: str

    def __str__(self) -> str:
        shown = "" if self.value is None else f"={_short(self.value)!r}"
        return f"{self.key}{shown}: {self.message}"


def _short(value: str, limit: int = 60) -> str:
    return value if len(value) <= limit else value[: limit - 1] + "…"


class ScalerError(Exception):
    """Base of everything this package raises on purpose."""


class ConfigError(ScalerError):
    """Something a person wrote is wrong. ``problems`` holds all of it, never only the first."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(str(problem) for problem in self.problems))


class InvalidTrigger(ConfigError):
    """The scaler metadata of a trigger does not describe a policy."""


class InvalidSettings(ConfigError):
    """A flag or an environment variable of this process is wrong."""


class EndpointNotAllowed(ScalerError):
    """A trigger names hosts that ``--allow-endpoints`` does not cover."""


class TooManyTriggers(ScalerError):
    """The scaler already watches as many triggers as it is willing to."""
