"""The demo: the scaler, something to scrape, and a stand-in for KEDA, in one process."""

from __future__ import annotations

import asyncio
import socket
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

from scaler.app import App
from scaler.config.settings import Address, ScrapeSettings, Settings
from scaler.config.trigger import parse_trigger
from scaler.demo.curve import DATA, SOURCE, targets
from scaler.demo.operator import Manifest, Operator
from scaler.demo.playback import Fleet, Reel
from scaler.replay import hpa, keda

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping, Sequence

    from scaler.app import AppAddresses
    from scaler.clock import Clock
    from scaler.core.model import Decision
    from scaler.demo.operator import Standing

RECORDING = DATA / "h200-8b.standup.metrics.jsonl.xz"
RECORDING_BEGINS = 20.0  # seconds in: ten quiet ones, then the stand-up begins
PROMISE = 3.0  # seconds to the first token, as in the morning stand-up of the design
# The recording is four minutes long: with the default of 300 s the HPA would never come down.
SCALE_DOWN_WINDOW = 60.0
NAMESPACE, NAME = "demo", "vllm"


class Display(Protocol):
    """What shows decisions."""

    def show(self, decision: Decision, standing: Standing) -> None:
        """Show where things stand."""
        ...

    def trouble(self, text: str) -> None:
        """Show why there is no decision to show."""
        ...


@dataclass(frozen=True, slots=True)
class Plan:
    """What to demonstrate; seconds. Without endpoints it is the playback.

    The addresses are wishes: a port that is taken gives way to any free one.
    """

    grpc_address: Address
    http_address: Address
    page_address: Address
    endpoints: tuple[str, ...] = ()
    pods: int = 3
    metadata: tuple[tuple[str, str], ...] = ()
    scrape_interval: float = 2.0
    pace: float = 5.0  # from one poll, and from one sync, to the next
    max_replicas: int = 12

    @property
    def plays(self) -> bool:
        """Whether the pods are a playback."""
        return not self.endpoints

    def check(self) -> tuple[str, ...]:
        """Return warnings about the trigger. Raises InvalidTrigger with every problem of it."""
        _, warnings = parse_trigger(_metadata(self, self.endpoints))
        return warnings


@dataclass(frozen=True, slots=True)
class Stage:
    """A demo that is set up: the scaler runs, the pods are there, KEDA has not asked yet."""

    plan: Plan
    clock: Clock
    app: App
    addresses: AppAddresses
    urls: tuple[str, ...]
    metadata: Mapping[str, str]

    async def play(self, display: Display, stop: asyncio.Event) -> None:
        """Let KEDA ask, and show every decision until ``stop`` is set."""
        address = Address(self.plan.grpc_address.host, self.addresses.grpc_port)

        def asked(standing: Standing) -> None:
            # A trigger that is refused never gets a decision: the error is all there is to show.
            if standing.answers.error and not self._decided:
                display.trouble(standing.answers.error)

        operator = Operator(str(address), self._manifest(), self.clock, asked=asked)
        async with asyncio.TaskGroup() as group:
            acts = (self._show(display, operator), operator.run())
            tasks = [group.create_task(act) for act in acts]
            await self.app.run(stop)
            for task in tasks:
                task.cancel()

    @property
    def _decided(self) -> bool:
        return any(trigger.decision is not None for trigger in self.app.store.triggers())

    async def _show(self, display: Display, operator: Operator) -> None:
        store = self.app.store
        while not store.triggers():  # the first call registers ours
            await store.arrived.wait()
        async for decision in store.triggers()[0].decisions():
            display.show(decision, operator.standing)

    def _manifest(self) -> Manifest:
        behavior = hpa.Behavior(
            up=replace(hpa.DEFAULT_UP, tolerance=0.0),
            down=replace(hpa.DEFAULT_DOWN, tolerance=0.0, window=SCALE_DOWN_WINDOW),
        )
        scaled = keda.ScaledObject(
            min_replicas=1,
            max_replicas=self.plan.max_replicas,
            polling_interval=self.plan.pace,
            fallback=keda.Fallback(3, 2, keda.FallbackBehavior.CURRENT_IF_HIGHER),
        )
        return Manifest(NAMESPACE, NAME, self.metadata, scaled, behavior, self.plan.pace)

    def heading(self) -> list[str]:
        """Say what is shown, what of it is real, and where to look."""
        plan, ports = self.plan, self.addresses
        told = [f"{key} {value}" for key, value in self.metadata.items() if key != "endpoints"]
        page = Address(plan.page_address.host, ports.page_port)
        http = Address(plan.http_address.host, ports.http_port)
        grpc = Address(plan.grpc_address.host, ports.grpc_port)
        intro = _playback(plan.pods) if plan.plays else _watching(self.urls)
        return [
            *intro,
            f"A stand-in asks as KEDA and the HPA do, every {plan.pace:g} s (they: 30 s and 15 s),",
            f"with a scale-down window of {SCALE_DOWN_WINDOW:g} s (300 s) and tolerance 0 (0.1).",
            f"Trigger: {', '.join(told)}",
            f"Page http://{page}/  metrics http://{http}/metrics  gRPC {grpc}  (Ctrl-C ends)",
        ]


@asynccontextmanager
async def staged(plan: Plan, clock: Clock) -> AsyncIterator[Stage]:
    """Set the demo up, and take it down again."""
    async with AsyncExitStack() as stack:
        urls = plan.endpoints
        if plan.plays:
            reel = await asyncio.to_thread(Reel.load, RECORDING)
            fleet = Fleet(reel, clock, pods=plan.pods, begin=RECORDING_BEGINS)
            urls = (await stack.enter_async_context(fleet)).urls
        app = App(_settings(plan, urls), clock=clock)
        stack.push_async_callback(app.stop)
        yield Stage(plan, clock, app, await app.start(), urls, _metadata(plan, urls))


def _settings(plan: Plan, urls: Sequence[str]) -> Settings:
    hosts = {urlsplit(url).hostname or "" for url in urls}
    return Settings(
        grpc_address=free_or_any(plan.grpc_address),
        http_address=free_or_any(plan.http_address),
        page_address=free_or_any(plan.page_address),
        scrape=ScrapeSettings(interval=plan.scrape_interval),
        allow_endpoints=tuple(sorted(hosts)),
    )


def _metadata(plan: Plan, urls: Sequence[str]) -> dict[str, str]:
    return {
        "endpoints": ",".join(urls),
        "maxReplicas": str(plan.max_replicas),
        **(targets(PROMISE) if plan.plays else {}),
        **dict(plan.metadata),
    }


def _playback(pods: int) -> Sequence[str]:
    crowd = "one pod plays" if pods == 1 else f"each of {pods} pods plays"
    return (
        f"PLAYBACK, not a live fleet: {crowd} the recording of one real vLLM server:",
        "Llama 8B on an H200, a morning stand-up at 1.6 times what it can carry, over and over.",
        "Recorded pods cannot react: more replicas do not shorten these queues.",
        f"Targets: {SOURCE}: the last level with p95 TTFT under {PROMISE:g} s.",
    )


def _watching(urls: Sequence[str]) -> Sequence[str]:
    return (
        f"Watching {', '.join(urls)}",
        "Nothing is scaled: the HPA column is what Kubernetes would set.",
    )


def free_or_any(address: Address) -> Address:
    """Return the address, or the same host with port 0 when the port is taken."""
    family = socket.AF_INET6 if ":" in address.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        # As the servers do: a port on which old connections linger is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address.host, address.port))
        except OSError:
            return Address(address.host, 0)
    return address
