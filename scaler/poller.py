"""The loop: discover, scrape, decide, publish. One task a trigger, one scrape an endpoint.

Nothing here answers anybody: RPCs and pages read the published decision. A decision waits a moment
for its pods, then goes out without the slow ones and once more when they have answered, so that one
hung pod costs the others nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol

from scaler.core.decide import decide, initial_state
from scaler.core.model import Decision, PodObservation, Reason, Snapshot
from scaler.discovery.pods import Found
from scaler.errors import EndpointNotAllowed
from scaler.targets import Lanes

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from scaler.clock import Clock
    from scaler.config.settings import ScrapeSettings
    from scaler.core.model import Now
    from scaler.core.policy import TriggerPolicy
    from scaler.core.state import ScalerState
    from scaler.discovery.pods import Discovery, FoundPod
    from scaler.store import Store, Trigger, TriggerKey
    from scaler.targets import Targets

# KEDA's first call waits 1.5 s for the first decision; it must be there by then.
FIRST_PATIENCE = 1.2
# A share of the interval that a decision waits for its pods before it goes out without the slow.
PATIENCE = 0.2
# A share of the interval over which late answers are gathered before the decision is made again.
STRAGGLERS = 0.1
DISCOVERY_SECONDS = 2.0
HOUSEKEEPING_SECONDS = 2.0
KEEP_SECONDS = 30.0
# A large fleet is asked over part of the interval, so that the answers do not all arrive at once
# and RPCs find the loop free between two of them.
SPREAD = 0.6
LONGEST_PAUSE = 0.003
# A decision on more pods than this (some 2 ms) is made beside the loop: the core is pure.
QUICK_PODS = 64


class DecisionObserver(Protocol):
    """Told of every decision and sweep, in seconds of work and of waiting."""

    def decision(self, reason: Reason, seconds: float) -> None:
        """Note one decision and how long it took to make."""
        ...

    def sweep(self, seconds: float) -> None:
        """Note how long all pods of a trigger took to answer."""
        ...


class DecisionLog(Protocol):
    """Told when a trigger's story changes."""

    def decided(self, key: TriggerKey, before: Decision | None, after: Decision) -> None:
        """Note a published decision; ``before`` is the one it replaces."""
        ...

    def refused(self, key: TriggerKey, text: str) -> None:
        """Note that a trigger may not be watched."""
        ...

    def failed(self, key: TriggerKey, error: Exception) -> None:
        """Note a defect: the decision could not be made."""
        ...

    def registered(self, key: TriggerKey, warnings: Sequence[str]) -> None:
        """Note that KEDA asks about a trigger, and what is doubtful about its metadata."""
        ...

    def forgotten(self, key: TriggerKey) -> None:
        """Note that KEDA no longer asks about a trigger."""
        ...


class Keeper(Protocol):
    """Remembers triggers across restarts."""

    def recall(self, key: str, policy: TriggerPolicy, now: Now) -> ScalerState:
        """Return what is remembered of a trigger."""
        ...

    def write(self, states: Mapping[str, ScalerState], now: Now) -> None:
        """Remember all triggers. May block on the disk."""
        ...


class Forgetful:
    """The keeper of a scaler without ``--state-dir``."""

    def recall(self, key: str, policy: TriggerPolicy, now: Now) -> ScalerState:
        """Return an empty memory."""
        del key, now
        return initial_state(policy)

    def write(self, states: Mapping[str, ScalerState], now: Now) -> None:
        """Forget."""


class Poller:
    """Keeps the decision of every registered trigger new."""

    def __init__(
        self,
        store: Store,
        discovery: Discovery,
        targets: Targets,
        settings: ScrapeSettings,
        *,
        clock: Clock,
        observer: DecisionObserver,
        log: DecisionLog,
        keeper: Keeper | None = None,
    ) -> None:
        self._store = store
        self._discovery = discovery
        self._targets = targets
        self._settings = settings
        self._clock = clock
        self._observer = observer
        self._log = log
        self._keeper = keeper or Forgetful()
        self._kept_at = clock.now().monotonic
        self._watches: dict[TriggerKey, _Watch] = {}
        self._namespaces: dict[str, Lanes] = {}
        # Threads of their own: what hangs in the shared ones must not delay a decision.
        self._decider = ThreadPoolExecutor(1, thread_name_prefix="decide")
        self._disk = ThreadPoolExecutor(1, thread_name_prefix="state")
        self._keeping: asyncio.Future[None] | None = None

    async def run(self) -> None:
        """Watch triggers as they register, until cancelled."""
        async with asyncio.TaskGroup() as watches:
            while True:
                self._store.arrived.clear()
                for trigger in self._store.triggers():
                    if trigger.key not in self._watches:
                        now = self._clock.now()
                        state = self._keeper.recall(str(trigger.key), trigger.policy, now)
                        watch = _Watch(self, trigger, state)
                        self._watches[trigger.key] = watch
                        self._log.registered(trigger.key, trigger.warnings)
                        watch.task = watches.create_task(watch.run(), name=f"watch {trigger.key}")
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(HOUSEKEEPING_SECONDS):
                        await self._store.arrived.wait()
                self._tidy()
                self._keep_now_and_then()

    def _keep_now_and_then(self) -> None:
        """Have the disk's thread remember all triggers; a disk that hangs is not waited for."""
        busy = self._keeping is not None and not self._keeping.done()
        if busy or self.now() - self._kept_at < KEEP_SECONDS:
            return
        self._kept_at = self.now()
        self._keeping = asyncio.get_running_loop().run_in_executor(self._disk, self.keep)

    def close(self) -> None:
        """Remember all triggers a last time, after :meth:`run` has ended."""
        self._decider.shutdown(wait=False, cancel_futures=True)
        self._disk.shutdown(wait=False, cancel_futures=True)
        if self._keeping is None or self._keeping.done():
            self.keep()

    def keep(self) -> None:
        """Remember all triggers for the next start."""
        states = {str(key): watch.state for key, watch in list(self._watches.items())}
        self._keeper.write(states, self._clock.now())

    def _tidy(self) -> None:
        """Let go of what KEDA no longer asks about."""
        for key in self._store.expire():
            watch = self._watches.pop(key, None)
            if watch is not None and watch.task is not None:
                watch.task.cancel()
            self._log.forgotten(key)
            if not any(other.namespace == key.namespace for other in self._watches):
                self._namespaces.pop(key.namespace, None)
        self._targets.keep_only(
            pod.url for watch in self._watches.values() for pod in watch.found.pods
        )

    async def find(self, trigger: Trigger) -> Found:
        """Return the trigger's pods; what goes wrong is said, never taken for "no pods"."""
        key = trigger.key
        try:
            async with asyncio.timeout(DISCOVERY_SECONDS):
                return await self._discovery.find(key.namespace, key.name, trigger.policy)
        except TimeoutError:
            return Found(error=f"no answer within {DISCOVERY_SECONDS:g} s")

    async def decide(
        self, trigger: Trigger, found: Found, state: ScalerState, sequence: int
    ) -> ScalerState:
        """Make and publish one decision; return the memory for the next."""
        now = self._clock.now()
        snapshot = Snapshot(
            sequence=sequence,
            pods=tuple(self._observe(pod) for pod in found.pods),
            fresh_for=self._settings.fresh_for,
            current_replicas=found.current_replicas,
            discovery_error=found.error,
            waking=found.waking,
            learned_cold_start=found.cold_start,
        )
        before = trigger.decision
        try:
            if len(found.pods) <= QUICK_PODS:
                decision, newer = decide(snapshot, state, trigger.policy, now)
            else:
                decision, newer = await asyncio.get_running_loop().run_in_executor(
                    self._decider, decide, snapshot, state, trigger.policy, now
                )
        except Exception as error:  # noqa: BLE001 - a defect for one trigger must not stop the rest
            self._log.failed(trigger.key, error)
            decision, newer = _broken(snapshot, now, before), state
        trigger.publish(decision)
        self._observer.decision(decision.reason, self._clock.now().monotonic - now.monotonic)
        self._log.decided(trigger.key, before, decision)
        return newer

    def _observe(self, pod: FoundPod) -> PodObservation:
        target = self._targets.get(pod.url)
        return PodObservation(
            pod=pod.pod,
            life=pod.life,
            sample=target.sample,
            sampled_at=target.sampled_at,
            failure=target.failure,
        )

    async def ask(
        self, pods: Sequence[FoundPod], lanes: Lanes, *, hurry: bool
    ) -> set[asyncio.Task[None]]:
        """Start the scrapes of all pods and return those that run."""
        running = set()
        pause = 0.0
        if len(pods) > QUICK_PODS and not hurry:
            pause = min(LONGEST_PAUSE, SPREAD * self._settings.interval / len(pods))
        for pod in pods:
            scrape = self._targets.ask(pod.url, lanes)
            if scrape is not None:
                running.add(scrape)
            if pause:
                await asyncio.sleep(pause)
        return running

    def lanes(self, namespace: str) -> Lanes:
        """Return a trigger's share of what is asked at once, within its namespace's."""
        above = self._namespaces.get(namespace)
        if above is None:
            above = self._namespaces[namespace] = Lanes(self._settings)
        return Lanes(self._settings, above)

    def swept(self, since: float) -> None:
        """Note the end of a sweep that began at ``since`` (monotonic)."""
        self._observer.sweep(self._clock.now().monotonic - since)

    def refuse(self, trigger: Trigger, text: str) -> None:
        """Publish that the operator does not allow what the trigger names."""
        if trigger.refusal != text:
            self._log.refused(trigger.key, text)
        trigger.refuse(text)

    def now(self) -> float:
        """Monotonic seconds."""
        return self._clock.now().monotonic

    @property
    def interval(self) -> float:
        """Seconds from one sweep's start to the next."""
        return self._settings.interval


class _Watch:
    """One trigger's own loop: its memory, its rhythm, its pods."""

    def __init__(self, poller: Poller, trigger: Trigger, state: ScalerState) -> None:
        self._poller = poller
        self._trigger = trigger
        self.state = state
        self._sequence = 0
        self._lanes = poller.lanes(trigger.key.namespace)
        self.found = Found()
        self.task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        interval = self._poller.interval
        while True:
            started = self._poller.now()
            try:
                await self._sweep(started)
            except EndpointNotAllowed as barred:
                self._poller.refuse(self._trigger, str(barred))
            await asyncio.sleep(max(0.0, interval - (self._poller.now() - started)))

    async def _sweep(self, started: float) -> None:
        self.found = await self._poller.find(self._trigger)
        first = self._trigger.decision is None
        slow = await self._poller.ask(self.found.pods, self._lanes, hurry=first)
        slow = await _wait(slow, FIRST_PATIENCE if first else PATIENCE * self._poller.interval)
        await self._decide()
        # The slow ones have until the next sweep; what they say is published once they said it.
        while slow:
            left = self._poller.interval - (self._poller.now() - started)
            still = await _wait(slow, left, first_only=True)
            if still == slow:
                break
            slow = await _wait(still, min(left, STRAGGLERS * self._poller.interval))
            await self._decide()
        self._poller.swept(started)

    async def _decide(self) -> None:
        self._sequence += 1
        self.state = await self._poller.decide(
            self._trigger, self.found, self.state, self._sequence
        )


async def _wait(
    tasks: set[asyncio.Task[None]], seconds: float, *, first_only: bool = False
) -> set[asyncio.Task[None]]:
    """Wait for scrapes, up to ``seconds``; return those that still run."""
    if not tasks or seconds <= 0:
        return {task for task in tasks if not task.done()}
    when = asyncio.FIRST_COMPLETED if first_only else asyncio.ALL_COMPLETED
    _, running = await asyncio.wait(tasks, timeout=seconds, return_when=when)
    return running


def _broken(snapshot: Snapshot, now: Now, before: Decision | None) -> Decision:
    """An invalid answer for a defect: KEDA's fallback is better than a number nobody computed."""
    return Decision(
        sequence=snapshot.sequence,
        at=now,
        valid=False,
        desired=0 if before is None else before.desired,
        active=True if before is None else before.active,
        reason=Reason.NO_DATA,
        message="the decision could not be made; the scaler's log says why",
    )
