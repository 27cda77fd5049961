"""The file in ``--state-dir``: each trigger's memory, so that a restart forgets little.

A restart under load must not look like an idle fleet: the file holds the last answers, when the
fleet was last busy and whether today's spike has come. It is written whole and renamed into place;
one that cannot be read is set aside with a log line, never a crash. It holds no metadata.
"""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Protocol

from scaler.core.memory import KEPT_FOR, dump, load
from scaler.core.state import initial_state
from scaler.errors import InvalidSettings, Problem

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from scaler.core.model import Now
    from scaler.core.policy import TriggerPolicy
    from scaler.core.state import ScalerState

FILE_NAME = "triggers.json"
VERSION = 1
MOST_BYTES = 16 * 1024 * 1024


class KeepsakeLog(Protocol):
    """Told when the file cannot be used."""

    def keepsake_trouble(self, path: str, text: str) -> None:
        """Note what is wrong with the file and what was done about it."""
        ...


class Keepsake:
    """Memories by trigger, read once at the start and written from time to time."""

    def __init__(self, directory: Path, log: KeepsakeLog) -> None:
        self._path = directory / FILE_NAME
        self._log = log
        self._kept: dict[str, Any] = {}
        self._failing = False

    def read(self) -> None:
        """Read the file. Raises InvalidSettings when the directory cannot be used at all."""
        directory = self._path.parent
        try:
            directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InvalidSettings(
                [Problem("--state-dir", str(directory), f"must be a directory: {error.strerror}")]
            ) from error
        if not os.access(directory, os.W_OK | os.X_OK):
            raise InvalidSettings(
                [Problem("--state-dir", str(directory), "must be writable by this process")]
            )
        try:
            self._kept = _parse(self._path)
        except FileNotFoundError:
            return
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            self._set_aside(error)

    def recall(self, key: str, policy: TriggerPolicy, now: Now) -> ScalerState:
        """Return the memory of a trigger; an empty one if none is kept or it cannot be read."""
        kept = self._kept.get(key)
        if kept is None:
            return initial_state(policy)
        try:
            state = load(kept, policy, now)
            return state if _is_young(kept, now) else initial_state(policy)
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            self._log.keepsake_trouble(str(self._path), f"entry of {key} ignored: {error!r}")
            return initial_state(policy)

    def write(self, states: Mapping[str, ScalerState], now: Now) -> None:
        """Replace the file. A full disk costs the memory, not the service: it is told once.

        Triggers that KEDA has not asked about yet keep what the file said of them.
        """
        old = {key: kept for key, kept in self._kept.items() if _is_young(kept, now)}
        self._kept = old | {key: dump(state, now) for key, state in states.items()}
        body = json.dumps({"version": VERSION, "triggers": self._kept})
        fresh = self._path.with_suffix(".tmp")
        try:
            with fresh.open("w", encoding="utf-8") as file:
                file.write(body)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._path)
        except OSError as error:
            if not self._failing:
                self._log.keepsake_trouble(str(self._path), f"not written: {error.strerror}")
            self._failing = True
        else:
            self._failing = False

    def _set_aside(self, error: Exception) -> None:
        aside = self._path.with_suffix(".broken")
        try:
            self._path.replace(aside)
            what = f"set aside as {aside.name}"
        except OSError as second:
            what = f"left in place: {second.strerror}"
        self._log.keepsake_trouble(str(self._path), f"cannot be read ({error!r}), {what}")


def _is_young(kept: Any, now: Now) -> bool:
    """Whether a memory is of today; one that cannot be read is of no day."""
    try:
        return now.wall.timestamp() - float(kept["at"]) <= KEPT_FOR.total_seconds()
    except (ValueError, KeyError, TypeError):
        return False


def _parse(path: Path) -> dict[str, Any]:
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"larger than {MOST_BYTES} bytes")
    content = json.loads(path.read_text(encoding="utf-8"))
    if content["version"] != VERSION:
        raise ValueError(f"version {content['version']!r} is not {VERSION}")
    triggers = content["triggers"]
    if not isinstance(triggers, dict):
        raise TypeError("triggers must be an object")
    return triggers
