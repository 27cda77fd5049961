"""The demo's targets come from the bench results it ships, and from nothing else."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from scaler.config.trigger import parse_trigger
from scaler.demo.curve import carried_within, read_curve, targets

if TYPE_CHECKING:
    from pathlib import Path


def test_the_shipped_curve() -> None:
    curve = read_curve()

    assert [level.concurrency for level in curve] == [1, 4, 16, 64, 128, 256, 512]
    assert curve[4].ttft_p95 == pytest.approx(2.3579, abs=1e-4)
    assert curve[5].ttft_p95 > 3.0


def test_the_targets_are_those_of_the_last_level_that_keeps_the_promise() -> None:
    assert targets(3.0) == {
        "targetInFlight": "128",
        "targetTokenRate": "39649",
        "targetTtft": "3s",
    }


def test_the_trigger_reads_them() -> None:
    policy, warnings = parse_trigger({"endpoints": "http://127.0.0.1:8000", **targets(3.0)})

    assert (policy.target_in_flight, policy.target_token_rate, policy.target_ttft) == (
        128.0,
        39649.0,
        3.0,
    )
    assert warnings == ()


def test_a_promise_that_no_level_keeps_has_no_targets() -> None:
    with pytest.raises(ValueError, match=r"no level of the curve keeps p95 TTFT under 0\.001 s"):
        carried_within(read_curve(), 0.001)


def test_a_level_after_a_broken_one_does_not_count(tmp_path: Path) -> None:
    for concurrency, p95 in ((1, 100.0), (2, 4000.0), (4, 200.0)):
        result = {
            "max_concurrency": concurrency,
            "p95_ttft_ms": p95,
            "total_token_throughput": 10.0,
        }
        (tmp_path / f"h200-8b.bench-c{concurrency:04}.json").write_text(json.dumps(result))

    assert targets(3.0, tmp_path)["targetInFlight"] == "1"


def test_no_curve_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="no h200-8b"):
        read_curve(tmp_path)
