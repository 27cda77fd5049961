"""The keys of scaler metadata: one table for reading, for ``check`` and for docs/triggers.md.

Why each range is what it is stands in docs/triggers.md, beside the key's meaning.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scaler.config.values import Duration, ModelName, Number, Or, UrlPath, Whole

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scaler.config.values import Reader

MAX_REPLICAS = 10_000

_PER_REPLICA = Number(0, 1e6, above=True)
_MINUTE = 60.0
_HOUR = 3600.0


@dataclass(frozen=True, slots=True)
class Key:
    """One key with a value of its own: the field of TriggerPolicy it fills, and how it is read.

    ``default`` is what a person would have to write to get the default; "" where leaving the key
    out says something that no value says.
    """

    name: str
    field: str
    reader: Reader
    default: str


VALUE_KEYS = (
    Key("model", "model", ModelName(), ""),
    Key("metricsPath", "metrics_path", UrlPath(), "/metrics"),
    Key("targetWaiting", "target_waiting", Or("off", _PER_REPLICA), "5"),
    Key("targetInFlight", "target_in_flight", Or("off", _PER_REPLICA), "off"),
    Key(
        "targetKvUsage",
        "target_kv_usage",
        Or("off", Number(0, 1, above=True, hint="a ratio: 0.85, not 85")),
        "0.85",
    ),
    Key("targetQueueTime", "target_queue_time", Or("off", Duration(0.001, _HOUR)), "off"),
    Key("targetTtft", "target_ttft", Or("off", Duration(0.001, _HOUR)), "off"),
    Key("targetTokenRate", "target_token_rate", Or("off", Number(0, 1e9, above=True)), "off"),
    Key("drainTime", "drain_time", Duration(1, _HOUR), "60s"),
    Key("signalWindow", "signal_window", Duration(1, 15 * _MINUTE), "60s"),
    Key("minReplicas", "min_replicas", Whole(0, MAX_REPLICAS), "0"),
    Key("maxReplicas", "max_replicas", Whole(1, MAX_REPLICAS), ""),
    Key("downRatio", "down_ratio", Number(0.1, 1), "1.0"),
    Key("spareReplicas", "spare_replicas", Whole(0, MAX_REPLICAS), "0"),
    Key("holdSeconds", "hold_seconds", Duration(0, _HOUR), "60"),
    Key("quorum", "quorum", Number(0, 1, above=True, hint="a ratio: 0.5, not 50"), "0.5"),
    Key("stallAfter", "stall_after", Duration(1, 24 * _HOUR), "120s"),
    Key("activeHold", "active_hold", Duration(0, 24 * _HOUR), "300s"),
    Key("leadTime", "lead_time", Or("auto", Duration(0, 24 * _HOUR)), "auto"),
    Key("coldStart", "cold_start", Duration(1, 4 * _HOUR), "3m"),
)

# Read by modules of their own.
ENDPOINTS = "endpoints"
SCHEDULE = "schedule"
HOLIDAYS = "holidays"
EXCLUDE_DATES = "excludeDates"
CRON_KEYS = ("timezone", "start", "end", "desiredReplicas")

OWN_KEYS = frozenset(
    {key.name for key in VALUE_KEYS} | {ENDPOINTS, SCHEDULE, HOLIDAYS, EXCLUDE_DATES, *CRON_KEYS}
)

# KEDA hands the whole metadata map on: its own keys, and fields of the trigger that people indent
# too far (reference: KEDA's external scaler pages and pkg/scalers/external_scaler.go, v2.20).
KEDA_KEYS = frozenset({"scalerAddress", "enableTLS", "unsafeSsl", "caCert"})
TRIGGER_FIELDS = frozenset({"type", "name", "metricType", "useCachedMetrics", "authenticationRef"})
# KEDA replaces these by the value of an environment variable, often a secret (case H06).
FROM_ENV = "FromEnv"

_SECRET = re.compile(
    r"token|passw|secret|api.?key|bearer|credential|authori[sz]ation|private.?key|client.?key",
    re.IGNORECASE,
)


def passes(name: str) -> bool:
    """Tell whether a key that is not ours belongs here all the same, without a word."""
    return name in KEDA_KEYS or name in TRIGGER_FIELDS or name.endswith(FROM_ENV)


def looks_secret(name: str) -> bool:
    """Tell whether a key's name promises a secret."""
    return _SECRET.search(name) is not None


def nearest(name: str, known: Iterable[str]) -> str | None:
    """Return the known key that ``name`` most likely meant, case aside."""
    by_lower = {key.lower(): key for key in known}
    close = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=0.7)
    return by_lower[close[0]] if close else None


def printable(name: str, limit: int = 60) -> str:
    """Return a key that a stranger chose as something a log line can carry."""
    shown = name if name.isprintable() else ascii(name)[1:-1]
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"
