"""What an exposition says, the slow and plain way: prometheus_client's parser and loops.

Written apart from ``scaler/vllm``: it shares the table of names and nothing else.
"""

from __future__ import annotations

import math
from collections import defaultdict
from typing import TYPE_CHECKING

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text

from scaler.core.model import Count, Histogram, Latency, ModelSample, PodSample
from scaler.vllm import names

if TYPE_CHECKING:
    from collections.abc import Iterable

Series = dict[tuple[tuple[str, str], ...], float]


def samples_of(text: str, *, openmetrics: bool = False) -> dict[str, Series]:
    """All samples by name; twins that differ in ``pid`` alone become the highest."""
    found: dict[str, Series] = defaultdict(dict)
    for family in (parse_openmetrics if openmetrics else parse_text)(text):
        for sample in family.samples:
            if "server" in sample.labels:
                continue
            key = tuple(sorted((k, v) for k, v in sample.labels.items() if k != "pid"))
            found[sample.name][key] = max(sample.value, found[sample.name].get(key, -math.inf))
    return found


def expected(text: str, *, openmetrics: bool = False) -> PodSample:
    """The sample of a body with plausible values and whole histograms."""
    found = samples_of(text, openmetrics=openmetrics)
    declared = {family.name for family in (parse_openmetrics if openmetrics else parse_text)(text)}
    kv_name = next((name for name in names.KV_USAGE if found.get(name)), None)
    start = list(found.get(names.PROCESS_START, {}).values())
    models = {
        model: _model(model, found, kv_name)
        for name in names.SAMPLE_NAMES
        if name not in {names.CACHE_CONFIG, names.PROCESS_START, names.SLEEP_STATE, *names.KV_USAGE}
        if name != names.WAITING_BY_REASON and not name.endswith("_seconds_count")
        for model in (dict(key).get("model_name", "") for key in found.get(name, {}))
    }
    configs = [dict(key) for key in found.get(names.CACHE_CONFIG, {})]
    config = min(configs, key=lambda labels: labels.get("engine", ""), default={})
    return PodSample(
        models=models,
        process_start=start[0] if start else None,
        kv_name=kv_name,
        missing=_missing(found, declared) if models else frozenset(),
        cache_config={k: v for k, v in config.items() if k not in {"engine", "model_name"}},
    )


def _model(model: str, found: dict[str, Series], kv_name: str | None) -> ModelSample:
    def rows(name: str) -> list[tuple[dict[str, str], float]]:
        series = ((dict(key), value) for key, value in found.get(name, {}).items())
        return [(labels, v) for labels, v in series if labels.get("model_name", "") == model]

    def total(pairs: Iterable[tuple[dict[str, str], float]]) -> float:
        return sum((value for _, value in pairs), 0.0)

    kv = [value for _, value in rows(kv_name)] if kv_name else []
    gauges = (
        rows(names.RUNNING) if found.get(names.RUNNING) else rows("vllm:generation_tokens_total")
    )
    reasons: dict[str, float] = defaultdict(float)
    for labels, value in rows(names.WAITING_BY_REASON):
        reasons[labels.get("reason", "")] += value
    awake = [v for labels, v in rows(names.SLEEP_STATE) if labels.get("sleep_state") == "awake"]
    counts: dict[Count, float] = {}
    for count, aliases in names.COUNTERS.items():
        alias = next((name for name in aliases if found.get(name)), None)
        if alias and rows(alias):
            counts[count] = total(rows(alias))
    ended = [row for row in rows(names.REQUEST_SUCCESS) if row[0].get("finished_reason") != "abort"]
    if ended:
        counts[Count.FINISHED] = total(ended)
    failed = [row for row in ended if row[0].get("finished_reason") == "error"]
    if failed:
        counts[Count.ERRORS] = total(failed)
    return ModelSample(
        running=total(rows(names.RUNNING)),
        waiting=total(rows(names.WAITING)),
        kv_usage=max(kv, default=None),
        kv_usage_mean=sum(kv) / len(kv) if kv else None,
        waiting_by_reason=dict(reasons),
        engines=max(1, len({labels.get("engine", "") for labels, _ in gauges})),
        sleeping=bool(awake) and not any(awake),
        counts=counts,
        latencies={
            latency: histogram
            for latency, aliases in names.HISTOGRAMS.items()
            for alias in [next((a for a in aliases if found.get(f"{a}_bucket")), None)]
            if alias
            for histogram in [_histogram(rows(f"{alias}_bucket"), total(rows(f"{alias}_sum")))]
            if histogram is not None
        },
    )


def _histogram(buckets: list[tuple[dict[str, str], float]], total: float) -> Histogram | None:
    """Sum engines where every engine has the edge."""
    engines: dict[tuple[tuple[str, str], ...], dict[float, float]] = defaultdict(dict)
    for labels, value in buckets:
        rest = tuple(sorted((k, v) for k, v in labels.items() if k != "le"))
        engines[rest][float(labels["le"])] = value
    if not engines:
        return None
    edges = sorted(set.intersection(*(set(counts) for counts in engines.values())))
    counts = tuple(sum(engine[edge] for engine in engines.values()) for edge in edges)
    return Histogram(tuple(edges), counts, total)


def _missing(found: dict[str, Series], declared: set[str]) -> frozenset[str]:
    wanted = {
        "kv": names.KV_USAGE,
        "finished": ("vllm:request_success_total",),
        "prompt_tokens": ("vllm:prompt_tokens_total",),
        "generation_tokens": ("vllm:generation_tokens_total",),
        **{latency.value: names.HISTOGRAMS[latency] for latency in Latency},
    }
    held = {name for name, series in found.items() if series} | declared
    return frozenset(
        kind
        for kind, aliases in wanted.items()
        if not any({a, a.removesuffix("_total"), f"{a}_sum"} & held for a in aliases)
    )
