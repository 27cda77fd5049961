"""The derived metrics: a Prometheus collector over the published decisions.

Reading changes nothing, and a trigger's series vanish with the trigger: the families are built at
each scrape from what the store holds then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from scaler.exporter.decision_families import DECISION
from scaler.exporter.family import IDENTITY, PREFIX, Scene, label_value
from scaler.exporter.fleet_families import FLEET
from scaler.exporter.pod_families import POD_DETAIL, PODS
from scaler.exporter.writer import header, identity_text, sample_text, write_family

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from prometheus_client import Metric

    from scaler.clock import Clock
    from scaler.exporter.family import Family
    from scaler.store import Store, Trigger, TriggerKey

FAMILIES = (*DECISION, *PODS, *FLEET)

REGISTERED = PREFIX + "registered_triggers"
REGISTERED_HELP = "Triggers that KEDA asks about."
REFUSED = PREFIX + "refused"
REFUSED_HELP = "1 while --allow-endpoints bars what the trigger's metadata names."

MISTAKEN = PREFIX + "metadata_invalid"
MISTAKEN_HELP = "1 while KEDA asks with metadata that is no policy: every answer is an error."


class DerivedCollector(Collector):
    """Exports every trigger of ``store``. ``pod_detail`` adds one series a pod and family."""

    def __init__(self, store: Store, clock: Clock, *, pod_detail: bool = False) -> None:
        self._store = store
        self._clock = clock
        self._families = (*FAMILIES, *POD_DETAIL) if pod_detail else FAMILIES

    def describe(self) -> Iterable[Metric]:
        """Name the families without reading anything, so that registering has no effects."""
        yield GaugeMetricFamily(REGISTERED, REGISTERED_HELP)
        yield GaugeMetricFamily(REFUSED, REFUSED_HELP, labels=IDENTITY)
        yield GaugeMetricFamily(MISTAKEN, MISTAKEN_HELP, labels=IDENTITY)
        for family in self._families:
            yield _empty(family)

    def collect(self) -> Iterator[Metric]:
        """Yield all families, of all triggers, at one instant."""
        now = self._clock.now().monotonic
        triggers = self._store.triggers()
        yield GaugeMetricFamily(REGISTERED, REGISTERED_HELP, value=len(triggers))
        refused = GaugeMetricFamily(REFUSED, REFUSED_HELP, labels=IDENTITY)
        for trigger in triggers:
            refused.add_metric(_identity(trigger), float(trigger.refusal is not None))
        yield refused
        mistaken = [_identity_of(key) for key in self._store.mistaken()]
        invalid = GaugeMetricFamily(MISTAKEN, MISTAKEN_HELP, labels=IDENTITY)
        for identity in mistaken:
            invalid.add_metric(identity, 1.0)
        yield invalid
        scenes = [(_identity(trigger), _scene(trigger, now)) for trigger in triggers]
        scenes += [(identity, None) for identity in mistaken]
        for family in self._families:
            yield _filled(family, scenes)

    def write(self, *, openmetrics: bool) -> Iterator[str]:
        """Yield what :meth:`collect` has as exposition text, in small pieces."""
        now = self._clock.now().monotonic
        triggers = self._store.triggers()
        scenes = [(identity_text(_identity(t)), _scene(t, now)) for t in triggers]
        yield header(REGISTERED, REGISTERED_HELP, openmetrics=openmetrics)
        yield f"{REGISTERED} {float(len(triggers))}\n"
        yield header(REFUSED, REFUSED_HELP, openmetrics=openmetrics)
        for trigger, (identity, _) in zip(triggers, scenes, strict=True):
            yield sample_text(REFUSED, identity, float(trigger.refusal is not None))
        mistaken = [identity_text(_identity_of(key)) for key in self._store.mistaken()]
        yield header(MISTAKEN, MISTAKEN_HELP, openmetrics=openmetrics)
        for identity in mistaken:
            yield sample_text(MISTAKEN, identity, 1.0)
        scenes += [(identity, None) for identity in mistaken]
        for family in self._families:
            yield from write_family(family, scenes, openmetrics=openmetrics)


def _empty(family: Family) -> GaugeMetricFamily | CounterMetricFamily:
    kind = CounterMetricFamily if family.name.endswith("_total") else GaugeMetricFamily
    return kind(family.full_name, family.help, labels=(*IDENTITY, *family.labels))


def _filled(family: Family, scenes: Sequence[tuple[tuple[str, ...], Scene | None]]) -> Metric:
    metric = _empty(family)
    for identity, scene in scenes:
        if scene is None:
            if family.undecided is not None:
                metric.add_metric(identity, family.undecided)
            continue
        for labels, value in family.read(scene):
            if value is not None:
                metric.add_metric((*identity, *labels), value)
    return metric


def _identity(trigger: Trigger) -> tuple[str, ...]:
    return _identity_of(trigger.key)


def _identity_of(key: TriggerKey) -> tuple[str, ...]:
    return label_value(key.namespace), label_value(key.name), key.id


def _scene(trigger: Trigger, now: float) -> Scene | None:
    decision = trigger.decision  # read once: another may be published meanwhile
    if decision is None or trigger.refusal is not None:
        return None
    # A decision can be published after ``now`` was read; an age is never negative.
    return Scene(decision, trigger.policy, trigger.usage, max(0.0, now - decision.at.monotonic))
