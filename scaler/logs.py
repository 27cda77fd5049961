"""What is logged, and when: a line when a story changes, never one a scrape."""

from __future__ import annotations

import atexit
import logging
import os
from typing import TYPE_CHECKING, Literal, TextIO, cast

import structlog

from scaler.linewriter import LineWriter

if TYPE_CHECKING:
    from collections.abc import Sequence

    from structlog.typing import EventDict, FilteringBoundLogger, Processor

    from scaler.core.model import Decision, ScrapeFailure
    from scaler.store import TriggerKey

LEVELS = ("debug", "info", "warning", "error")


STDERR = 2  # a descriptor


def configure_logging(
    form: Literal["json", "console"], level: str, *, descriptor: int = STDERR
) -> LineWriter:
    """Send structured lines to stderr: JSON for machines, columns for people.

    What libraries log through :mod:`logging` comes out in the same form. Nobody waits for the
    reader of the lines: the returned writer has a thread, and is closed when the process ends.
    Tracebacks come without the values of local variables, a token perhaps among them (H06).
    """
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[Processor]
    if form == "json":
        traces = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        last = [
            structlog.processors.ExceptionRenderer(traces),
            structlog.processors.JSONRenderer(),
        ]
    else:
        colors = os.isatty(descriptor)
        plainly = structlog.dev.plain_traceback
        last = [structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=plainly)]
    writer = LineWriter(descriptor, lost=lambda count: _lost([*shared, *last], count))
    atexit.register(writer.close)
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(getattr(logging, level.upper())),
        logger_factory=structlog.WriteLoggerFactory(cast("TextIO", writer)),
        cache_logger_on_first_use=True,
    )
    remove = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    foreign = _Foreign(cast("TextIO", writer))
    foreign.setLevel(level.upper())
    foreign.setFormatter(
        structlog.stdlib.ProcessorFormatter(processors=[remove, *last], foreign_pre_chain=shared)
    )
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, _Foreign)]:
        root.removeHandler(handler)
    root.addHandler(foreign)
    return writer


class _Foreign(logging.StreamHandler[TextIO]):
    """Takes what libraries log; a class of its own, so that a second call replaces the first."""


def _lost(processors: list[Processor], count: int) -> str:
    """Return the line that tells of lines that could not be written."""
    event: EventDict = {"event": "log lines lost", "count": count}
    *before, last = processors
    for process in before:
        event = cast("EventDict", process(None, "warning", event))
    return cast("str", last(None, "warning", event)) + "\n"


class EventLog:
    """Turns what the poller and the targets report into log lines."""

    def __init__(self, log: FilteringBoundLogger | None = None) -> None:
        self._log: FilteringBoundLogger = log or structlog.get_logger()

    def decided(self, key: TriggerKey, before: Decision | None, after: Decision) -> None:
        """Log a decision whose number, validity, activity or reason is new."""
        if before is not None and _story(before) == _story(after):
            return
        write = self._log.info if after.valid else self._log.warning
        write(
            "decision",
            namespace=key.namespace,
            scaledobject=key.name,
            trigger=key.id,
            desired=after.desired if after.valid else None,
            active=after.active,
            reason=after.reason.value,
            signal=after.binding.value if after.binding else None,
            composite=None if after.composite is None else round(after.composite, 2),
            ready=after.counts.ready,
            fresh=after.counts.fresh,
            guards=[guard.value for guard in after.guards],
            **({"message": after.message} if after.message else {}),
        )

    def refused(self, key: TriggerKey, text: str) -> None:
        """Log that the operator does not allow what a trigger names."""
        self._log.warning("trigger refused", trigger=str(key), why=text)

    def failed(self, key: TriggerKey, error: Exception) -> None:
        """Log a defect with its traceback."""
        self._log.error("decision failed", trigger=str(key), exc_info=error)

    def registered(self, key: TriggerKey, warnings: Sequence[str]) -> None:
        """Log that KEDA asks about a trigger, and what is doubtful about its metadata."""
        write = self._log.warning if warnings else self._log.info
        told = {"warnings": list(warnings)} if warnings else {}
        write("trigger registered", trigger=str(key), **told)

    def forgotten(self, key: TriggerKey) -> None:
        """Log that KEDA no longer asks."""
        self._log.info("trigger forgotten", trigger=str(key))

    def keepsake_trouble(self, path: str, text: str) -> None:
        """Log what is wrong with the state file."""
        self._log.warning("state file", path=path, problem=text)

    def scrape_changed(self, url: str, failure: ScrapeFailure | None) -> None:
        """Log that an endpoint fails in a new way, or has recovered."""
        if failure is None:
            self._log.info("scrape recovered", endpoint=url)
        else:
            self._log.warning(
                "scrape failed", endpoint=url, cause=failure.cause.value, detail=failure.detail
            )

    def families_changed(self, url: str, missing: frozenset[str]) -> None:
        """Log that a pod lacks families that vLLM exports, or has them all again."""
        if missing:
            self._log.info("families missing", endpoint=url, families=sorted(missing))
        else:
            self._log.info("families complete", endpoint=url)


def _story(decision: Decision) -> tuple[object, ...]:
    return (decision.valid, decision.desired, decision.active, decision.reason, decision.binding)
