"""The loop with a fake network: what is published when pods hang, vanish or break."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import pytest
from fakes import ManualClock, pod_sample, sample

from scaler.clock import SystemClock
from scaler.config.settings import ScrapeSettings
from scaler.core.model import PodSample, Reason, ScrapeCause, ScrapeFailure
from scaler.discovery.pods import Found, FoundPod
from scaler.errors import EndpointNotAllowed
from scaler.poller import Poller
from scaler.store import Store
from scaler.targets import PATIENCE, Targets, share

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

    from scaler.clock import Clock
    from scaler.core.model import Decision
    from scaler.core.policy import TriggerPolicy
    from scaler.store import Trigger, TriggerKey

pytestmark = pytest.mark.timeout(20)

QUICK = ScrapeSettings(interval=0.1, timeout=5.0)


@dataclass
class FakeScraper:
    """Answers from a table; a URL with a gate answers when its gate opens."""

    answers: dict[str, PodSample | ScrapeFailure] = field(default_factory=dict)
    gates: dict[str, asyncio.Event] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)

    async def scrape(self, url: str) -> PodSample | ScrapeFailure:
        self.asked.append(url)
        if url in self.gates:
            await self.gates[url].wait()
        return self.answers.get(url, pod_sample(sample(1)))


@dataclass
class FakeDiscovery:
    """Finds the pods of a table, or does what a test wants instead."""

    pods: tuple[str, ...] = ("a",)
    instead: Callable[[], Found] | None = None
    gate: asyncio.Event | None = None
    by_name: dict[str, tuple[str, ...]] = field(default_factory=dict)

    async def find(self, namespace: str, name: str, policy: TriggerPolicy) -> Found:
        del namespace, policy
        if self.gate is not None:
            await self.gate.wait()
        if self.instead is not None:
            return self.instead()
        pods = self.by_name.get(name, self.pods)
        return Found(tuple(FoundPod(pod, pod) for pod in pods))


@dataclass
class Notes:
    """Collects what the poller and the targets report."""

    scrapes: list[ScrapeCause | None] = field(default_factory=list)
    reasons: list[Reason] = field(default_factory=list)
    sweeps: int = 0
    events: list[tuple[str, object]] = field(default_factory=list)

    def scrape(self, cause: ScrapeCause | None, seconds: float) -> None:
        assert seconds >= 0
        self.scrapes.append(cause)

    def decision(self, reason: Reason, seconds: float) -> None:
        assert seconds >= 0
        self.reasons.append(reason)

    def sweep(self, seconds: float) -> None:
        assert seconds >= 0
        self.sweeps += 1

    def decided(self, key: TriggerKey, before: Decision | None, after: Decision) -> None:
        del key, before
        self.events.append(("decided", after.sequence))

    def refused(self, key: TriggerKey, text: str) -> None:
        del key
        self.events.append(("refused", text))

    def failed(self, key: TriggerKey, error: Exception) -> None:
        del key
        self.events.append(("failed", str(error)))

    def registered(self, key: TriggerKey, warnings: Sequence[str]) -> None:
        self.events.append(("registered", (key.name, tuple(warnings))))

    def forgotten(self, key: TriggerKey) -> None:
        self.events.append(("forgotten", key.name))

    def scrape_changed(self, url: str, failure: ScrapeFailure | None) -> None:
        self.events.append((url, failure and failure.cause))

    def families_changed(self, url: str, missing: frozenset[str]) -> None:
        self.events.append((f"{url} lacks", sorted(missing)))


@dataclass
class Loop:
    """A running poller and all it was given."""

    store: Store
    scraper: FakeScraper
    discovery: FakeDiscovery
    notes: Notes
    targets: Targets

    def watch(self, name: str = "llama", namespace: str = "team", **metadata: str) -> Trigger:
        return self.store.register(namespace, name, {"scalerAddress": "s:6000", **metadata})


@asynccontextmanager
async def polling(
    scraper: FakeScraper | None = None,
    discovery: FakeDiscovery | None = None,
    *,
    settings: ScrapeSettings = QUICK,
    clock: Clock | None = None,
) -> AsyncIterator[Loop]:
    scraper, discovery = scraper or FakeScraper(), discovery or FakeDiscovery()
    clock, notes = clock or SystemClock(), Notes()
    store = Store(clock)
    targets = Targets(scraper, settings, clock=clock, observer=notes, log=notes)
    poller = Poller(store, discovery, targets, settings, clock=clock, observer=notes, log=notes)
    task = asyncio.create_task(poller.run())
    try:
        yield Loop(store, scraper, discovery, notes, targets)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await targets.close()


async def until(trigger: Trigger, wanted: Callable[[Decision], bool]) -> Decision:
    """Return the first decision that is as wanted; the test's time-out bounds the wait."""
    async for decision in trigger.decisions():
        if wanted(decision):
            return decision
    raise AssertionError("decisions never end")


async def happens(check: Callable[[], bool]) -> None:
    """Let the loop turn until something is so; the test's time-out bounds the wait."""
    while not check():  # noqa: ASYNC110 - what is waited for has no event of its own
        await asyncio.sleep(0.005)


async def test_a_new_trigger_is_swept_at_once_and_then_every_interval() -> None:
    async with polling() as loop:
        trigger = loop.watch()
        first = await trigger.first_decision(5)
        third = await until(trigger, lambda d: d.sequence >= 3)

    assert first is not None
    assert (first.valid, first.fleet.running) == (True, 1)
    assert third.valid
    assert loop.notes.sweeps >= 2
    assert loop.notes.scrapes[:2] == [None, None]


async def test_d12_a_hung_pod_costs_the_others_nothing() -> None:
    gate = asyncio.Event()
    scraper = FakeScraper(gates={"b": gate})
    discovery = FakeDiscovery(("a", "b", "c"))
    settings = ScrapeSettings(interval=0.3, timeout=5.0)
    async with polling(scraper, discovery, settings=settings) as loop:
        trigger = loop.watch()
        without = await until(trigger, lambda d: d.sequence == 2)
        gate.set()
        answered = await until(trigger, lambda d: d.counts.fresh == 3)

    assert (without.counts.ready, without.counts.fresh, without.valid) == (3, 2, True)
    assert scraper.asked[:3] == ["a", "b", "c"]
    # It was asked once, for as long as it hung.
    assert scraper.asked[: scraper.asked.index("b") + 4].count("b") == 1
    assert answered.valid


async def test_a_late_answer_is_published_before_the_next_sweep() -> None:
    gate = asyncio.Event()
    scraper = FakeScraper(gates={"b": gate})
    settings = ScrapeSettings(interval=30.0, timeout=25.0)
    async with polling(scraper, FakeDiscovery(("a", "b")), settings=settings) as loop:
        trigger = loop.watch()
        first = await trigger.first_decision(5)
        gate.set()
        second = await until(trigger, lambda d: d.sequence == 2)

    assert first is not None
    assert (first.counts.fresh, second.counts.fresh) == (1, 2)
    assert scraper.asked == ["a", "b"]


async def test_one_tenants_hung_endpoints_do_not_blind_another() -> None:
    """Two thousand endpoints that never answer, and a trigger that comes after them."""
    hung = tuple(f"hung-{n}" for n in range(2000))
    never = asyncio.Event()
    scraper = FakeScraper(gates=dict.fromkeys(hung, never))
    discovery = FakeDiscovery(by_name={"mass": hung, "honest": ("a", "b")})
    async with polling(scraper, discovery) as loop:
        loop.watch("mass")
        await happens(lambda: len(scraper.asked) >= share(QUICK))
        honest = loop.watch("honest")
        first = await honest.first_decision(5)
        later = await until(honest, lambda d: d.sequence >= 4)

    assert first is not None
    assert (first.valid, later.valid, later.counts.fresh) == (True, True, 2)
    assert sum(url.startswith("hung") for url in scraper.asked) == share(QUICK)


async def test_many_triggers_of_one_namespace_do_not_blind_another() -> None:
    names = [f"mass-{n}" for n in range(20)]
    hung = {name: tuple(f"hung-{name}-{n}" for n in range(100)) for name in names}
    never = asyncio.Event()
    gates = {url: never for urls in hung.values() for url in urls}
    scraper = FakeScraper(gates=gates)
    discovery = FakeDiscovery(by_name=hung | {"honest": ("a", "b")})
    async with polling(scraper, discovery) as loop:
        for name in names:
            loop.watch(name, "noisy")
        await happens(lambda: len(scraper.asked) >= 2 * share(QUICK))
        first = await loop.watch("honest", "quiet").first_decision(5)

    assert first is not None
    assert (first.valid, first.counts.fresh) == (True, 2)
    assert sum(url.startswith("hung") for url in scraper.asked) == 2 * share(QUICK)


async def test_one_hiccup_of_a_pod_that_answers_does_not_send_it_to_the_unproven() -> None:
    timed_out = ScrapeFailure(ScrapeCause.TIMEOUT, "no answer within 5 s")
    async with polling() as loop:
        trigger = loop.watch()
        await until(trigger, lambda d: d.valid)
        loop.scraper.answers["a"] = timed_out
        proven = []
        for count in range(1, PATIENCE + 1):
            await happens(lambda count=count: loop.targets.get("a").timeouts == count)  # type: ignore[misc]
            proven.append(loop.targets.get("a").proven)
        loop.scraper.answers.clear()
        await happens(lambda: loop.targets.get("a").timeouts == 0)

    assert proven == [True] * (PATIENCE - 1) + [False]
    assert loop.targets.get("a").proven or loop.targets.get("a").sample is None


async def test_two_triggers_on_one_pod_share_its_scrape() -> None:
    gate = asyncio.Event()
    scraper = FakeScraper(gates={"a": gate})
    settings = ScrapeSettings(interval=30.0, timeout=25.0)
    async with polling(scraper, settings=settings) as loop:
        one, two = loop.watch("one"), loop.watch("two")
        await happens(lambda: scraper.asked != [])
        gate.set()
        decisions = [await t.first_decision(5) for t in (one, two)]

    assert scraper.asked == ["a"]
    assert all(d is not None and d.valid for d in decisions)


async def test_a_barred_endpoint_is_refused_and_told_once() -> None:
    def barred() -> Found:
        raise EndpointNotAllowed("host 'a' is not allowed")

    async with polling(discovery=FakeDiscovery(instead=barred)) as loop:
        trigger = loop.watch()
        await happens(lambda: trigger.refusal is not None)
        loop.discovery.instead = None
        decision = await until(trigger, lambda d: d.valid)

    assert loop.notes.events.count(("refused", "host 'a' is not allowed")) == 1
    assert decision.fleet.running == 1


@pytest.mark.parametrize(
    ("discovery", "message"),
    [
        pytest.param(
            FakeDiscovery(instead=lambda: Found(error="403 forbidden: list pods")),
            "cannot list pods: 403 forbidden: list pods",
            id="error",
        ),
        pytest.param(
            FakeDiscovery(gate=asyncio.Event()),
            "cannot list pods: no answer within 2 s",
            id="hangs",
        ),
    ],
)
async def test_pods_that_cannot_be_listed_are_not_no_pods(
    discovery: FakeDiscovery, message: str
) -> None:
    async with polling(discovery=discovery) as loop:
        decision = await loop.watch().first_decision(5)

    assert decision is not None
    assert (decision.valid, decision.message) == (False, message)


async def test_a_defect_is_an_invalid_answer_and_stops_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError("defect")

    async with polling() as loop:
        trigger = loop.watch()
        await until(trigger, lambda d: d.valid)
        with monkeypatch.context() as patch:
            patch.setattr("scaler.poller.decide", broken)
            bad = await until(trigger, lambda d: not d.valid)
        good = await until(trigger, lambda d: d.valid)

    assert ("failed", "defect") in loop.notes.events
    assert (bad.desired, bad.active) == (1, True)
    assert good.valid


async def test_doubtful_metadata_is_told_once_when_the_trigger_registers() -> None:
    async with polling() as loop:
        trigger = loop.watch(targetWaitng="7")
        await until(trigger, lambda d: d.sequence >= 3)

    [told] = [event for event in loop.notes.events if event[0] == "registered"]
    assert told == ("registered", ("llama", trigger.warnings))
    assert "targetWaiting" in trigger.warnings[0]


async def test_what_keda_no_longer_asks_about_is_forgotten() -> None:
    clock = ManualClock()
    async with polling(clock=clock) as loop:
        trigger = loop.watch()
        await until(trigger, lambda d: d.valid)
        clock.advance(601)
        await happens(lambda: ("forgotten", "llama") in loop.notes.events)
        await happens(lambda: loop.targets.get("a").sample is None)

    assert loop.store.triggers() == ()


async def test_an_endpoint_nobody_wants_is_let_go_of() -> None:
    gate = asyncio.Event()
    scraper = FakeScraper(gates={"a": gate})
    async with polling(scraper, FakeDiscovery(("a", "b"))) as loop:
        trigger = loop.watch()
        await trigger.first_decision(5)
        hung = loop.targets.get("a").running
        assert hung is not None
        loop.discovery.pods = ("b",)
        await happens(hung.cancelled)
        decision = await until(trigger, lambda d: d.counts.total == 1)

    assert decision.valid


async def test_failures_are_told_once_per_change_of_cause() -> None:
    refused = ScrapeFailure(ScrapeCause.REFUSED, "connection refused")
    reset = ScrapeFailure(ScrapeCause.RESET, "connection reset")
    async with polling() as loop:
        trigger = loop.watch()
        for answer in (refused, reset, pod_sample(sample(1))):
            loop.scraper.answers["a"] = answer
            asked = len(loop.scraper.asked)
            await happens(lambda asked=asked: len(loop.scraper.asked) >= asked + 3)  # type: ignore[misc]
        await until(trigger, lambda d: d.pods[0].failure is None)

    told = [event for event in loop.notes.events if event[0] == "a"]
    assert told == [("a", ScrapeCause.REFUSED), ("a", ScrapeCause.RESET), ("a", None)]


async def test_v01_a_missing_family_is_told_once_per_pod_and_change() -> None:
    whole, idle = pod_sample(sample(1)), pod_sample(None)
    bare = replace(whole, missing=frozenset({"kv"}))
    older = replace(whole, missing=frozenset({"kv", "ttft"}))
    refused = ScrapeFailure(ScrapeCause.REFUSED, "connection refused")
    async with polling(discovery=FakeDiscovery(("a", "b"))) as loop:
        loop.watch()
        for answer in (whole, bare, refused, bare, idle, bare, older, whole):
            loop.scraper.answers["a"] = answer
            asked = loop.scraper.asked.count("a")
            await happens(lambda asked=asked: loop.scraper.asked.count("a") >= asked + 3)  # type: ignore[misc]

    told = [event for event in loop.notes.events if event[0].endswith("lacks")]
    assert told == [("a lacks", ["kv"]), ("a lacks", ["kv", "ttft"]), ("a lacks", [])]


async def test_a_large_fleet_is_asked_in_batches() -> None:
    pods = tuple(f"p{n}" for n in range(100))
    async with polling(discovery=FakeDiscovery(pods)) as loop:
        decision = await until(loop.watch(), lambda d: d.sequence >= 2 and d.counts.fresh == 100)

    assert decision.fleet.running == 100
