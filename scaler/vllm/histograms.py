"""Histograms of one body: from bucket series to one histogram a model, whatever their bounds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from scaler.core.model import Histogram

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scaler.vllm.series import SeriesSet


class Incomplete(ValueError):
    """A part of a histogram is missing: the body was cut. The message names the histogram."""


def read_histograms(name: str, series: SeriesSet) -> dict[str, Histogram | None]:
    """Return the histogram of each model, summed over its engines.

    None: the values cannot be (not finite, negative, or counts that fall from bound to bound).
    Raises Incomplete for buckets without their +Inf or without a sum.
    """
    sums = series[f"{name}_sum"]
    of_model: dict[str, list[Histogram]] = {}
    for key, counts in series[f"{name}_bucket"].items():
        total = sums.get(key, {}).get(None)
        bounds = tuple(sorted(bound for bound in counts if bound is not None))
        if len(bounds) != len(counts) or bounds[-1] != math.inf or total is None:
            raise Incomplete(f"{name} lacks a part: the answer is cut short")
        of_model.setdefault(key.model, []).append(
            Histogram(bounds, tuple(map(counts.__getitem__, bounds)), total)
        )
    return {
        model: _merge(histograms) if all(map(_plausible, histograms)) else None
        for model, histograms in of_model.items()
    }


def _plausible(histogram: Histogram) -> bool:
    counts = histogram.counts
    return (
        math.isfinite(sum(counts) + histogram.sum)
        and counts[0] >= 0
        and tuple(sorted(counts)) == counts
    )


def _merge(histograms: list[Histogram]) -> Histogram:
    """Sum cumulative counts. Engines that differ in bounds are summed where all have an edge."""
    first, *others = histograms
    if not others:
        return first
    bounds = first.bounds
    if any(other.bounds != bounds for other in others):
        common = set(bounds).intersection(*(other.bounds for other in others))
        bounds = tuple(sorted(common))
    return Histogram(
        bounds,
        tuple(map(sum, zip(*(_at(histogram, bounds) for histogram in histograms), strict=True))),
        sum(histogram.sum for histogram in histograms),
    )


def _at(histogram: Histogram, bounds: tuple[float, ...]) -> Iterable[float]:
    if histogram.bounds == bounds:
        return histogram.counts
    counts = dict(zip(histogram.bounds, histogram.counts, strict=True))
    return [counts[bound] for bound in bounds]
