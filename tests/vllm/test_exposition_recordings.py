"""The reader against prometheus_client's parser, on every recording we have."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from recordings.corpus import HOME, RECORDINGS, SINGLE, name_of, sampled, single
from recordings.oracle import expected

from scaler.core.model import PodSample, ScrapeCause, ScrapeFailure
from scaler.vllm.exposition import read_exposition

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize("path", RECORDINGS, ids=name_of)
def test_a_recording_reads_as_the_reference_parser_reads_it(path: Path) -> None:
    for scrape in sampled(path):
        assert read_exposition(scrape.body.encode()) == expected(scrape.body)


@pytest.mark.parametrize(
    "path", [p for p in SINGLE if "disable-log-stats" not in p.name], ids=name_of
)
def test_an_exposition_reads_as_the_reference_parser_reads_it(path: Path) -> None:
    assert read_exposition(path.read_bytes()) == expected(path.read_text())


def test_all_recordings_are_here() -> None:
    versions = {path.relative_to(HOME).parts[1] for path in SINGLE}

    assert versions == {"0.8.5-v0", "0.9.2-v1", "0.11.0-v1", "0.32.0-v1", "0.32.0-v1-dp2"}
    assert len(RECORDINGS) == 21
    assert len(SINGLE) == 19


@pytest.mark.parametrize("name", ["fresh-disable-log-stats", "after-load-disable-log-stats"])
def test_v03_disabled_stats_are_a_failure_before_and_after_load(name: str) -> None:
    outcome = read_exposition(single(f"0.32.0-v1/{name}"))

    assert outcome == ScrapeFailure(
        ScrapeCause.NO_VLLM_METRICS,
        "no vllm:* families (stats logging disabled, or wrong port?)",
    )


def test_v02_a_fresh_v0_engine_shows_one_family_and_is_idle() -> None:
    outcome = read_exposition(single("0.8.5-v0/fresh"))

    assert isinstance(outcome, PodSample)
    assert outcome.models == {}
    assert outcome.missing == frozenset()
    assert outcome.cache_config["block_size"] == "16"
    assert outcome.cache_config["num_gpu_blocks"] == "32768"


def test_v02_two_fresh_engines_have_counters_and_no_gauges_and_are_idle() -> None:
    outcome = read_exposition(single("0.32.0-v1-dp2/fresh"))

    assert isinstance(outcome, PodSample)
    model = outcome.models["tiny"]
    assert (model.running, model.waiting, model.kv_usage, model.engines) == (0, 0, None, 2)
    assert set(model.counts.values()) == {0.0}
    assert outcome.missing == frozenset()
    assert outcome.process_start is None


@pytest.mark.parametrize(
    ("name", "running", "waiting", "kv", "kv_name"),
    [
        ("0.8.5-v0/loaded", 8, 1031, 0.003265380859375, "vllm:gpu_cache_usage_perc"),
        ("0.9.2-v1/loaded", 3, 107, 0.85, "vllm:kv_cache_usage_perc"),
        ("0.11.0-v1/loaded-hidden-metrics-0.10", 8, 660, 14 / 17, "vllm:kv_cache_usage_perc"),
        ("0.32.0-v1/loaded", 8, 55, 11 / 17, "vllm:kv_cache_usage_perc"),
        ("0.32.0-v1-dp2/loaded", 16, 71, 0.00659340659340657, "vllm:kv_cache_usage_perc"),
    ],
)
def test_v01_each_version_under_load(
    name: str, running: float, waiting: float, kv: float, kv_name: str
) -> None:
    outcome = read_exposition(single(name))

    assert isinstance(outcome, PodSample)
    model = outcome.models["tiny"]
    assert (model.running, model.waiting) == (running, waiting)
    assert model.kv_usage == pytest.approx(kv)
    assert outcome.kv_name == kv_name
    assert outcome.missing == frozenset()
