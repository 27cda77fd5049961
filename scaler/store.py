"""Registered triggers and the newest decision of each.

KEDA has no call that says "this ScaledObject is gone": a trigger is registered when KEDA first asks
and forgotten when it has not asked for ``ttl`` seconds and holds no stream. State is keyed by
namespace, name and a digest of the metadata, so that two triggers of one ScaledObject, or an edit
before the old one expires, never meet.

Everything here runs on the event loop's thread. A decision is replaced whole, never edited, so a
reader in another thread sees one or the other.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scaler.config.trigger import parse_trigger
from scaler.errors import InvalidTrigger, TooManyTriggers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from scaler.clock import Clock
    from scaler.core.model import Decision
    from scaler.core.policy import TriggerPolicy

TRAIL_SECONDS = 3600.0  # the page's picture
TRAIL_STEP_SECONDS = 10.0
REMEMBERED_MISTAKES = 256


@dataclass(frozen=True, slots=True, order=True)
class TriggerKey:
    """Which trigger: ScaledObject and metadata digest (``id``, eight hex digits)."""

    namespace: str
    name: str
    id: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}/{self.id}"


@dataclass(frozen=True, slots=True)
class TrailPoint:
    """One point of the last hour, for the page. ``at`` is unix seconds; None is "not known"."""

    at: float
    desired: int | None
    composite: float | None
    serving: int
    total: int
    floor: int
    in_flight: float | None


@dataclass(slots=True, eq=False)
class Trigger:
    """A registered trigger. Only the store and the poller change it."""

    key: TriggerKey
    policy: TriggerPolicy
    warnings: tuple[str, ...]
    registered_at: float
    asked_at: float
    streams: int = 0
    decision: Decision | None = None
    trail: deque[TrailPoint] = field(default_factory=deque)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def first_decision(self, timeout: float) -> Decision | None:
        """Return the newest decision, waiting up to ``timeout`` seconds for the first."""
        if self.decision is None:
            try:
                async with asyncio.timeout(timeout):
                    await self._changed.wait()
            except TimeoutError:
                return self.decision
        return self.decision

    async def decisions(self) -> AsyncIterator[Decision]:
        """Yield the newest decision and then each later one; a slow reader skips to the newest."""
        seen: Decision | None = None
        while True:
            changed = self._changed
            if self.decision is not None and self.decision is not seen:
                seen = self.decision
                yield seen
                continue
            await changed.wait()

    def publish(self, decision: Decision) -> None:
        """Replace the decision and wake whoever waits for it."""
        self.decision = decision
        self._remember(decision)
        # A fresh event for the next round: waiters of this one all wake, none is missed.
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _remember(self, decision: Decision) -> None:
        at = decision.at.wall.timestamp()
        if self.trail and 0 <= at - self.trail[-1].at < TRAIL_STEP_SECONDS:
            return
        point = TrailPoint(
            at=at,
            desired=decision.desired if decision.valid else None,
            composite=decision.composite,
            serving=decision.counts.serving,
            total=decision.counts.total,
            floor=decision.floors.highest,
            in_flight=decision.fleet.in_flight,
        )
        self.trail.append(point)
        while at - self.trail[0].at > TRAIL_SECONDS:
            self.trail.popleft()


class Store:
    """All registered triggers."""

    def __init__(self, clock: Clock, *, ttl: float = 600.0, limit: int = 2000) -> None:
        self._clock = clock
        self._ttl = ttl
        self._limit = limit
        self._triggers: dict[TriggerKey, Trigger] = {}
        # Metadata seen before, so that a poll costs one dictionary look-up, not a parse.
        self._keys: dict[tuple[str, str, frozenset[tuple[str, str]]], TriggerKey] = {}
        self._mistakes: dict[TriggerKey, InvalidTrigger] = {}
        self.arrived = asyncio.Event()  # set when a trigger registers; the poller clears it

    def register(self, namespace: str, name: str, metadata: Mapping[str, str]) -> Trigger:
        """Return the trigger, registering it if need be, and note that KEDA asked for it.

        Raises InvalidTrigger with every problem of the metadata, TooManyTriggers at the bound.
        """
        key = self._key(namespace, name, metadata)
        now = self._clock.now().monotonic
        trigger = self._triggers.get(key)
        if trigger is not None:
            trigger.asked_at = now
            return trigger
        if key in self._mistakes:
            raise self._mistakes[key]
        try:
            policy, warnings = parse_trigger(metadata)
        except InvalidTrigger as mistake:
            while len(self._mistakes) >= REMEMBERED_MISTAKES:
                self._mistakes.pop(next(iter(self._mistakes)))
            self._mistakes[key] = mistake
            raise
        if len(self._triggers) >= self._limit:
            raise TooManyTriggers(f"already watching {self._limit} triggers; raise --max-triggers")
        trigger = Trigger(key, policy, warnings, registered_at=now, asked_at=now)
        self._triggers[key] = trigger
        self.arrived.set()
        return trigger

    def triggers(self) -> tuple[Trigger, ...]:
        """Return all registered triggers, in a stable order. Safe in any thread."""
        # One C call copies the dictionary, so a trigger that comes or goes meanwhile does no harm.
        triggers = list(self._triggers.values())
        return tuple(sorted(triggers, key=lambda t: (t.key.namespace, t.key.name, t.key.id)))

    def of_object(self, namespace: str, name: str) -> tuple[Trigger, ...]:
        """Return the triggers of one ScaledObject."""
        return tuple(
            t for t in self.triggers() if (t.key.namespace, t.key.name) == (namespace, name)
        )

    def expire(self) -> tuple[TriggerKey, ...]:
        """Forget the triggers that KEDA no longer asks about; return their keys."""
        now = self._clock.now().monotonic
        gone = tuple(
            key
            for key, trigger in self._triggers.items()
            if trigger.streams == 0 and now - trigger.asked_at > self._ttl
        )
        for key in gone:
            del self._triggers[key]
        if gone:
            self._keys = {seen: key for seen, key in self._keys.items() if key in self._triggers}
        return gone

    def _key(self, namespace: str, name: str, metadata: Mapping[str, str]) -> TriggerKey:
        seen = (namespace, name, frozenset(metadata.items()))
        key = self._keys.get(seen)
        if key is None:
            canonical = json.dumps(sorted(metadata.items()), ensure_ascii=True)
            key = TriggerKey(namespace, name, hashlib.sha256(canonical.encode()).hexdigest()[:8])
            if len(self._keys) >= 2 * self._limit:
                self._keys.clear()
            self._keys[seen] = key
        return key
