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
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from scaler.config.trigger import parse_trigger
from scaler.core.model import Reason
from scaler.errors import InvalidTrigger, TooManyTriggers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Mapping

    from scaler.clock import Clock
    from scaler.core.model import Decision
    from scaler.core.policy import TriggerPolicy
    from scaler.errors import Problem

TRAIL_SECONDS = 3600.0  # the page's picture
TRAIL_STEP_SECONDS = 10.0
REMEMBERED_MISTAKES = 256
UNSEEN_SECONDS = 60.0  # what happened in a longer gap between two decisions nobody knows


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
    serving: int | None
    floor: int
    in_flight: float | None

    @classmethod
    def of(cls, decision: Decision) -> TrailPoint:
        """Return what the picture needs of a decision."""
        unlisted = decision.reason is Reason.CANNOT_LIST_PODS
        return cls(
            at=decision.at.wall.timestamp(),
            desired=decision.desired if decision.valid else None,
            composite=decision.composite,
            serving=None if unlisted else decision.counts.serving,
            floor=decision.floors.highest,
            in_flight=decision.fleet.in_flight,
        )


@dataclass(slots=True)
class Usage:
    """What the fleet used while it was watched, in replica-seconds, and what ``maxReplicas`` would.

    Both grow together or not at all, so that their ratio is honest: not while the pods cannot be
    listed, and not across a gap of more than a minute between decisions.
    """

    replica_seconds: float = 0.0
    static_replica_seconds: float = 0.0

    def add(self, before: Decision, after: Decision, max_replicas: int | None) -> None:
        """Count the time from one decision to the next at what the first one saw."""
        seconds = after.at.monotonic - before.at.monotonic
        if before.reason is Reason.CANNOT_LIST_PODS or not 0 < seconds <= UNSEEN_SECONDS:
            return
        # An unschedulable pod holds no GPU.
        holding = before.counts.total - before.counts.unschedulable
        self.replica_seconds += holding * seconds
        self.static_replica_seconds += (max_replicas or 0) * seconds


@dataclass(slots=True, eq=False)
class Trigger:
    """A registered trigger. Only the store and the poller change it.

    ``refusal`` is set while the operator's ``--allow-endpoints`` bars what the metadata names.
    """

    key: TriggerKey
    policy: TriggerPolicy
    warnings: tuple[str, ...]
    registered_at: float
    asked_at: float
    streams: int = 0
    decision: Decision | None = None
    refusal: str | None = None
    trail: deque[TrailPoint] = field(default_factory=deque)
    usage: Usage = field(default_factory=Usage)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    async def first_decision(self, timeout: float) -> Decision | None:
        """Return the newest decision, waiting up to ``timeout`` seconds for the first.

        None when there is none by then, or as soon as the trigger is refused.
        """
        if self.decision is None and self.refusal is None:
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
        """Replace the decision and wake whoever waits for it. A decision ends a refusal."""
        if self.decision is not None:
            self.usage.add(self.decision, decision, self.policy.max_replicas)
        self.decision = decision
        self.refusal = None
        self._remember(decision)
        self._wake()

    def refuse(self, text: str) -> None:
        """Say why this trigger may not be watched, and wake whoever waits for a decision.

        ``text`` goes to the caller: one short, stable sentence without secrets.
        """
        self.refusal = text
        self._wake()

    def _wake(self) -> None:
        # A fresh event for the next round: waiters of this one all wake, none is missed.
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    def _remember(self, decision: Decision) -> None:
        point = TrailPoint.of(decision)
        if self.trail and 0 <= point.at - self.trail[-1].at < TRAIL_STEP_SECONDS:
            return
        self.trail.append(point)
        while point.at - self.trail[0].at > TRAIL_SECONDS:
            self.trail.popleft()


_Seen = tuple[str, str, frozenset[tuple[str, str]]]  # namespace, name, metadata


@dataclass(slots=True)
class _Mistake:
    """Metadata that is no policy, and when KEDA last asked with it (monotonic)."""

    problems: tuple[Problem, ...]
    asked_at: float


class Store:
    """All registered triggers."""

    def __init__(self, clock: Clock, *, ttl: float = 600.0, limit: int = 2000) -> None:
        self._clock = clock
        self._ttl = ttl
        self._limit = limit
        self._triggers: dict[TriggerKey, Trigger] = {}
        # Metadata of registered triggers, so that a poll costs one look-up, not a digest.
        self._keys: dict[_Seen, TriggerKey] = {}
        self._mistakes: dict[TriggerKey, _Mistake] = {}
        self.arrived = asyncio.Event()  # set when a trigger registers; the poller clears it

    def register(self, namespace: str, name: str, metadata: Mapping[str, str]) -> Trigger:
        """Return the trigger, registering it if need be, and note that KEDA asked for it.

        Raises InvalidTrigger with every problem of the metadata, TooManyTriggers at the bound.
        """
        seen = (namespace, name, frozenset(metadata.items()))
        key = self._keys.get(seen) or TriggerKey(namespace, name, _digest(metadata))
        now = self._clock.now().monotonic
        trigger = self._triggers.get(key)
        if trigger is not None:
            trigger.asked_at = now
            return trigger
        policy, warnings = self._parse(key, metadata)
        if len(self._triggers) >= self._limit:
            raise TooManyTriggers(f"already watching {self._limit} triggers; raise --max-triggers")
        trigger = Trigger(key, policy, warnings, registered_at=now, asked_at=now)
        self._triggers[key] = trigger
        self._keys[seen] = key
        self.arrived.set()
        return trigger

    @contextmanager
    def streaming(self, trigger: Trigger) -> Iterator[None]:
        """Keep ``trigger`` registered while a stream of it is open, and ``ttl`` seconds longer."""
        trigger.streams += 1
        try:
            yield
        finally:
            trigger.streams -= 1
            trigger.asked_at = self._clock.now().monotonic

    def triggers(self) -> tuple[Trigger, ...]:
        """Return all registered triggers, in a stable order. Safe in any thread."""
        # One C call copies the dictionary, so a trigger that comes or goes meanwhile does no harm.
        triggers = list(self._triggers.values())
        return tuple(sorted(triggers, key=lambda t: (t.key.namespace, t.key.name, t.key.id)))

    def mistaken(self) -> tuple[TriggerKey, ...]:
        """Return what KEDA asks about with metadata that is no policy. Safe from any thread."""
        now = self._clock.now().monotonic
        mistakes = list(self._mistakes.items())
        return tuple(sorted(key for key, m in mistakes if now - m.asked_at <= self._ttl))

    def of_object(self, namespace: str, name: str) -> tuple[Trigger, ...]:
        """Return the triggers of one ScaledObject."""
        mine = (t for t in self._triggers.values() if t.key.namespace == namespace)
        return tuple(sorted((t for t in mine if t.key.name == name), key=lambda t: t.key))

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

    def _parse(
        self, key: TriggerKey, metadata: Mapping[str, str]
    ) -> tuple[TriggerPolicy, tuple[str, ...]]:
        now = self._clock.now().monotonic
        mistake = self._mistakes.get(key)
        if mistake is not None:
            mistake.asked_at = now
            # A new exception each time: one raised again and again drags every traceback along.
            raise InvalidTrigger(mistake.problems)
        try:
            return parse_trigger(metadata)
        except InvalidTrigger as error:
            while len(self._mistakes) >= REMEMBERED_MISTAKES:
                self._mistakes.pop(next(iter(self._mistakes)))
            self._mistakes[key] = _Mistake(error.problems, now)
            raise


def _digest(metadata: Mapping[str, str]) -> str:
    canonical = json.dumps(sorted(metadata.items()), ensure_ascii=True)
    return hashlib.sha256(canonical.encode()).hexdigest()[:8]
