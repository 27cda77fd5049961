"""How fast one scrape is read: our reader against prometheus_client's parser, on a real body.

Both read the same 53 KB exposition of vLLM 0.24 under load, in turn, in this process; the whole
sample is compared first. The budget is a ratio, so that it means the same on any machine: at least
30 (DESIGN section 10). Run: ``python benchmarks/parse.py``.
"""

from __future__ import annotations

import sys
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families

from scaler.vllm.exposition import read_exposition

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))

from recordings.corpus import scrapes, single  # noqa: E402 - found through the path above
from recordings.oracle import expected  # noqa: E402

if TYPE_CHECKING:
    from collections.abc import Callable

BUDGET = 30
ROUNDS = 25


def seconds(work: Callable[[], object], repeat: int) -> float:
    """The time of one call."""
    started = perf_counter()
    for _ in range(repeat):
        work()
    return (perf_counter() - started) / repeat


def compare(title: str, body: bytes) -> float:
    """Print and return how many times faster our reader is."""
    text = body.decode()
    assert read_exposition(body) == expected(text), "the values differ"
    pairs = [
        (
            seconds(lambda: list(text_string_to_metric_families(text)), 2),
            seconds(lambda: read_exposition(body), 40),
        )
        for _ in range(ROUNDS)
    ]
    # Rounds are pairs, so that what else the machine does falls on both alike.
    ratio = median(theirs / ours for theirs, ours in pairs)
    theirs, ours = (median(column) * 1e3 for column in zip(*pairs, strict=True))
    print(f"{title:<34} {len(body):>7} B  {theirs:7.2f} ms  {ours:6.3f} ms  {ratio:5.1f} x")
    return ratio


def main() -> int:
    """Compare on the body of the budget, then on bodies of other versions."""
    print(f"{'body':<34} {'size':>9}  {'client':>10}  {'ours':>9}  {'ratio':>7}")
    standup = max((s.body for s in scrapes("h200/h200-8b.standup")), key=len)
    ratio = compare("0.24.0 stand-up (the budget's)", standup.encode())
    for name in ("0.8.5-v0/loaded", "0.11.0-v1/loaded", "0.32.0-v1/loaded", "0.32.0-v1-dp2/loaded"):
        compare(name, single(name))
    print(f"budget: {BUDGET} x, {'met' if ratio >= BUDGET else 'MISSED'}")
    return 0 if ratio >= BUDGET else 1


if __name__ == "__main__":
    sys.exit(main())
