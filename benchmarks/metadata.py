"""What it costs to read the worst metadata that is allowed, on the event loop: 50 ms each.

    python benchmarks/metadata.py

Each text is read cold: no expression has been met before. The ratio is to ``yaml.safe_load`` of the
same schedule, which nobody calls slow.
``tests/config/test_cost.py`` counts the work instead, so that no machine is too slow for it.
"""

from __future__ import annotations

import sys
from time import perf_counter

import yaml

from scaler.config.trigger import parse_trigger
from scaler.core import cron
from scaler.core.cron import parse_cron
from scaler.errors import InvalidTrigger

BUDGET_MS = 50.0
ROUNDS = 7
COUNTRIES = ("AT", "BE", "BR", "CA", "CH", "DE", "ES", "FR", "GB", "JP")
DATES = ", excludeDates: [" + ", ".join(["2026-12-24"] * 17) + "]"
ADDRESSES = ",".join(f"http://10.{n // 250}.{n % 250}.1:8000" for n in range(2000))


def window(number: int, rest: str = "", zone: str = "Europe/Berlin") -> str:
    """One window, unlike every other."""
    start, end = f"{number % 60} {number % 24} * * 1-5", f"{number % 7} 17-23 {number % 28 + 1} * *"
    return f'- {{timezone: {zone}, start: "{start}", end: "{end}", desiredReplicas: 2{rest}}}\n'


def dense(number: int) -> str:
    """A window whose start and end fire in every minute of some days."""
    start, end = f"* * 1-{number % 27 + 1} * *", f"*/1 * {number % 27 + 1} {number // 27 + 1} *"
    return f'- {{timezone: UTC, start: "{start}", end: "{end}", desiredReplicas: 2{DATES}}}\n'


HUNDRED = range(100)
WORST = {
    "100 windows": {"schedule": "".join(map(window, HUNDRED))},
    "100 windows, 10 countries": {
        "schedule": "".join(window(n, f", holidays: {COUNTRIES[n % 10]}") for n in HUNDRED)
    },
    "100 windows, 17 dates each, a lead": {
        "schedule": "".join(window(n, DATES) for n in HUNDRED),
        "leadTime": "1m",
    },
    "100 windows of every minute, a lead": {
        "schedule": "".join(map(dense, HUNDRED)),
        "leadTime": "1m",
    },
    "2000 endpoints": {"endpoints": ADDRESSES},
    "both of the last two": {
        "endpoints": ADDRESSES,
        "schedule": "".join(map(dense, HUNDRED)),
        "leadTime": "1m",
    },
    "refused: 3900 items": {"schedule": "- a\n" * 3900},
    "refused: 100 unknown time zones": {
        "schedule": "".join(window(n, zone=f"Europe/Berlim{n}") for n in HUNDRED)
    },
    "refused: 1800 unknown keys": {
        "schedule": "".join(
            "- {" + ",".join(f"k{n}_{key}: 1" for key in range(18)) + "}\n" for n in HUNDRED
        )
    },
}


def cold(metadata: dict[str, str]) -> tuple[float, bool]:
    """Return the milliseconds of reading metadata whose like has not been seen; if it is valid."""
    for cached in (parse_cron, cron._times, cron._mask):  # noqa: SLF001 - cold means all of them
        cached.cache_clear()
    begun, valid = perf_counter(), True
    try:
        parse_trigger(metadata)
    except InvalidTrigger:
        valid = False
    return (perf_counter() - begun) * 1e3, valid


def plain(text: str) -> float:
    """Return the milliseconds of PyYAML's own reading."""
    begun = perf_counter()
    yaml.safe_load(text)
    return (perf_counter() - begun) * 1e3


def main() -> int:
    """Print the table; exit 1 when a budget is missed."""
    missed = 0
    print(f"{'metadata':38} {'ms':>6}  x safe_load   budget {BUDGET_MS:g} ms")
    for title, metadata in WORST.items():
        # The best of a few: what else the machine does only ever adds.
        took, valid = min(cold(metadata) for _ in range(ROUNDS))
        assert valid is not title.startswith("refused")
        text = metadata.get("schedule")
        ratio = "" if text is None else f"{took / min(plain(text) for _ in range(3)):.2f}"
        met = took <= BUDGET_MS
        missed += not met
        print(f"{title:38} {took:6.1f}  {ratio:>11}   {'met' if met else 'MISSED'}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
