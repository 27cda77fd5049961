"""The demo's targets: what one replica carried in a bench while it kept its promise."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

DATA = Path(__file__).parent / "data"
CURVE = "h200-8b.bench-c*.json"
SOURCE = "vllm bench serve of that server, vLLM 0.24.0"


@dataclass(frozen=True, slots=True)
class Level:
    """One level of the concurrency ladder; seconds and tokens a second."""

    concurrency: int
    ttft_p95: float
    token_rate: float  # prompt and generated tokens


def read_curve(folder: Path = DATA) -> tuple[Level, ...]:
    """Return the levels in ascending order. Raises FileNotFoundError when there are none."""
    results = [json.loads(path.read_text()) for path in folder.glob(CURVE)]
    if not results:
        raise FileNotFoundError(f"no {CURVE} in {folder}")
    levels = (
        Level(r["max_concurrency"], r["p95_ttft_ms"] / 1000, r["total_token_throughput"])
        for r in results
    )
    return tuple(sorted(levels, key=lambda level: level.concurrency))


def carried_within(curve: tuple[Level, ...], promise: float) -> Level:
    """Return the last level up to which every p95 TTFT stayed under ``promise`` seconds.

    Raises ValueError when not even the first did.
    """
    kept: Level | None = None
    for level in curve:
        if level.ttft_p95 >= promise:
            break
        kept = level
    if kept is None:
        raise ValueError(f"no level of the curve keeps p95 TTFT under {promise:g} s")
    return kept


def targets(promise: float, folder: Path = DATA) -> dict[str, str]:
    """Return scaler metadata for a promise of ``promise`` seconds to the first token."""
    level = carried_within(read_curve(folder), promise)
    return {
        "targetInFlight": str(level.concurrency),
        "targetTokenRate": str(round(level.token_rate)),
        "targetTtft": f"{promise:g}s",
    }
