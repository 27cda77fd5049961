"""A stand-in for KEDA's operator and Kubernetes' HPA controller, over real gRPC.

It asks the scaler as they do (reference on KEDA, section 2.3): at each poll ``GetMetricSpec``,
``GetMetrics``, ``IsActive``; at each sync of the HPA, while there are replicas, the same three.
What it does with the answers is :mod:`scaler.replay.keda` and :mod:`scaler.replay.hpa`. The pods it
asks for are taken to be there and ready at once.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import grpc

from scaler.keda._pb.externalscaler_pb2 import GetMetricsRequest, ScaledObjectRef
from scaler.keda._pb.externalscaler_pb2_grpc import ExternalScalerStub
from scaler.replay import hpa, keda

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from scaler.clock import Clock

# KEDA sets no deadline; a demo should not hang with what it shows.
RPC_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a ScaledObject's manifest says, with one trigger; ``sync_period`` is the cluster's."""

    namespace: str
    name: str
    metadata: Mapping[str, str]
    scaled: keda.ScaledObject
    behavior: hpa.Behavior | None = None
    sync_period: float = hpa.SYNC_PERIOD


@dataclass(frozen=True, slots=True)
class Answers:
    """What one round of the three calls said. ``error`` tells which call failed, and how."""

    target: float | None = None
    value: float | None = None
    active: bool | None = None
    error: str = ""


@dataclass(frozen=True, slots=True)
class Standing:
    """Where the workload stands: replicas set, and what the last round and the last sync said."""

    replicas: int
    answers: Answers = Answers()
    outcome: hpa.Outcome | None = None


class Operator:
    """Polls and syncs for one ScaledObject against the scaler at ``address``.

    ``asked`` is called after each round of the three calls with where things stand then.
    """

    def __init__(
        self,
        address: str,
        manifest: Manifest,
        clock: Clock,
        *,
        replicas: int = 1,
        asked: Callable[[Standing], None] = lambda _: None,
    ) -> None:
        self._asked = asked
        self._address = address
        self._manifest = manifest
        self._scaled = manifest.scaled
        self._clock = clock
        self._activity = keda.Activity(created=clock.now().monotonic)
        self._health = keda.Health()
        self._state = hpa.State()
        self.standing = Standing(replicas)

    async def run(self) -> None:
        """Poll and sync until cancelled, the first of each at once."""
        async with grpc.aio.insecure_channel(self._address) as channel:
            stub: ExternalScalerStub = ExternalScalerStub(channel)
            async with asyncio.TaskGroup() as group:
                polling, syncing = self._scaled.polling_interval, self._manifest.sync_period
                group.create_task(_every(polling, lambda: self.poll(stub)))
                group.create_task(_every(syncing, lambda: self.sync(stub)))

    async def poll(self, stub: ExternalScalerStub) -> None:
        """Do one poll of KEDA's, which decides between zero and the first replica."""
        answers = await self._ask(stub)
        # A fallback that stands in for a value counts as activity since KEDA 2.19.
        served = self._served(answers)
        active = True if answers.active is None and served is not None else answers.active
        now = self._clock.now().monotonic
        replicas, self._activity = keda.poll(
            self._scaled, self.standing.replicas, (active,), self._activity, now
        )
        self.standing = replace(self.standing, replicas=replicas, answers=answers)
        self._asked(self.standing)

    async def sync(self, stub: ExternalScalerStub) -> None:
        """Do one sync of the HPA's, which sleeps at zero replicas."""
        if self.standing.replicas == 0:
            return
        answers = await self._ask(stub)
        value = self._served(answers)
        current = self.standing.replicas
        controller = hpa.Hpa(
            metrics=(hpa.Metric(answers.target or 1.0),),
            min_replicas=self._scaled.hpa_min,
            max_replicas=self._scaled.max_replicas,
            behavior=self._manifest.behavior,
        )
        scale = hpa.Scale(current, current, current)
        now = self._clock.now().monotonic
        done, self._state = hpa.sync(controller, scale, (value,), self._state, now)
        self.standing = Standing(done.replicas, answers, done.outcome)
        self._asked(self.standing)

    def _served(self, answers: Answers) -> float | None:
        """Return what KEDA makes of a value. Without a spec it cannot even count the failure."""
        if answers.target is None:
            return None
        value, self._health = keda.served_value(
            self._scaled, answers.value, answers.target, self.standing.replicas, self._health
        )
        return value

    async def _ask(self, stub: ExternalScalerStub) -> Answers:
        ref = ScaledObjectRef(
            name=self._manifest.name,
            namespace=self._manifest.namespace,
            scalerMetadata=dict(self._manifest.metadata),
        )
        answers = Answers()
        try:
            spec = (await stub.GetMetricSpec(ref, timeout=RPC_SECONDS)).metricSpecs[0]
            answers = Answers(target=spec.targetSizeFloat or float(spec.targetSize))
            request = GetMetricsRequest(scaledObjectRef=ref, metricName=spec.metricName)
            metric = (await stub.GetMetrics(request, timeout=RPC_SECONDS)).metricValues[0]
            value = metric.metricValueFloat if metric.metricValueFloat > 0 else metric.metricValue
            active = (await stub.IsActive(ref, timeout=RPC_SECONDS)).result
        except grpc.aio.AioRpcError as error:
            return replace(answers, error=f"{error.code().name}: {error.details()}")
        return replace(answers, value=float(value), active=active)


async def _every(seconds: float, work: Callable[[], Awaitable[None]]) -> None:
    while True:
        await work()
        await asyncio.sleep(seconds)
