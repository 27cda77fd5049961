"""What is logged, and what is not."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import subprocess
import sys
from dataclasses import replace
from typing import TYPE_CHECKING, Literal

import pytest
import structlog
from fakes import Fleet, sample
from structlog.testing import capture_logs

from scaler.core.model import Reason, ScrapeCause, ScrapeFailure
from scaler.linewriter import MOST_LINES, LineWriter
from scaler.logs import EventLog, configure_logging
from scaler.store import TriggerKey

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Self

KEY = TriggerKey("team", "llama", "1a2b3c4d")


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    before = logging.getLogger().handlers[:]
    yield
    logging.getLogger().handlers[:] = before
    structlog.reset_defaults()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    with Pipe() as pipe:
        yield pipe


class Pipe:
    """A pipe that nobody reads until the test does."""

    def __init__(self) -> None:
        self.read_end, self.write_end = os.pipe()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for end in (self.read_end, self.write_end):
            with contextlib.suppress(OSError):
                os.close(end)

    def fill(self) -> int:
        """Leave no room for another byte; return how many it took."""
        os.set_blocking(self.write_end, False)
        taken = 0
        with contextlib.suppress(BlockingIOError):
            while True:
                taken += os.write(self.write_end, b"." * 4096)
        os.set_blocking(self.write_end, True)
        return taken

    def read(self, count: int) -> bytes:
        """Read exactly so many bytes."""
        got = b""
        while len(got) < count:
            got += os.read(self.read_end, count - len(got))
        return got

    def lines(self, last: str) -> list[str]:
        """Read lines up to one that contains ``last``."""
        found: list[str] = []
        with os.fdopen(os.dup(self.read_end)) as stream:
            for line in stream:
                found.append(line.rstrip("\n"))
                if last in line:
                    break
        return found


def test_one_line_when_the_story_changes() -> None:
    fleet = Fleet()
    decisions = [fleet.tick({"a": sample(1, waiting)}) for waiting in (0, 0, 0, 9, 9, 8)]
    with capture_logs() as lines:
        log = EventLog()
        for before, after in zip([None, *decisions], decisions, strict=False):
            log.decided(KEY, before, after)

    assert [(line["desired"], line["log_level"]) for line in lines] == [(1, "info"), (2, "info")]
    assert lines[1]["signal"] == "queue"
    assert lines[1]["composite"] == 1.8


def test_no_answer_is_a_warning_with_its_reason_and_no_number() -> None:
    decision = Fleet().tick({"a": sample(1)})
    silent = replace(decision, valid=False, reason=Reason.NO_DATA, message="0/1 targets usable")
    with capture_logs() as lines:
        EventLog().decided(KEY, decision, silent)

    [line] = lines
    assert (line["log_level"], line["desired"]) == ("warning", None)
    assert line["message"] == "0/1 targets usable"


def test_every_event_names_what_it_is_about() -> None:
    with capture_logs() as lines:
        log = EventLog()
        log.refused(KEY, "host not allowed")
        log.failed(KEY, ValueError("defect"))
        log.forgotten(KEY)
        log.scrape_changed("http://a:1/metrics", ScrapeFailure(ScrapeCause.TIMEOUT, "no answer"))
        log.scrape_changed("http://a:1/metrics", None)
        log.keepsake_trouble("/state/triggers.json", "set aside")

    assert [line["event"] for line in lines] == [
        "trigger refused",
        "decision failed",
        "trigger forgotten",
        "scrape failed",
        "scrape recovered",
        "state file",
    ]
    assert lines[0]["trigger"] == "team/llama/1a2b3c4d"
    assert lines[3]["cause"] == "timeout"


def test_v01_missing_families_are_named_and_so_is_their_return() -> None:
    with capture_logs() as lines:
        log = EventLog()
        log.families_changed("http://a:1/metrics", frozenset({"ttft", "kv"}))
        log.families_changed("http://a:1/metrics", frozenset())

    assert lines == [
        {
            "event": "families missing",
            "log_level": "info",
            "endpoint": "http://a:1/metrics",
            "families": ["kv", "ttft"],
        },
        {"event": "families complete", "log_level": "info", "endpoint": "http://a:1/metrics"},
    ]


def test_json_is_one_object_a_line(pipe: Pipe) -> None:
    writer = configure_logging("json", "info", descriptor=pipe.write_end)
    structlog.get_logger().info("hello", number=1)
    structlog.get_logger().debug("not this")
    EventLog().failed(KEY, ValueError("defect"))
    assert writer.close(10)

    first, second = (json.loads(line) for line in pipe.lines("defect"))
    assert (first["event"], first["number"], first["level"]) == ("hello", 1, "info")
    assert second["exception"][0]["exc_type"] == "ValueError"


def test_console_is_for_people(pipe: Pipe) -> None:
    configure_logging("console", "warning", descriptor=pipe.write_end)
    structlog.get_logger().warning("hello", number=1)

    [line] = pipe.lines("hello")
    assert "number" in line
    assert "\x1b[" not in line  # no colours into a pipe


def test_what_libraries_log_has_the_same_form_and_comes_once(pipe: Pipe) -> None:
    configure_logging("json", "info", descriptor=pipe.write_end)
    configure_logging("json", "warning", descriptor=pipe.write_end)
    logging.getLogger("asyncio").info("not this")
    logging.getLogger("asyncio").error("Task exception was never retrieved: %s", "x")
    structlog.get_logger().warning("end")

    first, second = (json.loads(line) for line in pipe.lines("end"))
    assert (first["event"], first["level"]) == ("Task exception was never retrieved: x", "error")
    assert second["event"] == "end"


@pytest.mark.parametrize("form", ["json", "console"])
def test_h06_a_traceback_shows_no_local_variable(
    pipe: Pipe, form: Literal["json", "console"]
) -> None:
    configure_logging(form, "info", descriptor=pipe.write_end)
    try:
        token = "hush"
        int(f"x{len(token)}")
    except ValueError as error:
        EventLog().failed(KEY, error)
    structlog.get_logger().info("end")

    written = "\n".join(pipe.lines("end"))
    assert "ValueError" in written
    assert "hush" not in written


# --- a reader that stalls -------------------------------------------------------------------------


@pytest.mark.parametrize("through", ["structlog", "logging"])
def test_p06_a_stalled_reader_makes_nobody_wait_and_losses_are_told(
    pipe: Pipe, through: str
) -> None:
    """The pipe is full before the first line; the test's time-out is what a stop would run into."""
    taken = pipe.fill()
    configure_logging("json", "info", descriptor=pipe.write_end)
    log = structlog.get_logger() if through == "structlog" else logging.getLogger("library")
    log.warning("first")
    for number in range(3 * MOST_LINES):
        text = f"line {number}"
        log.warning(text)

    pipe.read(taken)
    *kept, lost = [json.loads(line) for line in pipe.lines("log lines lost")]
    log.warning("back")
    [back] = pipe.lines("back")

    assert [line["event"] for line in kept] == [
        "first",
        *(f"line {number}" for number in range(len(kept) - 1)),
    ]
    assert MOST_LINES <= len(kept) <= 2 * MOST_LINES
    assert (lost["level"], lost["count"]) == ("warning", 3 * MOST_LINES + 1 - len(kept))
    assert json.loads(back)["event"] == "back"


def test_p03_a_stalled_reader_does_not_hold_up_the_end(pipe: Pipe) -> None:
    """The process as such: it must end though its last line cannot be written."""
    pipe.fill()
    code = (
        "import structlog; from scaler.logs import configure_logging\n"
        "configure_logging('json', 'info')\n"
        "for n in range(5000): structlog.get_logger().info('line', n=n)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stderr=pipe.write_end)
    try:
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()


def test_a_clean_end_writes_every_line() -> None:
    code = (
        "import structlog; from scaler.logs import configure_logging\n"
        "configure_logging('json', 'info')\n"
        "for n in range(900): structlog.get_logger().info('line', n=n)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=30, check=True
    )

    assert [json.loads(line)["n"] for line in done.stderr.splitlines()] == list(range(900))


def test_p01_a_forked_child_logs_too() -> None:
    """The writer's thread does not survive a fork; the child gets its own, and only its lines."""
    code = (
        "import os, structlog; from scaler.logs import configure_logging\n"
        "writer = configure_logging('json', 'info'); log = structlog.get_logger()\n"
        "log.info('parent'); writer.drain(10)\n"
        "child = os.fork()\n"
        "if not child: log.info('child'); os._exit(0 if writer.close(10) else 1)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "log.info('parent again')\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )

    events = [json.loads(line)["event"] for line in done.stderr.splitlines()]
    assert events == ["parent", "child", "parent again"]


def told(count: int) -> str:
    return f"lost {count}\n"


def test_a_reader_that_went_away_is_counted_and_does_not_end_the_writer(pipe: Pipe) -> None:
    writer = LineWriter(pipe.write_end, lost=told)
    reader, pipe.read_end = pipe.read_end, -1
    os.close(reader)
    writer.write("nobody\n")
    assert writer.drain(10)
    with Pipe() as again:
        os.dup2(again.write_end, pipe.write_end)
        writer.write("somebody\n")

        assert again.lines("lost") == ["somebody", "lost 1"]
    assert writer.close(10)


def test_a_descriptor_that_somebody_made_non_blocking_is_waited_for(pipe: Pipe) -> None:
    taken = pipe.fill()
    os.set_blocking(pipe.write_end, False)
    writer = LineWriter(pipe.write_end, lost=told)
    writer.write("line\n")
    assert not writer.drain(0.05)
    pipe.read(taken)

    assert pipe.lines("line") == ["line"]
    assert writer.close(10)


def test_a_writer_that_was_closed_begins_again(pipe: Pipe) -> None:
    writer = LineWriter(pipe.write_end, lost=told)
    assert writer.close()
    for number in range(3):
        writer.write(f"{number}\n")
        assert writer.close(10)

    assert pipe.lines("2") == ["0", "1", "2"]


def test_a_line_that_is_no_text_is_written_all_the_same(pipe: Pipe) -> None:
    writer = LineWriter(pipe.write_end, lost=told)
    writer.write("\ud800\n")

    assert pipe.lines("ud800") == ["\\ud800"]
    assert writer.close(10)
