"""What reading metadata brings to light, collected so that a person learns all of it at once."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scaler.config.keys import looks_secret, nearest, printable
from scaler.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

# Finding what is nearest takes a millisecond or two; a text may hold thousands of mistakes.
MAX_HINTS = 10


@dataclass(slots=True)
class Findings:
    """Problems stop the trigger; warnings do not; unknown keys are warnings to a running scaler.

    ``check`` makes errors of the unknown ones: while someone edits, a typo is a mistake; after a
    rollback of the scaler, a newer key must not break scaling.
    """

    problems: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    unknown: list[Problem] = field(default_factory=list)
    hints_left: int = MAX_HINTS

    def refuse(self, key: str, value: str | None, message: str) -> None:
        """Note something that makes the metadata unusable. ``value`` None: not to be shown."""
        self.problems.append(Problem(key, value, message))

    def warn(self, key: str, value: str | None, message: str) -> None:
        """Note something that is probably not what was meant."""
        self.warnings.append(Problem(key, value, message))

    def not_known(self, name: str, known: Iterable[str], prefix: str = "") -> None:
        """Note a key nobody reads; its value is never shown (case H06)."""
        key = prefix + printable(name)
        if looks_secret(name):
            message = (
                "looks like a secret, and is not used: metadata is no place for one; "
                "mount it into the scaler"
            )
            self.warn(key, None, message)
            return
        hint = self.hint(lambda: nearest(name, known))
        self.unknown.append(Problem(key, None, f"is not a key of this scaler{hint}"))

    def hint(self, find: Callable[[], str | None]) -> str:
        """Return what was meant, in words; nothing where nobody knows, or after MAX_HINTS."""
        self.hints_left -= 1
        close = find() if self.hints_left >= 0 else None
        return f"; did you mean {close}?" if close else ""
