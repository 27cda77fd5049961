"""Durations as people write them: ``90s``, ``4m``, ``1h30m``, ``250ms``, or plain seconds."""

from __future__ import annotations

import re

_NUMBER = r"\d{1,9}(?:\.\d{1,9})?"
_PLAIN = re.compile(_NUMBER)
_PARTS = re.compile(
    rf"(?:(?P<h>{_NUMBER})h)?(?:(?P<m>{_NUMBER})m(?!s))?(?:(?P<s>{_NUMBER})s)?(?:(?P<ms>{_NUMBER})ms)?",
    re.ASCII,
)
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001}


def parse_duration(text: str) -> float:
    """Return seconds. Raises ValueError unless ``text`` is a duration of zero or more."""
    text = text.strip()
    if text.isascii() and _PLAIN.fullmatch(text):
        return float(text)
    match = _PARTS.fullmatch(text)
    if match is None or not text:
        raise ValueError("must be a duration such as 90s, 4m, 1h30m, 250ms or plain seconds")
    return sum(
        float(number) * _SECONDS[unit] for unit, number in match.groupdict().items() if number
    )


def format_duration(seconds: float) -> str:
    """Return seconds as the shortest duration that says the same: 5400 is ``1h30m``."""
    milliseconds = round(seconds * 1000)
    if milliseconds % 1000:
        return f"{milliseconds}ms" if milliseconds < 1000 else f"{milliseconds / 1000}s"
    hours, rest = divmod(milliseconds // 1000, 3600)
    minutes, left = divmod(rest, 60)
    parts = ((hours, "h"), (minutes, "m"), (left, "s"))
    return "".join(f"{number}{unit}" for number, unit in parts if number) or "0s"
