"""What ``/decisions`` and the page are made of: every trigger at one instant, and as JSON.

The JSON follows the fields of :class:`~scaler.core.model.Decision`, so it holds everything the
decision does. Its shape is documented in ``docs/metrics.md``.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import scaler
from scaler.core.model import Decision, Quantiles
from scaler.exporter.words import headline, why
from scaler.store import TrailPoint

if TYPE_CHECKING:
    from scaler.core.model import Now
    from scaler.core.policy import TriggerPolicy
    from scaler.store import Store, Trigger, TriggerKey

SHAPE = 1  # raised when a field is renamed or goes away, not when one is added


@dataclass(frozen=True, slots=True)
class TriggerView:
    """One trigger, copied so that it can be shown from another thread."""

    key: TriggerKey
    policy: TriggerPolicy
    warnings: tuple[str, ...]
    decision: Decision | None
    refusal: str | None
    trail: tuple[TrailPoint, ...]


@dataclass(frozen=True, slots=True)
class FleetOfTriggers:
    """All triggers that were asked for, at ``now``."""

    now: Now
    triggers: tuple[TriggerView, ...]


def look(store: Store, now: Now, namespace: str = "", name: str = "") -> FleetOfTriggers:
    """Copy the triggers of ``store``; an empty ``namespace`` or ``name`` stands for any."""
    return FleetOfTriggers(
        now,
        tuple(
            TriggerView(t.key, t.policy, t.warnings, t.decision, t.refusal, _trail(t))
            for t in store.triggers()
            if namespace in {"", t.key.namespace} and name in {"", t.key.name}
        ),
    )


def _trail(trigger: Trigger) -> tuple[TrailPoint, ...]:
    """Return the trail up to the newest decision, which the store may not have kept."""
    trail = tuple(trigger.trail)
    if trigger.decision is None:
        return trail
    newest = TrailPoint.of(trigger.decision)
    return trail if trail and newest.at <= trail[-1].at else (*trail, newest)


def age(decision: Decision, now: Now) -> float:
    """Return how long ago the decision was made, in seconds; never negative."""
    return max(0.0, now.monotonic - decision.at.monotonic)


def to_json(seen: FleetOfTriggers) -> bytes:
    """Return the triggers as JSON. What is not known, and an infinite bound, is null."""
    head = {"shape": SHAPE, "version": scaler.__version__, "at": seen.now.wall.isoformat()}
    # One trigger at a time: the encoder holds the interpreter lock while it works.
    triggers = ",".join(_encode(_trigger(view, seen.now)) for view in seen.triggers)
    return f'{_encode(head)[:-1]}, "triggers": [{triggers}]}}'.encode()


def _encode(body: dict[str, object]) -> str:
    return json.dumps(body, allow_nan=False, ensure_ascii=True)


def headline_of(view: TriggerView) -> str:
    """Return where the trigger stands, in one sentence without a full stop."""
    if view.refusal is not None:
        return f"Refused: {view.refusal}"
    if view.decision is None:
        return "Waiting for the first look at the pods"
    return headline(view.decision)


def _trigger(view: TriggerView, now: Now) -> dict[str, object]:
    decision = view.decision
    return {
        "namespace": view.key.namespace,
        "name": view.key.name,
        "trigger": view.key.id,
        "warnings": list(view.warnings),
        "refusal": view.refusal,
        "headline": headline_of(view),
        "why": [] if decision is None else why(decision, view.policy),
        "age_seconds": None if decision is None else age(decision, now),
        "min_replicas": view.policy.min_replicas,
        "max_replicas": view.policy.max_replicas,
        "decision": None if decision is None else _decision(decision),
    }


def _decision(decision: Decision) -> dict[str, object]:
    plain: dict[str, object] = _plain(decision)
    plain["at"] = decision.at.wall.isoformat()  # the monotonic half means nothing outside
    if not decision.valid:
        plain["desired"] = None
    return plain


def _plain(value: Any) -> Any:  # noqa: PLR0911 - one line a kind
    """Turn frozen types into what JSON knows; enum members are strings already."""
    match value:
        case Quantiles():
            quantiles = {q: _bucket(getattr(value, q)) for q in ("p50", "p95", "p99")}
            return {"count": _plain(value.count), "mean": _plain(value.mean), **quantiles}
        case float():
            return value if math.isfinite(value) else None
        case datetime():
            return value.isoformat()
        case Mapping():
            return {str(key): _plain(item) for key, item in value.items()}
        case frozenset():
            return sorted(value)
        case tuple() | list():
            return [_plain(item) for item in value]
        case _ if dataclasses.is_dataclass(value):
            return {
                field.name: _plain(getattr(value, field.name))
                for field in dataclasses.fields(value)
            }
        case _:
            return value


def _bucket(quantile: tuple[float, float, float]) -> dict[str, float | None]:
    estimate, lower, upper = quantile
    return {"estimate": _plain(estimate), "lower": _plain(lower), "upper": _plain(upper)}
