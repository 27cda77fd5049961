"""Writes lines to a file descriptor from a thread of its own, so that whoever writes never waits.

A reader that stalls (a full pipe, a stopped terminal) would otherwise stop the event loop in the
middle of a line, and KEDA with it.
"""

from __future__ import annotations

import os
import select
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

MOST_LINES = 1000
CLOSE_SECONDS = 0.5  # a stop has two seconds in all (P03)


class LineWriter:
    """A text stream over ``descriptor`` whose ``write`` takes one whole line and returns at once.

    At most ``limit`` lines wait, besides those being written; more are dropped. What was lost is
    counted and told, once writing works again, by the line that ``lost`` makes of the count. The
    descriptor is written to directly: a Python stream that a daemon thread holds while the
    interpreter ends is a fatal error.

    Safe in any thread. In a forked child the writer begins anew, without the parent's lines (P01).
    """

    def __init__(
        self, descriptor: int, *, lost: Callable[[int], str], limit: int = MOST_LINES
    ) -> None:
        self._descriptor = descriptor
        self._notice = lost
        self._limit = limit
        self._begin()
        os.register_at_fork(after_in_child=self._begin)

    def _begin(self) -> None:
        self._changed = threading.Condition()
        self._lines: list[str] = []
        self._lost = 0
        self._writing = self._broken = self._closing = False
        self._thread: threading.Thread | None = None

    def write(self, line: str) -> int:
        """Take a line with its end. Returns its length, as streams do."""
        with self._changed:
            if len(self._lines) < self._limit:
                self._lines.append(line)
            else:
                self._lost += 1
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="log", daemon=True)
                self._thread.start()
            self._changed.notify_all()
        return len(line)

    def flush(self) -> None:
        """Do nothing: lines go out as soon as they can."""

    def drain(self, seconds: float) -> bool:
        """Wait until everything is written; return whether it was within ``seconds``."""
        with self._changed:
            return self._changed.wait_for(lambda: not (self._writing or self._due()), seconds)

    def close(self, seconds: float = CLOSE_SECONDS) -> bool:
        """Write what waits and end the thread; return whether it was done within ``seconds``.

        A line written later starts another thread.
        """
        with self._changed:
            thread = self._thread
            if thread is None:
                return True
            self._closing = True
            self._changed.notify_all()
        thread.join(seconds)
        return not thread.is_alive()

    def _due(self) -> bool:
        # After a failure only a new line is worth another attempt.
        return bool(self._lines) or (self._lost > 0 and not self._broken)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._writing = False
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._due() or self._closing)
                if not self._due():
                    self._closing, self._thread = False, None
                    return
                # Lines are only dropped while the queue is full: after these, before any later one.
                lines, self._lines = self._lines, []
                lost, self._lost = self._lost, 0
                self._writing = True
            written = self._send(lines, lost)
            with self._changed:
                self._broken = not written
                self._lost += 0 if written else lost + len(lines)

    def _send(self, lines: list[str], lost: int) -> bool:
        """Write everything; return False when the descriptor takes nothing any more."""
        notice = [self._notice(lost)] if lost else []
        rest = "".join(lines + notice).encode("utf-8", "backslashreplace")
        try:
            while rest:
                try:
                    rest = rest[os.write(self._descriptor, rest) :]
                except BlockingIOError:  # somebody who shares it has made it non-blocking
                    select.select([], [self._descriptor], [])
        except OSError:  # the reader is gone, or the disk is full: there is nobody to tell
            return False
        return True
