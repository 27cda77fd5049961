"""``vllm-scaler record``: writes ``/metrics`` of vLLM servers to files, as they answer it."""

from __future__ import annotations

import asyncio
import re
import signal
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import aiohttp
import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

from scaler.clock import SystemClock
from scaler.commands.options import DURATION, POSITIVE_DURATION
from scaler.vllm.recorder import Recorder
from scaler.vllm.recording import RecordedScrape, RecordingWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

SUFFIX = ".metrics.jsonl.xz"


@dataclass(slots=True)
class Recording:
    """One file in the making: scrapes written, those without a 200, and the newest outcome."""

    url: str
    path: Path
    scrapes: int = 0
    failures: int = 0
    newest: str = "not asked yet"

    def take(self, writer: RecordingWriter, scrape: RecordedScrape) -> None:
        """Write a scrape and count it."""
        writer.write(scrape)
        self.scrapes += 1
        if scrape.status == 200:
            self.newest = f"{len(scrape.body) / 1000:.0f} kB in {scrape.seconds * 1000:.0f} ms"
        else:
            self.failures += 1
            self.newest = f"HTTP {scrape.status}" if scrape.status else scrape.body

    @property
    def summary(self) -> str:
        """What has been written, as one line."""
        return f"{self.path}: {self.scrapes} scrapes, {self.failures} without an answer of 200"


def read_urls(text: str) -> tuple[str, ...]:
    """Return base URLs from a comma-separated list. Raises BadParameter naming what is wrong."""
    urls = [part.strip().rstrip("/") for part in text.split(",") if part.strip()]
    wrong = [repr(url) for url in urls if not _is_base_url(url)]
    if wrong or not urls:
        told = ", ".join(wrong) or "nothing"
        raise click.BadParameter(f"{told}: must be base URLs such as http://localhost:8000")
    twice = sorted({url for url in urls if urls.count(url) > 1})
    if twice:
        raise click.BadParameter(f"{', '.join(twice)}: named twice")
    return tuple(urls)


def _is_base_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def file_names(urls: Sequence[str], name: str | None) -> list[str]:
    """Return a file name for each URL: from its host and port, or NAME, numbered if several."""
    if name is None:
        stems = [
            re.sub(r"[^A-Za-z0-9.-]+", "-", url.partition("://")[2]).strip("-") for url in urls
        ]
    elif not re.fullmatch(r"[A-Za-z0-9._-]+", name) or name.startswith("."):
        raise click.BadParameter(f"--name {name!r} must be letters, digits, '.', '_' and '-'")
    else:
        stems = [name] if len(urls) == 1 else [f"{name}-{n + 1}" for n in range(len(urls))]
    return [stem + SUFFIX for stem in stems]


@click.command()
@click.option(
    "--endpoints",
    required=True,
    metavar="URL[,URL]",
    callback=lambda _context, _parameter, value: read_urls(value),
    help="vLLM servers, as http://localhost:8000.",
)
@click.option(
    "--out",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder for the recordings; made if need be, and nothing in it is overwritten.",
)
@click.option("--name", help="Name of the recording; by default the host and port.")
@click.option("--interval", type=POSITIVE_DURATION, default="1s", show_default=True)
@click.option(
    "--timeout", type=POSITIVE_DURATION, default="10s", show_default=True, help="For one scrape."
)
@click.option("--duration", type=DURATION, help="End after this time; by default with Ctrl-C.")
def record(
    *,
    endpoints: tuple[str, ...],
    out: Path,
    name: str | None,
    interval: float,
    timeout: float,
    duration: float | None,
) -> None:
    """Record /metrics of vLLM servers, a file for each: OUT/NAME.metrics.jsonl.xz.

    One line a scrape: "t" unix seconds, "ms" how long it took, "code" the HTTP status (0: no
    answer, and "body" names the error) and "body", the whole text.
    """
    names = file_names(endpoints, name)
    recordings = [Recording(url, out / file) for url, file in zip(endpoints, names, strict=True)]
    taken = [str(recording.path) for recording in recordings if recording.path.exists()]
    if taken:
        raise click.ClickException(f"{', '.join(taken)}: exists, and is not overwritten")
    try:
        out.mkdir(parents=True, exist_ok=True)
        asyncio.run(_record_until_signal(recordings, interval, timeout, duration))
    except OSError as error:
        raise click.ClickException(str(error)) from error
    for recording in recordings:
        click.echo(recording.summary)


async def _record_until_signal(
    recordings: Sequence[Recording], interval: float, timeout: float, duration: float | None
) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if duration is not None:
        loop.call_later(duration, stop.set)
    console = Console()
    if not console.is_terminal:
        for recording in recordings:
            click.echo(f"recording {recording.url} to {recording.path}")
        await record_until(stop, recordings, interval, timeout)
        return
    with Live(console=console, get_renderable=partial(_table, recordings)):
        await record_until(stop, recordings, interval, timeout)


def _table(recordings: Sequence[Recording]) -> Table:
    table = Table("endpoint", "scrapes", "failed", "newest", "file", caption="Ctrl-C ends")
    for one in recordings:
        counts = (str(one.scrapes), str(one.failures))
        table.add_row(one.url, *counts, one.newest, str(one.path))
    return table


async def record_until(
    stop: asyncio.Event, recordings: Sequence[Recording], interval: float, timeout: float
) -> None:
    """Record all of them until ``stop`` is set; the files are whole whatever happens.

    Raises FileExistsError before anything is asked, OSError when a file cannot be written.
    """
    client = aiohttp.ClientTimeout(total=timeout)
    with ExitStack() as files:
        writers = [files.enter_context(RecordingWriter(r.path)) for r in recordings]
        async with aiohttp.ClientSession(timeout=client) as session:
            tasks = [
                asyncio.create_task(
                    Recorder(
                        recording.url, session, SystemClock(), partial(recording.take, writer)
                    ).run(interval, stop)
                )
                for recording, writer in zip(recordings, writers, strict=True)
            ]
            try:
                await asyncio.gather(*tasks)
            finally:
                for task in tasks:
                    task.cancel()
