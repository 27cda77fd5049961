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
    from collections.abc import Callable, Mapping, Sequence
    from typing import Self

    from rich.console import Console, RenderableType

    from scaler.core.model import Decision, SignalReading
    from scaler.demo.operator import Standing

ROWS = 16
WIDE = 90  # columns of a terminal that has room for the reason
NOTE = "Replicas by signal, the binding one in yellow; ^ capped by throughput, () not counted."
UNKNOWN = "?"
STEADY_SECONDS = 5.0  # a line at least this often, though nothing changed

HEADERS = {Signal.CONCURRENCY: "conc", Signal.THROUGHPUT: "thru", Signal.QUEUE_TIME: "qtime"}


@dataclass(frozen=True, slots=True)
class Cell:
    """One signal: the replicas it asks for; ``^`` if less than it would without the cap."""

    text: str
    binds: bool

    @classmethod
    def of(cls, reading: SignalReading, *, binds: bool) -> Cell:
        """Describe a reading; one that must not count is in brackets alone."""
        needed = f"{reading.needed:.1f}"
        if reading.counted is None:
            return cls(f"({needed})", binds)
        counted = f"{reading.counted:.1f}"
        return cls(counted if counted == needed else f"{counted}^", binds)


@dataclass(frozen=True, slots=True)
class Row:
    """One decision and the replicas that the stand-in made of it, as texts."""

    time: str
    in_flight: str
    waiting: str
    kv: str
    ttft: str
    signals: Mapping[Signal, Cell]
    desired: str
    replicas: str
    reason: str
    words: str

    @classmethod
    def of(cls, decision: Decision, standing: Standing) -> Row:
        """Describe a decision; what is not known is a question mark, never a zero."""
        fleet = decision.fleet
        ttft = fleet.latencies.get(Latency.TTFT)
        signals = {
            signal: Cell.of(reading, binds=signal is decision.binding)
            for signal, reading in decision.signals.items()
        }
        return cls(
            time=decision.at.wall.astimezone().strftime("%H:%M:%S"),
            in_flight=_number(fleet.in_flight, "{:.0f}"),
            waiting=_number(fleet.waiting, "{:.0f}"),
            kv=_number(fleet.kv_max, "{:.0%}"),
            ttft=_number(None if ttft is None else ttft.p95[0], "{:.2f} s"),
            signals=signals,
            desired=str(decision.desired) if decision.valid else UNKNOWN,
            replicas=str(standing.replicas),
            reason=decision.reason.value,
            words=standing.answers.error or headline(decision),
        )

    @property
    def line(self) -> str:
        """The row as one line of text."""
        signals = ", ".join(
            f"{signal.value} {cell.text}{'*' if cell.binds else ''}"
            for signal, cell in self.signals.items()
        )
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

    def trouble(self, text: str) -> None:
        """Show why there is no decision to show, once."""
        if self._last != (text,):
            self._last = (text,)
            self._write(text)


class LiveTable:
    """A table of the last decisions that redraws itself in place."""

    def __init__(self, heading: Sequence[str], console: Console) -> None:
        self._heading = heading
        self._rows: deque[Row] = deque(maxlen=ROWS)
        self._trouble = "Waiting for the first sweep of the pods."
        self._console = console
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

    def trouble(self, text: str) -> None:
        """Show why there is no decision to show."""
        self._trouble = text
        self._live.update(self.picture(), refresh=True)

    def picture(self) -> RenderableType:
        """Return what is on the screen."""
        title, *rest = self._heading
        head = Text.assemble((title, "bold"), *(f"\n{text}" for text in rest), "\n")
        newest = self._rows[-1].words if self._rows else self._trouble
        return Group(
            head, self._table(), Text(f"\n{newest}", "bold"), Text(NOTE if self._rows else "")
        )

    def _table(self) -> Table:
        table = Table(box=None, padding=(0, 1, 0, 0), header_style="bold underline")
        table.add_column("time", no_wrap=True)
        shown = [signal for signal in Signal if any(signal in row.signals for row in self._rows)]
        signals = [HEADERS.get(signal, signal.value) for signal in shown]
        for name in ("flight", "wait", "KV", "TTFT p95", *signals):
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column("want", justify="right", no_wrap=True, style="bold cyan")
        table.add_column("HPA", justify="right", no_wrap=True, style="bold green")
        wide = self._console.width >= WIDE
        if wide:
            table.add_column("reason", no_wrap=True)
        for row in self._rows:
            cells = [row.signals.get(signal, Cell(UNKNOWN, binds=False)) for signal in shown]
            texts = [Text(c.text, style="bold yellow" if c.binds else "") for c in cells]
            measured = (row.time, row.in_flight, row.waiting, row.kv, row.ttft)
            reason = (row.reason,) if wide else ()
            table.add_row(*measured, *texts, row.desired, row.replicas, *reason)
        return table
