"""Quantiles of a histogram, with the bucket edges as their bounds."""

from __future__ import annotations

from bisect import bisect_left
from math import inf
from typing import TYPE_CHECKING

from scaler.core.model import Quantiles

if TYPE_CHECKING:
    from scaler.core.model import Histogram


def quantile(histogram: Histogram, q: float) -> tuple[float, float, float]:
    """Return (estimate, lower edge, upper edge) of the ``q`` quantile, seconds.

    Interpolates inside the bucket as Prometheus' ``histogram_quantile`` does; in the last bucket,
    which has no upper edge, the estimate is its lower edge.
    """
    bounds, counts = histogram.bounds, histogram.counts
    rank = q * counts[-1]
    place = bisect_left(counts, rank) if rank > 0 else len(counts)
    if place == len(counts) or bounds[place] == inf:
        last = [edge for edge in (0.0, *bounds) if edge < inf][-1]
        return last, last, inf
    low_edge, low_count = (bounds[place - 1], counts[place - 1]) if place else (0.0, 0.0)
    share = (rank - low_count) / (counts[place] - low_count)
    return low_edge + (bounds[place] - low_edge) * share, low_edge, bounds[place]


def summarize(histogram: Histogram) -> Quantiles:
    """Return mean and quantiles of the window's observations."""
    return Quantiles(
        count=histogram.count,
        mean=histogram.sum / histogram.count,
        p50=quantile(histogram, 0.5),
        p95=quantile(histogram, 0.95),
        p99=quantile(histogram, 0.99),
    )


def share_within(histogram: Histogram, limit: float) -> tuple[float, float]:
    """Bound the share of observations at most ``limit``: what the edges around it say."""
    low = high = 0.0
    for edge, count in zip(histogram.bounds, histogram.counts, strict=True):
        high = count
        if edge > limit:
            break
        low = count
        if edge == limit:
            break
    return low / histogram.count, high / histogram.count
