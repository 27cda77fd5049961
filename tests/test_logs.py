"""What is logged, and what is not."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import structlog
from fakes import Fleet, sample
from structlog.testing import capture_logs

from scaler.core.model import Reason, ScrapeCause, ScrapeFailure
from scaler.logs import EventLog, configure_logging
from scaler.store import TriggerKey

if TYPE_CHECKING:
    from collections.abc import Iterator

KEY = TriggerKey("team", "llama", "1a2b3c4d")


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    yield
    structlog.reset_defaults()


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


def test_json_is_one_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("json", "info")
    structlog.get_logger().info("hello", number=1)
    structlog.get_logger().debug("not this")
    EventLog().failed(KEY, ValueError("defect"))

    first, second = (json.loads(line) for line in capsys.readouterr().err.splitlines())
    assert (first["event"], first["number"], first["level"]) == ("hello", 1, "info")
    assert second["exception"][0]["exc_type"] == "ValueError"


def test_console_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("console", "warning")
    structlog.get_logger().warning("hello", number=1)

    line = capsys.readouterr().err
    assert "hello" in line
    assert "\x1b[" not in line  # no colours into a pipe
