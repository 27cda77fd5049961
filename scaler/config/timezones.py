"""IANA zone names, from the bundled data: never the node's zone, never the image's (case T04)."""

from __future__ import annotations

import difflib
import re
from functools import cache
from importlib import resources
from zoneinfo import ZoneInfo

# Abbreviations that never change their clocks, whatever the people who use them do (case T14).
_WITHOUT_DAYLIGHT_SAVING = {
    "EST": "America/New_York",
    "MST": "America/Denver",
    "HST": "Pacific/Honolulu",
}
_FIXED_OFFSET = re.compile(r"Etc/GMT[+-]\d+")


@cache
def zone_names() -> frozenset[str]:
    """Return every name the bundled zone data knows."""
    listing = resources.files("tzdata").joinpath("zones").read_text(encoding="ascii")
    return frozenset(listing.split()) - {"Factory"}


def read_timezone(text: str) -> str:
    """Return a zone's name. Raises ValueError when it is missing or unknown."""
    if not text:
        raise ValueError("timezone is required")
    if text not in zone_names():
        raise ValueError(f"unknown timezone {text[:60]!r}")
    ZoneInfo(text)  # the data itself is there
    return text


def nearest_zone(text: str) -> str | None:
    """Return the zone that a wrong name most likely meant, quoted. Takes two milliseconds."""
    close = difflib.get_close_matches(text, zone_names(), n=1, cutoff=0.8)
    return repr(close[0]) if close else None


def fixed_offset_warning(name: str) -> str | None:
    """Return a warning when a zone never observes daylight saving although its users may."""
    if name in _WITHOUT_DAYLIGHT_SAVING:
        return f"{name} has no daylight saving; did you mean {_WITHOUT_DAYLIGHT_SAVING[name]}?"
    if _FIXED_OFFSET.fullmatch(name):
        return (
            f"{name} has no daylight saving, and its sign is the reverse of the usual; "
            "name a city, such as America/New_York"
        )
    return None
