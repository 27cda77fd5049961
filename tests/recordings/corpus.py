"""The recorded bodies, for tests that must hold on each of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from scaler.vllm.recording import RecordedScrape, read_recording

if TYPE_CHECKING:
    from collections.abc import Iterator

HOME = Path(__file__).parent
SINGLE = sorted(HOME.glob("cpu/*/*.txt"))
RECORDINGS = sorted(HOME.glob("**/*.metrics.jsonl.xz"))


def name_of(path: Path) -> str:
    """The file as a test id."""
    return str(path.relative_to(HOME)).removesuffix(".metrics.jsonl.xz")


def single(name: str) -> bytes:
    """One exposition, such as ``0.8.5-v0/fresh``."""
    return (HOME / "cpu" / f"{name}.txt").read_bytes()


def scrapes(name: str) -> list[RecordedScrape]:
    """One whole recording, such as ``h200/h200-8b.standup``."""
    return list(read_recording(HOME / f"{name}.metrics.jsonl.xz"))


def sampled(path: Path, most: int = 12) -> Iterator[RecordedScrape]:
    """Answered scrapes spread over a recording, first and last included."""
    answered = [scrape for scrape in read_recording(path) if scrape.status == 200]
    step = max(1, (len(answered) - 1) // (most - 1))
    yield from answered[::step]
    yield answered[-1]
