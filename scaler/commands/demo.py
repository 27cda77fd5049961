"""``vllm-scaler demo``: the scaler at work on a played-back fleet, or on the user's own vLLM."""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console

from scaler.clock import SystemClock
from scaler.commands.options import ADDRESS, DURATION, POSITIVE_DURATION
from scaler.demo.stage import Plan, staged
from scaler.demo.table import LiveTable, PlainLines
from scaler.errors import ConfigError, InvalidTrigger
from scaler.logs import configure_logging

if TYPE_CHECKING:
    from collections.abc import Sequence


def split_endpoints(
    _context: click.Context, _parameter: click.Parameter, value: str | None
) -> tuple[str, ...]:
    """Return the URLs of a comma-separated list."""
    return tuple(part.strip().rstrip("/") for part in (value or "").split(",") if part.strip())


def split_metadata(
    _context: click.Context, _parameter: click.Parameter, value: Sequence[str]
) -> tuple[tuple[str, str], ...]:
    """Return KEY=VALUE pairs. Raises BadParameter for one without ``=``."""
    pairs = []
    for text in value:
        key, equals, content = text.partition("=")
        if not key or not equals:
            raise click.BadParameter(f"{text!r} must be KEY=VALUE, as targetInFlight=64")
        pairs.append((key, content))
    return tuple(pairs)


@click.command()
@click.option(
    "--endpoints",
    metavar="URL[,URL]",
    callback=split_endpoints,
    help="Watch these vLLM servers instead of the playback, as http://localhost:8000.",
)
@click.option(
    "--pods",
    type=click.IntRange(1, 50),
    default=3,
    show_default=True,
    help="Pods of the playback.",
)
@click.option(
    "--set",
    "metadata",
    multiple=True,
    metavar="KEY=VALUE",
    callback=split_metadata,
    help="A value of the trigger's metadata; repeatable.",
)
@click.option("--max-replicas", type=click.IntRange(1, 1000), default=12, show_default=True)
@click.option("--duration", type=DURATION, help="End after this time; by default never.")
@click.option(
    "--pace",
    type=POSITIVE_DURATION,
    default="5s",
    show_default=True,
    help="From one poll of the stand-in for KEDA, and from one sync of the HPA, to the next.",
)
@click.option("--scrape-interval", type=POSITIVE_DURATION, default="2s", show_default=True)
@click.option("--grpc-address", type=ADDRESS, default="127.0.0.1:6000", show_default=True)
@click.option("--http-address", type=ADDRESS, default="127.0.0.1:8080", show_default=True)
@click.option("--page-address", type=ADDRESS, default="127.0.0.1:8081", show_default=True)
def demo(*, duration: float | None, **choices: Any) -> None:
    """Show the scaler at work on a played-back fleet, or on your own vLLM.

    Needs no network, no GPU and no Kubernetes. A port that is taken gives way to a free one.
    """
    plan = Plan(**choices)
    _check(plan)
    configure_logging("console", "error")
    try:
        asyncio.run(_perform(plan, duration))
    except (ConfigError, OSError) as error:
        raise click.ClickException(str(error)) from error


def _check(plan: Plan) -> None:
    """Say what is odd about the trigger. Raises UsageError with all that is wrong with it."""
    try:
        warnings = plan.check()
    except InvalidTrigger as error:
        raise click.UsageError("\n".join(str(problem) for problem in error.problems)) from error
    for warning in warnings:
        click.echo(f"Warning: {warning}", err=True)


async def _perform(plan: Plan, duration: float | None) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    if duration is not None:
        loop.call_later(duration, stop.set)
    console = Console()
    async with staged(plan, SystemClock()) as stage:
        heading = stage.heading()
        live = console.is_terminal and not console.is_dumb_terminal
        with LiveTable(heading, console) if live else PlainLines(heading) as display:
            await stage.play(display, stop)
