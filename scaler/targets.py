"""The endpoints being scraped: one scrape at a time each, shared by all triggers that want it.

An overloaded vLLM takes seconds to answer, and a heavily scraped one gets slower (sglang #28157),
so two triggers on one pod share its scrape, and a pod that hangs is asked again only when it has
answered or timed out.

How many are asked at once is bounded twice. Pods that have answered well wait in one lane, pods
that never did or that keep timing out in another, so that the healthy do not queue behind the hung.
And each trigger, and each namespace, has its own share of both (:class:`Lanes`), so that one
tenant's dead endpoints do not blind the others.
"""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from scaler.core.model import PodSample, ScrapeCause, ScrapeFailure

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scaler.clock import Clock
    from scaler.config.settings import ScrapeSettings

# Pods that never answered well, or keep timing out, cost little but time: four times as many of
# them may be asked at once.
UNPROVEN = 4
PATIENCE = 3  # time-outs in a row after which a pod that once answered counts as unproven


class Scrape(Protocol):
    """GETs one metrics URL. Never raises on what the network does."""

    async def scrape(self, url: str) -> PodSample | ScrapeFailure:
        """Return the sample, or why there is none."""
        ...


class ScrapeObserver(Protocol):
    """Told of every scrape. ``cause`` is None for a good one."""

    def scrape(self, cause: ScrapeCause | None, seconds: float) -> None:
        """Note one finished scrape."""
        ...


class ScrapeLog(Protocol):
    """Told when an endpoint starts to fail, fails differently, or recovers."""

    def scrape_changed(self, url: str, failure: ScrapeFailure | None) -> None:
        """Note the change; ``failure`` is None on recovery."""
        ...

    def families_changed(self, url: str, missing: frozenset[str]) -> None:
        """Note that a pod lacks other families than before; none when it has all."""
        ...


@dataclass(slots=True, eq=False)
class Target:
    """One endpoint: its newest good sample with its monotonic instant, and the newest failure."""

    url: str
    sample: PodSample | None = None
    sampled_at: float | None = None
    failure: ScrapeFailure | None = None
    missing: frozenset[str] = frozenset()
    asked_at: float | None = None
    timeouts: int = 0  # in a row
    running: asyncio.Task[None] | None = None

    @property
    def proven(self) -> bool:
        """Whether the pod has answered well and is likely to do so again."""
        return self.sample is not None and self.timeouts < PATIENCE


class Lanes:
    """How many pods of a trigger, or of all triggers of a namespace, are asked at once.

    A trigger may take half of ``concurrency`` in each lane; its namespace (``above``) three
    quarters of the proven one, and twice as many unproven as a trigger.
    """

    def __init__(self, settings: ScrapeSettings, above: Lanes | None = None) -> None:
        whole = settings.concurrency
        proven, unproven = (
            (3 * whole // 4, 2 * share(settings))
            if above is None
            else (
                share(settings),
                share(settings),
            )
        )
        self.proven = asyncio.Semaphore(max(1, proven))
        self.unproven = asyncio.Semaphore(max(1, unproven))
        self.above = above

    def of(self, target: Target) -> list[asyncio.Semaphore]:
        """Return what a scrape of ``target`` must pass, the narrowest first."""
        mine = self.proven if target.proven else self.unproven
        return [mine, *(() if self.above is None else self.above.of(target))]


def share(settings: ScrapeSettings) -> int:
    """Return how many pods of one trigger are asked at once in a lane."""
    return max(1, settings.concurrency // 2)


class Targets:
    """All endpoints that some trigger wants."""

    def __init__(
        self,
        scraper: Scrape,
        settings: ScrapeSettings,
        *,
        clock: Clock,
        observer: ScrapeObserver,
        log: ScrapeLog,
    ) -> None:
        self._scraper = scraper
        self._clock = clock
        self._observer = observer
        self._log = log
        # Two triggers on one pod tick at their own phase; half an interval old is young enough.
        self._young = settings.interval / 2
        self._proven = asyncio.Semaphore(settings.concurrency)
        self._unproven = asyncio.Semaphore(UNPROVEN * settings.concurrency)
        self._targets: dict[str, Target] = {}

    def get(self, url: str) -> Target:
        """Return the endpoint, which may not have been asked yet."""
        target = self._targets.get(url)
        if target is None:
            target = self._targets[url] = Target(url)
        return target

    def ask(self, url: str, lanes: Lanes) -> asyncio.Task[None] | None:
        """Scrape the endpoint unless a scrape runs or has just ended; return the one that runs.

        ``lanes`` are those of the trigger that asks.
        """
        target = self.get(url)
        if target.running is not None:
            return target.running
        now = self._clock.now().monotonic
        if target.asked_at is not None and now - target.asked_at < self._young:
            return None
        target.asked_at = now
        target.running = asyncio.create_task(self._scrape(target, lanes), name=f"scrape {url}")
        return target.running

    def keep_only(self, urls: Iterable[str]) -> None:
        """Forget the endpoints that no trigger wants any more, and end their scrapes."""
        for url in self._targets.keys() - set(urls):
            target = self._targets.pop(url)
            if target.running is not None:
                target.running.cancel()

    async def close(self) -> None:
        """End all scrapes."""
        tasks = [t.running for t in self._targets.values() if t.running is not None]
        self.keep_only(())
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _scrape(self, target: Target, lanes: Lanes) -> None:
        everybodys = self._proven if target.proven else self._unproven
        try:
            async with AsyncExitStack() as passed:
                for lane in (*lanes.of(target), everybodys):
                    await passed.enter_async_context(lane)
                started = self._clock.now().monotonic
                outcome = await self._scraper.scrape(target.url)
                ended = self._clock.now().monotonic
        finally:
            target.running = None
        before = target.failure
        if isinstance(outcome, ScrapeFailure):
            target.failure = outcome
            timed_out = outcome.cause is ScrapeCause.TIMEOUT
            target.timeouts = target.timeouts + 1 if timed_out else 0
            self._observer.scrape(outcome.cause, ended - started)
        else:
            target.failure, target.sample, target.sampled_at = None, outcome, ended
            target.timeouts = 0
            self._observer.scrape(None, ended - started)
            self._tell_missing(target, outcome)
        causes = (before and before.cause, target.failure and target.failure.cause)
        if causes[0] is not causes[1]:
            self._log.scrape_changed(target.url, target.failure)

    def _tell_missing(self, target: Target, sample: PodSample) -> None:
        """Tell once when a pod lacks a family (V01); one that has served nothing tells nothing."""
        if sample.models and sample.missing != target.missing:
            target.missing = sample.missing
            self._log.families_changed(target.url, sample.missing)
