"""The scaler's metrics about itself."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from prometheus_client import REGISTRY, generate_latest

import scaler
from scaler.core.model import Reason, ScrapeCause
from scaler.exporter.telemetry import Telemetry

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


def value(telemetry: Telemetry, name: str, **labels: str) -> float | None:
    return telemetry.registry.get_sample_value(f"vllm_scaler_{name}", labels)


@pytest.mark.parametrize("cause", [None, *ScrapeCause])
def test_scrapes_by_cause(cause: ScrapeCause | None) -> None:
    telemetry = Telemetry()
    telemetry.scrape(cause, 3.1)
    telemetry.scrape(cause, 0.02)

    assert value(telemetry, "scrapes_total", cause=cause or "ok") == 2
    assert value(telemetry, "scrape_duration_seconds_sum") == pytest.approx(3.12)
    assert value(telemetry, "scrape_duration_seconds_bucket", le="2.0") == 1


def test_every_cause_is_there_from_the_start() -> None:
    """A counter that appears at 1 hides its first increase from rate()."""
    telemetry = Telemetry()

    assert {value(telemetry, "scrapes_total", cause=cause) for cause in ("ok", *ScrapeCause)} == {0}
    assert {value(telemetry, "decisions_total", reason=reason) for reason in Reason} == {0}


def test_sweeps_and_decisions() -> None:
    telemetry = Telemetry()
    telemetry.sweep(0.7)
    telemetry.decision(Reason.SCHEDULE_FLOOR, 0.0002)

    assert value(telemetry, "sweep_duration_seconds_count") == 1
    assert value(telemetry, "decisions_total", reason="schedule_floor") == 1
    assert value(telemetry, "decision_duration_seconds_bucket", le="0.00025") == 1


def test_rpcs_by_method_and_code() -> None:
    telemetry = Telemetry()
    telemetry.rpc("GetMetrics", "OK", 0.001)
    telemetry.rpc("GetMetrics", "OK", 0.003)
    telemetry.rpc("GetMetrics", "UNAVAILABLE", 1.5)

    assert value(telemetry, "rpcs_total", method="GetMetrics", code="OK") == 2
    assert value(telemetry, "rpcs_total", method="GetMetrics", code="UNAVAILABLE") == 1
    assert value(telemetry, "rpc_duration_seconds_count", method="GetMetrics") == 3


def test_a_stream_is_counted_and_not_timed() -> None:
    """How long a stream was open is no time to an answer: it would fill the last bucket alone."""
    telemetry = Telemetry()
    telemetry.rpc("StreamIsActive", "CANCELLED", None)

    assert value(telemetry, "rpcs_total", method="StreamIsActive", code="CANCELLED") == 1
    assert not value(telemetry, "rpc_duration_seconds_count", method="StreamIsActive")


def test_open_streams_go_up_and_down() -> None:
    telemetry = Telemetry()
    telemetry.streams(2)
    telemetry.streams(-1)

    assert value(telemetry, "open_streams") == 1


def test_build_info_and_process_metrics() -> None:
    telemetry = Telemetry()
    text = generate_latest(telemetry.registry).decode()

    version = {"python": sys.version.split()[0], "version": scaler.__version__}
    assert value(telemetry, "build_info", **version) == 1
    assert "\nprocess_resident_memory_bytes " in text
    assert "\npython_info{" in text
    assert "_created" not in text


def test_two_instances_share_nothing() -> None:
    """An own registry each: nothing is left in the library's global one."""
    before = {metric.name for metric in REGISTRY.collect()}
    first, second = Telemetry(), Telemetry()
    first.sweep(1.0)

    assert value(second, "sweep_duration_seconds_count") == 0
    assert {metric.name for metric in REGISTRY.collect()} == before


def _python(code: str, environment: Mapping[str, str], directory: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return done.stdout


def test_p12_no_multiprocess_files(tmp_path: Path) -> None:
    """A deployment that sets vLLM's PROMETHEUS_MULTIPROC_DIR gets no .db files from us."""
    code = (
        "from scaler.exporter.telemetry import Telemetry\n"
        "t = Telemetry(); t.sweep(1.0); t.rpc('GetMetrics', 'OK', 0.1)\n"
        "print(t.registry.get_sample_value('vllm_scaler_sweep_duration_seconds_count'))"
    )
    target = tmp_path / "multiproc"
    target.mkdir()
    home = tmp_path / "home"
    home.mkdir()

    counted = _python(code, {"PROMETHEUS_MULTIPROC_DIR": str(target), "HOME": str(home)}, home)

    assert counted == "1.0\n"
    assert list(target.iterdir()) == []
    assert list(home.iterdir()) == []


def test_p12_the_library_alone_would_write_them(tmp_path: Path) -> None:
    """The test above can fail: the same counting without our package leaves a file."""
    code = "from prometheus_client import Counter\nCounter('a', 'b').inc()"
    _python(code, {"PROMETHEUS_MULTIPROC_DIR": str(tmp_path)}, tmp_path)

    assert [path.suffix for path in tmp_path.iterdir()] == [".db"]
