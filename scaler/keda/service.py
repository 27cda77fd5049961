"""KEDA's five calls, answered from the store. Translation only: no policy is decided here.

``IsActive`` and ``GetMetrics`` read the same published Decision and change nothing but the time a
trigger was last asked for. Nothing waits but a trigger's first contact, at most ``first_wait``
seconds; KEDA sets no deadline, so each unary call has its own.
"""
# ruff: noqa: N802 - the contract names the methods

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import structlog
from grpc import StatusCode

from scaler.errors import InvalidTrigger, TooManyTriggers
from scaler.keda._pb.externalscaler_pb2 import (
    GetMetricSpecResponse,
    GetMetricsResponse,
    IsActiveResponse,
    MetricSpec,
    MetricValue,
)
from scaler.keda._pb.externalscaler_pb2_grpc import ExternalScalerServicer
from scaler.keda.names import METRIC_NAME, is_ours, metric_name
from scaler.keda.observer import Unobserved
from scaler.keda.refusal import LONGEST_NAME, Refused, check_bounds, refused, shorten
from scaler.keda.streams import Streams

if TYPE_CHECKING:
    from collections.abc import Awaitable, Iterator
    from typing import TypeAlias

    from grpc.aio import ServicerContext

    from scaler.clock import Clock
    from scaler.core.model import Decision
    from scaler.keda._pb.externalscaler_pb2 import GetMetricsRequest, ScaledObjectRef
    from scaler.keda.observer import RpcObserver
    from scaler.store import Store, Trigger

    # The generated signatures name request and response again; nothing here needs them twice.
    Context: TypeAlias = ServicerContext[Any, Any]

FIRST_WAIT_SECONDS = 1.5  # a first sweep usually takes less; KEDA's next poll is 30 s away
DEADLINE_SECONDS = 2.0
STALE_SECONDS = 120.0  # a decision comes each scrape interval; older than this, none comes any more
MOST_STREAMS = 4096
TARGET = 1  # constant: KEDA writes a target into the HPA only when it reconciles
LARGEST_VALUE = 1_000_000_000  # the HPA reckons in int64 thousandths
REMEMBERED_COMPLAINTS = 1024

NO_DECISION = "no decision yet: the first look at the pods is not complete"
STUCK = "the scaler is stuck, or has stopped looking"
NO_STREAMED_SPECS = "the target is constant: GetMetricSpec is all there is to know"

# Refusals that the trigger's author caused: nothing is known to run for such a trigger.
MISTAKES = (StatusCode.INVALID_ARGUMENT, StatusCode.PERMISSION_DENIED)

Answer = TypeVar("Answer")
log = structlog.get_logger()


class Service(ExternalScalerServicer):
    """The servicer. Every public coroutine is one RPC of the contract.

    ``max_streams`` bounds the open streams of all triggers together. ``stale_after`` is the age, in
    seconds, up to which a decision counts. ``first_wait`` and ``deadline`` are seconds; tests
    shorten them.
    """

    def __init__(
        self,
        store: Store,
        clock: Clock,
        *,
        observer: RpcObserver | None = None,
        max_streams: int = MOST_STREAMS,
        stale_after: float = STALE_SECONDS,
        first_wait: float = FIRST_WAIT_SECONDS,
        deadline: float = DEADLINE_SECONDS,
    ) -> None:
        self._store = store
        self._clock = clock
        self._observer = observer or Unobserved()
        self._streams = Streams(max_streams, self._observer)
        self._stale_after = stale_after
        self._first_wait = first_wait
        self._deadline = deadline
        self._complaints: dict[tuple[str, str, int], str] = {}

    # --- the contract ---------------------------------------------------------------------------

    async def GetMetricSpec(
        self, request: ScaledObjectRef, context: Context
    ) -> GetMetricSpecResponse:
        """Return the metric's name and its constant target.

        A function of the metadata alone, valid or not, whatever is down: while this call fails KEDA
        counts no failure, and so never falls back (K02).
        """
        return await self._settle("GetMetricSpec", context, self._bounded(self._spec(request)))

    async def GetMetrics(self, request: GetMetricsRequest, context: Context) -> GetMetricsResponse:
        """Return the desired replicas as the one value, or an error where they are not known.

        NOT_FOUND for a name that is not ours, INVALID_ARGUMENT for bad metadata, PERMISSION_DENIED
        for endpoints that are not allowed, RESOURCE_EXHAUSTED beyond the bound on triggers,
        UNAVAILABLE when there is no valid decision, or no new one any more. KEDA's fallback works
        on any of them.
        """
        return await self._settle("GetMetrics", context, self._bounded(self._metrics(request)))

    async def IsActive(self, request: ScaledObjectRef, context: Context) -> IsActiveResponse:
        """Return whether there is anything to run for. Never fails.

        An error here would throw away the metrics that KEDA has already fetched, and False may
        scale to zero: whatever is not known is answered with True.
        """
        return await self._settle("IsActive", context, self._activity(request))

    async def StreamIsActive(  # type: ignore[override]  # gRPC takes a coroutine that writes, too
        self, request: ScaledObjectRef, context: Context
    ) -> None:
        """Send True when the stream opens on an active trigger, and on each rise to active.

        Never False: KEDA up to 2.17 scaled to zero on it, and later versions ignore it. Each True
        costs KEDA a write to the API server, so none is repeated. A coroutine, since a generator
        that is cancelled between two answers is only closed by garbage collection (P05).
        """
        await self._settle("StreamIsActive", context, self._push(request, context), timed=False)

    async def StreamMetricSpec(  # type: ignore[override]  # as StreamIsActive
        self,
        request: ScaledObjectRef,  # noqa: ARG002 - the same refusal for all
        context: Context,
    ) -> None:
        """Refuse on purpose: KEDA then keeps asking GetMetricSpec, whose answer never changes."""
        await self._settle("StreamMetricSpec", context, _no_specs(), timed=False)

    async def end_streams(self, timeout: float) -> bool:
        """End every stream with OK; return whether all ended within ``timeout`` seconds.

        KEDA resets its back-off to 2 s only after an orderly end; after an error it grows to 60 s.
        """
        return await self._streams.end(timeout)

    # --- the answers ----------------------------------------------------------------------------

    async def _spec(self, ref: ScaledObjectRef) -> GetMetricSpecResponse:
        name = metric_name(ref.scalerMetadata)
        spec = MetricSpec(metricName=name, targetSize=TARGET, targetSizeFloat=TARGET)
        return GetMetricSpecResponse(metricSpecs=[spec])

    async def _metrics(self, request: GetMetricsRequest) -> GetMetricsResponse:
        if not is_ours(request.metricName):
            text = f"unknown metric; this scaler serves {METRIC_NAME}"
            raise Refused(StatusCode.NOT_FOUND, text)
        try:
            trigger = self._registered(request.scaledObjectRef)
        except Refused as failure:
            # KEDA does not ask for the activity once this fails: who wrote it must hear of it here.
            self._complain(request.scaledObjectRef, failure)
            raise
        decision = await trigger.first_decision(self._first_wait)
        _check_allowed(trigger)
        if decision is None:
            raise Refused(StatusCode.UNAVAILABLE, NO_DECISION)
        if self._clock.now().monotonic - decision.at.monotonic > self._stale_after:
            text = f"the newest decision is over {self._stale_after:g} s old: {STUCK}"
            raise Refused(StatusCode.UNAVAILABLE, text)
        if not decision.valid:
            raise Refused(StatusCode.UNAVAILABLE, shorten(decision.message))
        # KEDA reads the float when it is above zero and the integer otherwise, old ones only the
        # integer (K06); a negative or huge value would become the largest HPA.
        desired = min(max(decision.desired, 0), LARGEST_VALUE)
        value = MetricValue(
            metricName=request.metricName, metricValue=desired, metricValueFloat=desired
        )
        return GetMetricsResponse(metricValues=[value])

    async def _activity(self, ref: ScaledObjectRef) -> IsActiveResponse:
        try:
            active = await self._bounded(self._is_active(ref))
        except Refused as failure:
            self._complain(ref, failure)
            active = True
        return IsActiveResponse(result=active)

    async def _is_active(self, ref: ScaledObjectRef) -> bool:
        try:
            trigger = self._registered(ref)
            decision = await trigger.first_decision(self._first_wait)
            if decision is not None:
                self._complaints.pop(_about(ref), None)
                return decision.active
            _check_allowed(trigger)
        except Refused as failure:
            # A mistake made while editing must not put running pods to zero: what was answered for
            # the metadata before it still counts, as long as that is registered.
            before = self._newest(ref)
            if before is None and failure.code not in MISTAKES:
                raise
            self._complain(ref, failure)
            return before is not None and before.active
        return True

    async def _push(self, ref: ScaledObjectRef, context: Context) -> None:
        trigger = self._registered(ref)
        _check_allowed(trigger)
        decisions = trigger.decisions()
        active = False
        with self._streams.opened(), self._store.streaming(trigger):
            while (decision := await self._streams.next(decisions)) is not None:
                if decision.active and not active:
                    await context.write(IsActiveResponse(result=True))
                active = decision.active

    # --- what they are made of ------------------------------------------------------------------

    def _registered(self, ref: ScaledObjectRef) -> Trigger:
        metadata = dict(ref.scalerMetadata)
        check_bounds(ref.namespace, ref.name, metadata)
        try:
            return self._store.register(ref.namespace, ref.name, metadata)
        except (InvalidTrigger, TooManyTriggers) as error:
            raise refused(error) from error

    def _newest(self, ref: ScaledObjectRef) -> Decision | None:
        triggers = self._store.of_object(ref.namespace, ref.name)
        decisions = [trigger.decision for trigger in triggers if trigger.decision is not None]
        return max(decisions, key=lambda decision: decision.at.monotonic, default=None)

    async def _bounded(self, work: Awaitable[Answer]) -> Answer:
        """Return what ``work`` gives, or refuse when it takes too long or breaks."""
        try:
            async with asyncio.timeout(self._deadline):
                with _breakage_told():
                    return await work
        except TimeoutError:
            text = f"no answer within {self._deadline:g} s"
            raise Refused(StatusCode.DEADLINE_EXCEEDED, text) from None

    async def _settle(
        self, method: str, context: Context, work: Awaitable[Answer], *, timed: bool = True
    ) -> Answer:
        """Return what ``work`` gives; turn a refusal into its status; tell the observer."""
        started = self._clock.now().monotonic
        code = StatusCode.CANCELLED  # what it stays when the caller goes away
        try:
            with _breakage_told():
                answer = await work
            code = StatusCode.OK
        except Refused as refusal:
            code = refusal.code
            await context.abort(code, refusal.details)
        finally:
            seconds = self._clock.now().monotonic - started
            self._observer.rpc(method, code.name, seconds if timed else None)
        return answer

    def _complain(self, ref: ScaledObjectRef, failure: Refused) -> None:
        """Log why a trigger has no decision to answer from, once for each change of the reason."""
        about = _about(ref)
        if self._complaints.get(about) == failure.details:
            return
        while len(self._complaints) >= REMEMBERED_COMPLAINTS:
            del self._complaints[next(iter(self._complaints))]
        self._complaints[about] = failure.details
        log.warning(
            "trigger not answered",
            namespace=about[0],
            scaledobject=about[1],
            code=failure.code.name,
            problem=failure.details,
        )


async def _no_specs() -> None:
    raise Refused(StatusCode.UNIMPLEMENTED, NO_STREAMED_SPECS)


def _about(ref: ScaledObjectRef) -> tuple[str, str, int]:
    """Name a trigger in the memory of complaints: two of one ScaledObject differ in metadata."""
    metadata = hash(frozenset(ref.scalerMetadata.items()))
    return ref.namespace[:LONGEST_NAME], ref.name[:LONGEST_NAME], metadata


def _check_allowed(trigger: Trigger) -> None:
    if trigger.refusal is not None:
        raise Refused(StatusCode.PERMISSION_DENIED, shorten(trigger.refusal))


@contextmanager
def _breakage_told() -> Iterator[None]:
    """Log what should not happen, and refuse without telling the caller more than that."""
    try:
        yield
    except (Refused, TimeoutError):
        raise
    except Exception as error:
        log.exception("call broke")
        raise Refused(StatusCode.INTERNAL, "internal error; see the scaler's log") from error
