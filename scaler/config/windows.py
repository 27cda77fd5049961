"""Schedules as people write them -> checked windows.

Two forms: KEDA's own four cron keys (one window), or ``schedule``, a YAML or JSON list of windows
with the same keys and, optionally, a name, holidays and dates of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scaler.config.bounded_yaml import (
    BadYaml,
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    compose,
    entries,
)
from scaler.config.calendars import Holidays, excluded, read_dates, read_holidays
from scaler.config.keys import CRON_KEYS, EXCLUDE_DATES, HOLIDAYS, MAX_REPLICAS, SCHEDULE
from scaler.config.timezones import fixed_offset_warning, nearest_zone, read_timezone
from scaler.config.values import Whole
from scaler.core.cron import parse_cron
from scaler.core.policy import Window

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import date

    from scaler.config.findings import Findings
    from scaler.core.cron import Cron

MAX_WINDOWS = 100
MAX_NAME = 100
WINDOW_KEYS = (*CRON_KEYS, "name", HOLIDAYS, EXCLUDE_DATES)

_MAX_DEPTH = 3  # the list, a window, a list of dates
_MAX_NODES = 4_000
_MAX_CHARACTERS = 32 * 1024
_REPLICAS = Whole(1, MAX_REPLICAS)
_EXAMPLE = (
    f"a YAML or JSON list of at most {MAX_WINDOWS} windows, "
    "each with timezone, start, end and desiredReplicas"
)


@dataclass(frozen=True, slots=True)
class _Closed:
    """When windows do not open: what the trigger says, unless a window says otherwise."""

    holidays: Holidays | None = None
    dates: frozenset[date] = frozenset()


def read_windows(metadata: Mapping[str, str], findings: Findings) -> tuple[Window, ...]:
    """Return the windows that trigger metadata asks for."""
    trigger_wide = _read_closed(metadata, "", _Closed(), findings)
    cron_keys = [key for key in CRON_KEYS if key in metadata]
    written = []
    if SCHEDULE in metadata:
        if cron_keys:
            message = f"must not stand beside {', '.join(cron_keys)}: add that window to the list"
            findings.refuse(SCHEDULE, None, message)
        written = _read_list(metadata[SCHEDULE], findings)
    elif cron_keys:
        written = [("", {key: metadata[key] for key in cron_keys})]
    found = (_read_window(raw, prefix, trigger_wide, findings) for prefix, raw in written)
    return tuple(window for window in found if window is not None)


# --- the list -------------------------------------------------------------------------------------


def _read_list(text: str, findings: Findings) -> list[tuple[str, dict[str, str]]]:
    """Return each window's texts by key, with the prefix that names the window in messages."""
    if len(text) > _MAX_CHARACTERS:
        findings.refuse(SCHEDULE, None, f"must be at most {_MAX_CHARACTERS} characters")
        return []
    try:
        documents = compose(text, max_depth=_MAX_DEPTH, max_nodes=_MAX_NODES, max_items=MAX_WINDOWS)
    except BadYaml as error:
        findings.refuse(SCHEDULE, None, f"{error} (must be {_EXAMPLE})")
        return []
    if len(documents) != 1 or not isinstance(documents[0], SequenceNode):
        findings.refuse(SCHEDULE, None, f"must be {_EXAMPLE}")
        return []
    written = []
    for index, node in enumerate(documents[0].value):
        prefix = f"{SCHEDULE}[{index}]."
        if isinstance(node, MappingNode):
            written.append((prefix, _read_entries(node, prefix, findings)))
        else:
            findings.refuse(prefix.rstrip("."), None, f"must be a window: {', '.join(WINDOW_KEYS)}")
    return written


def _read_entries(node: MappingNode, prefix: str, findings: Findings) -> dict[str, str]:
    raw: dict[str, str] = {}
    for key, value in entries(node):
        name = key.value
        if name not in WINDOW_KEYS:
            findings.not_known(name, WINDOW_KEYS, prefix)
        elif name in raw:
            findings.refuse(prefix + name, None, "is given twice")
        else:
            raw[name] = _text(value, prefix + name, findings)
    return raw


def _text(value: Node, key: str, findings: Findings) -> str:
    """Return a scalar's text; a list of dates may be written as one."""
    if isinstance(value, ScalarNode):
        return str(value.value)
    items = value.value if isinstance(value, SequenceNode) else []
    if key.endswith(EXCLUDE_DATES) and all(isinstance(item, ScalarNode) for item in items):
        return ",".join(item.value for item in items)
    findings.refuse(key, None, "must be a single value")
    return ""


# --- one window -----------------------------------------------------------------------------------


def _read_window(
    raw: Mapping[str, str], prefix: str, trigger_wide: _Closed, findings: Findings
) -> Window | None:
    before = len(findings.problems)
    timezone = _read_zone(raw, prefix, findings)
    crons = [_read_cron(raw, key, prefix, findings) for key in ("start", "end")]
    replicas = _read_replicas(raw, prefix, findings)
    closed = _read_closed(raw, prefix, trigger_wide, findings) if prefix else trigger_wide
    name = _read_name(raw, prefix, findings)
    start, end = crons
    if start is not None and end is not None:
        _check_span(start, end, prefix, findings)
    if len(findings.problems) > before:
        return None
    return Window(
        timezone=timezone,
        start=_plain(raw["start"]),
        end=_plain(raw["end"]),
        desired_replicas=replicas,
        excluded=excluded(closed.holidays, closed.dates),
        name=name,
    )


def _plain(expression: str) -> str:
    return " ".join(expression.split())


def _read_zone(raw: Mapping[str, str], prefix: str, findings: Findings) -> str:
    text = raw.get("timezone", "").strip()
    try:
        name = read_timezone(text)
    except ValueError as error:
        hint = findings.hint(lambda: nearest_zone(text)) if text else ""
        findings.refuse(f"{prefix}timezone", text or None, f"{error}{hint}")
        return ""
    warning = fixed_offset_warning(name)
    if warning:
        findings.warn(f"{prefix}timezone", name, warning)
    return name


def _read_cron(raw: Mapping[str, str], key: str, prefix: str, findings: Findings) -> Cron | None:
    text = raw.get(key)
    if text is None:
        findings.refuse(
            f"{prefix}{key}", None, "is required: a cron expression such as 0 9 * * 1-5"
        )
        return None
    try:
        return parse_cron(_plain(text))
    except ValueError as error:
        findings.refuse(f"{prefix}{key}", text, str(error))
        return None


def _read_replicas(raw: Mapping[str, str], prefix: str, findings: Findings) -> int:
    key = f"{prefix}desiredReplicas"
    text = raw.get("desiredReplicas")
    if text is None:
        findings.refuse(key, None, f"is required: {_REPLICAS.allowed}")
        return 0
    try:
        return _REPLICAS(text.strip())
    except ValueError as error:
        findings.refuse(key, text, str(error))
        return 0


def _read_name(raw: Mapping[str, str], prefix: str, findings: Findings) -> str:
    name = raw.get("name", "").strip()
    if len(name) > MAX_NAME or not name.isprintable():
        findings.refuse(f"{prefix}name", None, f"must be printable, at most {MAX_NAME} characters")
    return name


def _read_closed(
    raw: Mapping[str, str], prefix: str, default: _Closed, findings: Findings
) -> _Closed:
    calendar, dates = default.holidays, default.dates
    if HOLIDAYS in raw:
        try:
            calendar = read_holidays(raw[HOLIDAYS].strip())
        except ValueError as error:
            findings.refuse(f"{prefix}{HOLIDAYS}", raw[HOLIDAYS], str(error))
    if EXCLUDE_DATES in raw:
        try:
            dates = read_dates(raw[EXCLUDE_DATES])
        except ValueError as error:
            findings.refuse(f"{prefix}{EXCLUDE_DATES}", None, str(error))
    return _Closed(calendar, dates)


def _check_span(start: Cron, end: Cron, prefix: str, findings: Findings) -> None:
    key = f"{prefix}end"
    if start == end:
        findings.refuse(key, None, "start and end are identical")
    elif start.within(end):
        findings.refuse(key, None, "the window never opens: every start is an end too")
