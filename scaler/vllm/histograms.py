"""Histograms of one body: from bucket series to one histogram a model, whatever their bounds."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import TYPE_CHECKING

from scaler.core.model import Histogram

if TYPE_CHECKING:
    from collections.abc import Iterable

    from scaler.vllm.series import SeriesSet


class Incomplete(ValueError):
    """A part of a histogram is missing: the body was cut. The message names the histogram."""


class Flaw(StrEnum):
    """Why a value was dropped. A label value."""

    OUT_OF_RANGE = "out_of_range"
    NON_FINITE = "non_finite"


def read_histograms(name: str, series: SeriesSet) -> dict[str, Histogram | Flaw]:
    """Return the histogram of each model, summed over its engines; a Flaw where it cannot be.

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
        model: next(filter(None, map(_flaw, histograms)), None) or _merge(histograms)
        for model, histograms in of_model.items()
    }


def _flaw(histogram: Histogram) -> Flaw | None:
    counts = histogram.counts
    if not math.isfinite(sum(counts) + histogram.sum):
        return Flaw.NON_FINITE
    if counts[0] < 0 or tuple(sorted(counts)) != counts:  # cumulative, so never falling
        return Flaw.OUT_OF_RANGE
    return None


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
