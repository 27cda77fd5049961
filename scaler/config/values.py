"""Readers of single values: text in, a checked plain value out.

Each reader knows in words what it allows, so an error message, ``check`` and the documentation
say the same. A reader raises ValueError with a message that begins with "must be".
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Protocol

from scaler.config.durations import format_duration, parse_duration

_NUMBER = re.compile(r"[+-]?(\d{1,18}(\.\d*)?|\.\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_WHOLE = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_MAX_MODEL_NAME = 512
_MAX_PATH = 256


class Reader(Protocol):
    """Reads one value."""

    @property
    def allowed(self) -> str:
        """What may be written, in words."""
        ...

    def __call__(self, text: str) -> Any:
        """Return the value. Raises ValueError with what is allowed."""
        ...


@dataclass(frozen=True, slots=True)
class Number:
    """A finite number in a range. ``above``: ``low`` itself is excluded."""

    low: float
    high: float
    above: bool = False
    hint: str = ""

    @property
    def allowed(self) -> str:
        """The range in words."""
        low = f"above {self.low:g}" if self.above else f"from {self.low:g}"
        high = f"{self.high:,.0f}" if self.high > 1 else f"{self.high:g}"
        hint = f" ({self.hint})" if self.hint else ""
        return f"a number {low}, at most {high}{hint}"

    def __call__(self, text: str) -> float:
        """Return the number."""
        value = float(text) if _NUMBER.fullmatch(text) else math.nan
        if not self.low <= value <= self.high or (self.above and value == self.low):
            raise ValueError(f"must be {self.allowed}")
        return value


@dataclass(frozen=True, slots=True)
class Whole:
    """A whole number in a range."""

    low: int
    high: int

    @property
    def allowed(self) -> str:
        """The range in words."""
        return f"a whole number from {self.low} to {self.high}"

    def __call__(self, text: str) -> int:
        """Return the number."""
        value = int(text) if _WHOLE.fullmatch(text) else self.low - 1
        if not self.low <= value <= self.high:
            raise ValueError(f"must be {self.allowed}")
        return value


@dataclass(frozen=True, slots=True)
class Duration:
    """A duration in a range, in seconds."""

    low: float
    high: float

    @property
    def allowed(self) -> str:
        """The range in words."""
        return f"a duration from {format_duration(self.low)} to {format_duration(self.high)}"

    def __call__(self, text: str) -> float:
        """Return seconds."""
        try:
            value = parse_duration(text)
        except ValueError:
            value = math.nan
        if not self.low <= value <= self.high:
            raise ValueError(f"must be {self.allowed}, such as 90s, 4m, 1h30m or plain seconds")
        return value


@dataclass(frozen=True, slots=True)
class Or:
    """Either one word, which reads as None, or what ``reader`` reads."""

    word: str
    reader: Reader

    @property
    def allowed(self) -> str:
        """Both in words."""
        return f"{self.reader.allowed}, or {self.word}"

    def __call__(self, text: str) -> Any:
        """Return None for the word, else the reader's value."""
        if text == self.word:
            return None
        try:
            return self.reader(text)
        except ValueError as error:
            raise ValueError(f"{error}, or {self.word}") from None


@dataclass(frozen=True, slots=True)
class ModelName:
    """A served model name: any printable text."""

    allowed: str = "the served model name"

    def __call__(self, text: str) -> str:
        """Return the name."""
        if not text or not text.isprintable() or len(text) > _MAX_MODEL_NAME:
            raise ValueError(
                f"must be {self.allowed}, printable, 1 to {_MAX_MODEL_NAME} characters"
            )
        return text


@dataclass(frozen=True, slots=True)
class UrlPath:
    """An absolute path of a URL, without query or fragment."""

    allowed: str = "a path such as /metrics, without query, fragment, spaces or '..'"

    def __call__(self, text: str) -> str:
        """Return the path."""
        if not is_url_path(text) or not text.startswith("/") or text.startswith("//"):
            raise ValueError(f"must be {self.allowed}")
        return text


def is_url_path(text: str) -> bool:
    """Tell whether ``text`` can stand as the path of a URL as it is."""
    plain = text.isascii() and text.isprintable() and len(text) <= _MAX_PATH
    return plain and not set(text) & set(' ?#\\"<>') and ".." not in text.split("/")
