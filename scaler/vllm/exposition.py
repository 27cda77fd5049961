"""What one ``/metrics`` body says about a pod: text -> PodSample, or why it says nothing. Pure.

Engines of a pod are combined: requests, counters and buckets are summed, KV use is the fullest
engine's, with the mean beside it. A body that cannot be trusted is a failure with a cause, never
zeros; a pod that declares vLLM's families and has not served yet is idle.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Final

from scaler.core.model import Count, Latency, ModelSample, PodSample, ScrapeCause, ScrapeFailure
from scaler.vllm import names
from scaler.vllm.histograms import Flaw, Incomplete, read_histograms
from scaler.vllm.series import Malformed, looks_like_exposition, read_series

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from scaler.core.model import Histogram
    from scaler.vllm.series import SeriesSet

# Families that every version since 0.8.5 has: what their absence is called, and by which sample or
# declaration each alias shows.
_EXPECTED: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "kv": tuple((name, name) for name in names.KV_USAGE),
    Count.FINISHED: ((names.REQUEST_SUCCESS, names.REQUEST_SUCCESS),),
    **{
        count.value: tuple((name, name) for name in names.COUNTERS[count])
        for count in (Count.PROMPT_TOKENS, Count.GENERATION_TOKENS)
    },
    **{
        latency.value: tuple((f"{name}_sum", name) for name in names.HISTOGRAMS[latency])
        for latency in Latency
    },
}
# prometheus_client's OpenMetrics writer (0.26) turns the colon of a sample's name into this, not
# that of its family; a body so written would look idle.
_ESCAPED: Final = b"\nvllm_"
# How a counter is declared, in the text format and in OpenMetrics.
_TEXT_MARK: Final = b"# TYPE vllm:prompt_tokens_total counter"
_OPENMETRICS_MARK: Final = b"# TYPE vllm:prompt_tokens counter"
_LIKELY: Final = "(stats logging disabled, or wrong port?)"


class _Unusable(Exception):
    def __init__(self, cause: ScrapeCause, detail: str) -> None:
        self.failure = ScrapeFailure(cause, detail)
        super().__init__(detail)


def read_exposition(body: bytes, *, openmetrics: bool | None = None) -> PodSample | ScrapeFailure:
    """Read one scraped body.

    ``openmetrics`` is what the Content-Type says; None: tell by the body. It matters only for the
    end of the body, where OpenMetrics must say ``# EOF``.
    """
    try:
        _check_whole(body, openmetrics=openmetrics)
        series = read_series(body)
        if not series[names.RUNNING] and _ESCAPED in body:
            body = body.replace(_ESCAPED, b"\nvllm:")
            series = read_series(body)
        return _sample(body, series)
    except _Unusable as error:
        return error.failure
    except Malformed as error:
        return ScrapeFailure(ScrapeCause.NOT_METRICS, str(error))
    except Incomplete as error:
        return ScrapeFailure(ScrapeCause.TRUNCATED, str(error))


def _check_whole(body: bytes, *, openmetrics: bool | None) -> None:
    if not body or body.isspace():
        raise _Unusable(ScrapeCause.NO_VLLM_METRICS, f"the answer is empty {_LIKELY}")
    ended = body[-16:].rstrip().endswith(b"# EOF")
    if not body.endswith(b"\n") and not ended:
        _check_exposition(body)
        raise _Unusable(ScrapeCause.TRUNCATED, "the last line is cut short")
    if openmetrics is None and not ended:
        openmetrics = _TEXT_MARK not in body and _OPENMETRICS_MARK in body
    if openmetrics and not ended:
        raise _Unusable(ScrapeCause.TRUNCATED, "OpenMetrics without # EOF")


def _check_exposition(body: bytes) -> None:
    if not looks_like_exposition(body):
        raise _Unusable(ScrapeCause.NOT_METRICS, "the answer is no Prometheus exposition")


def _sample(body: bytes, series: SeriesSet) -> PodSample:
    rejected: Counter[str] = Counter()
    running, waiting = _requests(series, names.RUNNING), _requests(series, names.WAITING)
    kv_name, kv = _kv_usage(series, rejected)
    reasons = _waiting_by_reason(series, rejected)
    counts = _counts(series, rejected)
    latencies = _latencies(series, rejected)
    engines, sleeping = _engines(series), _sleeping(series)
    models: dict[str, ModelSample] = {}
    for model in running.keys() | waiting.keys() | counts.keys() | latencies.keys():
        if model not in running or model not in waiting:
            _check_idle(model in running, model in waiting, counts[model], latencies[model])
        usages = kv[model]
        models[model] = ModelSample(
            running=running.get(model, 0.0),
            waiting=waiting.get(model, 0.0),
            kv_usage=max(usages, default=None),
            kv_usage_mean=sum(usages) / len(usages) if usages else None,
            waiting_by_reason=reasons[model],
            engines=len(engines[model]) or 1,
            sleeping=model in sleeping,
            counts=counts[model],
            latencies=latencies[model],
        )
    if not models:
        _check_declared(body, series)
    return PodSample(
        models=models,
        process_start=next((value for _, value in series.values(names.PROCESS_START)), None),
        rejected=dict(rejected),
        kv_name=kv_name,
        missing=_missing(body, series) if models else frozenset(),
        cache_config=_cache_config(series),
    )


# --- may this be zero? ------------------------------------------------------------------------


def _check_idle(
    has_running: bool,
    has_waiting: bool,
    counts: Mapping[Count, float],
    latencies: Mapping[Latency, Histogram],
) -> None:
    """Let gauges be absent only while nothing was served, as with several API servers (0.32)."""
    if has_running != has_waiting:
        lacking = names.WAITING if has_running else names.RUNNING
        raise _Unusable(ScrapeCause.TRUNCATED, f"{lacking} is missing beside its sibling")
    served = any(count for kind, count in counts.items() if kind is not Count.REJECTIONS)
    if served or any(histogram.count for histogram in latencies.values()):
        raise _Unusable(ScrapeCause.NO_VLLM_METRICS, f"requests were served, no {names.RUNNING}")


def _check_declared(body: bytes, series: SeriesSet) -> None:
    """Tell a vLLM that has not served yet from an endpoint that is none."""
    _check_exposition(body)
    if series.routed:
        detail = "only a router's series (label server): name the vLLM pods"
        raise _Unusable(ScrapeCause.NO_VLLM_METRICS, detail)
    # 0.8.5 with the V0 engine shows this one family until its first request.
    if not series[names.CACHE_CONFIG] and not _declared(body, names.RUNNING):
        detail = f"no {names.PREFIX}* families {_LIKELY}"
        raise _Unusable(ScrapeCause.NO_VLLM_METRICS, detail)


def _missing(body: bytes, series: SeriesSet) -> frozenset[str]:
    return frozenset(
        kind
        for kind, aliases in _EXPECTED.items()
        if not any(series[sample] or _declared(body, family) for sample, family in aliases)
    )


def _declared(body: bytes, name: str) -> bool:
    """Whether a TYPE line names the family; OpenMetrics leaves a counter's _total out."""
    family = name.removesuffix("_total").encode()
    return any(b"# TYPE " + family + end in body for end in (b" ", b"_total "))


# --- one meaning each -------------------------------------------------------------------------


def _requests(series: SeriesSet, name: str) -> dict[str, float]:
    """Sum a gauge of requests over engines. It decides, so a value that cannot be fails all."""
    of_model: dict[str, float] = {}
    for key, value in series.values(name):
        if not math.isfinite(value) or value < 0:
            raise _Unusable(ScrapeCause.NON_FINITE, f"{name} is {value}")
        of_model[key.model] = of_model.get(key.model, 0.0) + value
    return of_model


def _kv_usage(
    series: SeriesSet, rejected: Counter[str]
) -> tuple[str | None, Mapping[str, list[float]]]:
    """Return the name in use and the engines' ratios. Never clamp: 37.5 may be anything."""
    of_model: defaultdict[str, list[float]] = defaultdict(list)
    name = _first(series, names.KV_USAGE)
    for key, value in series.values(name) if name else ():
        if _counted(value, rejected, highest=1.0):
            of_model[key.model].append(value)
    return name, of_model


def _waiting_by_reason(
    series: SeriesSet, rejected: Counter[str]
) -> Mapping[str, Mapping[str, float]]:
    of_model: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for key, value in series.values(names.WAITING_BY_REASON):
        if _counted(value, rejected):
            reasons, reason = of_model[key.model], key.get("reason")
            reasons[reason] = reasons.get(reason, 0.0) + value
    return of_model


def _counts(series: SeriesSet, rejected: Counter[str]) -> Mapping[str, Mapping[Count, float]]:
    of_model: defaultdict[str, dict[Count, float]] = defaultdict(dict)

    def add(kind: Count, model: str, value: float) -> None:
        of_model[model][kind] = of_model[model].get(kind, 0.0) + value

    for kind, aliases in names.COUNTERS.items():
        name = _first(series, aliases)
        for key, value in series.values(name) if name else ():
            if _counted(value, rejected):
                add(kind, key.model, value)
    for key, value in series.values(names.REQUEST_SUCCESS):
        reason = key.get("finished_reason")
        if reason != names.NOT_FINISHED and _counted(value, rejected):
            add(Count.FINISHED, key.model, value)
            if reason == names.FAILED:
                add(Count.ERRORS, key.model, value)
    return of_model


def _latencies(
    series: SeriesSet, rejected: Counter[str]
) -> Mapping[str, Mapping[Latency, Histogram]]:
    of_model: defaultdict[str, dict[Latency, Histogram]] = defaultdict(dict)
    for latency, aliases in names.HISTOGRAMS.items():
        name = next((alias for alias in aliases if series[f"{alias}_bucket"]), None)
        if name is None:
            continue
        histograms = read_histograms(name, series)
        for model, histogram in histograms.items():
            if isinstance(histogram, Flaw):
                rejected[histogram] += 1
            else:
                of_model[model][latency] = histogram
    return of_model


def _engines(series: SeriesSet) -> Mapping[str, set[str]]:
    of_model: defaultdict[str, set[str]] = defaultdict(set)
    for key in series[names.RUNNING] or series[names.COUNTERS[Count.GENERATION_TOKENS][0]]:
        of_model[key.model].add(key.engine)
    return of_model


def _sleeping(series: SeriesSet) -> frozenset[str]:
    """Return the models all of whose engines sleep."""
    awake: defaultdict[str, list[bool]] = defaultdict(list)
    for key, value in series.values(names.SLEEP_STATE):
        if key.get("sleep_state") == "awake":
            awake[key.model].append(value != 0)
    return frozenset(model for model, engines in awake.items() if not any(engines))


def _cache_config(series: SeriesSet) -> Mapping[str, str]:
    """Return the labels of the first engine's: they are alike but for the engine."""
    keys = series[names.CACHE_CONFIG]
    return dict(min(keys, key=lambda key: key.engine).rest) if keys else {}


def _first(series: SeriesSet, aliases: Iterable[str]) -> str | None:
    return next((alias for alias in aliases if series[alias]), None)


def _counted(value: float, rejected: Counter[str], *, highest: float = math.inf) -> bool:
    """Say whether a value can be; count it by its flaw when it cannot."""
    if not math.isfinite(value):
        rejected[Flaw.NON_FINITE] += 1
    elif not 0 <= value <= highest:
        rejected[Flaw.OUT_OF_RANGE] += 1
    else:
        return True
    return False
