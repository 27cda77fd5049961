"""docs/metrics.md and the code name the same families, types and labels."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from scaler.exporter.family import IDENTITY
from scaler.exporter.telemetry import Telemetry

if TYPE_CHECKING:
    from collections.abc import Iterable

    from exporter.conftest import Fleet
    from prometheus_client import Metric

DOCUMENT = Path(__file__).parents[2] / "docs" / "metrics.md"
ROW = re.compile(
    r"^\| `(vllm_scaler_\w+)` \| (\w+) \| (.*?) \| ([^|]+) \| ([^|]+) \|$", re.MULTILINE
)


def documented() -> dict[str, tuple[str, set[str]]]:
    return {
        name: (kind, set(re.findall(r"`(\w+)`", labels)))
        for name, kind, labels, _, _ in ROW.findall(DOCUMENT.read_text())
    }


def exported(metrics: Iterable[Metric]) -> dict[str, tuple[str, set[str]]]:
    found: dict[str, tuple[str, set[str]]] = {}
    for metric in metrics:
        suffix = {"counter": "_total", "info": "_info"}.get(metric.type, "")
        kind = "gauge" if metric.type == "info" else metric.type
        labels = {label for sample in metric.samples for label in sample.labels}
        found[metric.name + suffix] = (kind, labels - {*IDENTITY, "le"})
    return found


def test_docs_and_code_list_the_same_families(fleet: Fleet) -> None:
    """Every family with a sample: type and labels agree as well."""
    fleet.publish(fleet.busy())
    fleet.publish(fleet.blind(), "judge")
    telemetry = Telemetry()
    telemetry.rpc("GetMetrics", "OK", 0.001)
    derived = exported(fleet.collector(pod_detail=True).collect())
    own = {
        name: family
        for name, family in exported(telemetry.registry.collect()).items()
        if name.startswith("vllm_scaler_")
    }
    written = documented()

    assert {*derived, *own} == set(written)
    # ITL is absent from the hand-built decisions: its labels are those of its siblings.
    silent = {"vllm_scaler_inter_token_latency_seconds"}
    silent |= {"vllm_scaler_inter_token_latency_bound_seconds"}
    for name, family in {**derived, **own}.items():
        if name not in silent:
            assert family == written[name], name


def test_the_documentation_uses_the_words_of_the_exposition(fleet: Fleet) -> None:
    words = {name: meaning for name, _, _, _, meaning in ROW.findall(DOCUMENT.read_text())}
    telemetry = Telemetry()
    for metric in (
        *fleet.collector(pod_detail=True).describe(),
        *telemetry.registry.collect(),
    ):
        suffix = {"counter": "_total", "info": "_info"}.get(metric.type, "")
        if metric.name.startswith("vllm_scaler_"):
            assert words[metric.name + suffix] == metric.documentation
