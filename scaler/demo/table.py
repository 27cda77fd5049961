"""Shows decisions in the terminal: a live table on a terminal, plain lines when piped."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from scaler.core.model import Latency, Signal
from scaler.exporter.words import headline

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Self

    from rich.console import Console, RenderableType

    from scaler.core.model import Decision
    from scaler.demo.operator import Standing

ROWS = 16
UNKNOWN = "?"
STEADY_SECONDS = 5.0  # a line at least this often, though nothing changed

SHORT = {
    Signal.QUEUE: "queue",
    Signal.CONCURRENCY: "conc",
    Signal.THROUGHPUT: "thru",
    Signal.KV: "kv",
    Signal.QUEUE_TIME: "qtime",
    Signal.TTFT: "ttft",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One decision and the replicas that the stand-in made of it, as texts."""

    time: str
    in_flight: str
    waiting: str
    kv: str
    ttft: str
    signals: tuple[tuple[str, bool], ...]  # text, and whether it binds
    desired: str
    replicas: str
    words: str

    @classmethod
    def of(cls, decision: Decision, standing: Standing) -> Row:
        """Describe a decision; what is not known is a question mark, never a zero."""
        fleet = decision.fleet
        ttft = fleet.latencies.get(Latency.TTFT)
        signals = tuple(
            (f"{SHORT[signal]} {reading.needed:.1f}", signal is decision.binding)
            for signal, reading in decision.signals.items()
        )
        return cls(
            time=decision.at.wall.astimezone().strftime("%H:%M:%S"),
            in_flight=_number(fleet.in_flight, "{:.0f}"),
            waiting=_number(fleet.waiting, "{:.0f}"),
            kv=_number(fleet.kv_max, "{:.0%}"),
            ttft=_number(None if ttft is None else ttft.p95[0], "{:.2f} s"),
            signals=signals,
            desired=str(decision.desired) if decision.valid else UNKNOWN,
            replicas=str(standing.replicas),
            words=standing.answers.error or headline(decision),
        )

    @property
    def line(self) -> str:
        """The row as one line of text."""
        signals = " ".join(text + ("*" if binds else "") for text, binds in self.signals)
        return (
            f"{self.time}  in flight {self.in_flight}, waiting {self.waiting}, KV {self.kv}, "
            f"TTFT p95 {self.ttft}  [{signals}]  desired {self.desired}, HPA {self.replicas}: "
            f"{self.words}"
        )


def _number(value: float | None, form: str) -> str:
    return UNKNOWN if value is None else form.format(value)


class PlainLines:
    """Prints a line when the answer changes, and every few seconds besides."""

    def __init__(self, heading: Sequence[str], write: Callable[[str], None] = click.echo) -> None:
        self._write = write
        self._last: tuple[object, ...] = ()
        self._shown_at = 0.0
        for text in heading:
            write(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def show(self, decision: Decision, standing: Standing) -> None:
        """Show where things stand."""
        story = (
            decision.valid,
            decision.desired,
            decision.reason,
            decision.binding,
            standing.replicas,
            standing.answers.error,
        )
        if story == self._last and decision.at.monotonic - self._shown_at < STEADY_SECONDS:
            return
        self._last, self._shown_at = story, decision.at.monotonic
        self._write(Row.of(decision, standing).line)


class LiveTable:
    """A table of the last decisions that redraws itself in place."""

    def __init__(self, heading: Sequence[str], console: Console) -> None:
        self._heading = heading
        self._rows: deque[Row] = deque(maxlen=ROWS)
        self._live = Live(console=console, auto_refresh=False)

    def __enter__(self) -> Self:
        self._live.__enter__()
        self._live.update(self.picture(), refresh=True)
        return self

    def __exit__(self, *stopped: object) -> None:
        self._live.stop()

    def show(self, decision: Decision, standing: Standing) -> None:
        """Show where things stand."""
        self._rows.append(Row.of(decision, standing))
        self._live.update(self.picture(), refresh=True)

    def picture(self) -> RenderableType:
        """Return what is on the screen."""
        title, *rest = self._heading
        head = Text.assemble((title, "bold"), *(f"\n{text}" for text in rest))
        table = Table(expand=True, pad_edge=False, header_style="bold", row_styles=["", "dim"])
        for name in ("time", "in flight", "waiting", "KV", "TTFT p95"):
            table.add_column(name, justify="left" if name == "time" else "right", no_wrap=True)
        table.add_column("replicas needed, by signal", ratio=3)
        table.add_column("desired", justify="right", style="bold cyan")
        table.add_column("HPA", justify="right", style="bold green")
        table.add_column("why", ratio=4)
        for row in self._rows:
            signals = Text("  ").join(
                Text(text, style="bold yellow" if binds else "") for text, binds in row.signals
            )
            table.add_row(
                row.time,
                row.in_flight,
                row.waiting,
                row.kv,
                row.ttft,
                signals,
                row.desired,
                row.replicas,
                row.words,
            )
        if not self._rows:
            table.caption = "waiting for the first sweep of the pods"
        return Group(head, table)
