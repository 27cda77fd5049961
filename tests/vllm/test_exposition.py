"""What a body says, and when it says nothing: the cases people met."""

from __future__ import annotations

import math

import pytest
from recordings.corpus import single

from scaler.core.model import Count, Histogram, Latency, ModelSample, PodSample, ScrapeCause
from scaler.core.model import ScrapeFailure as Failure
from scaler.vllm import names, series
from scaler.vllm.exposition import read_exposition

RUNNING = 'vllm:num_requests_running{engine="0",model_name="m"} 2.0\n'
WAITING = 'vllm:num_requests_waiting{engine="0",model_name="m"} 3.0\n'
BASE = RUNNING + WAITING


def read(text: str) -> PodSample:
    outcome = read_exposition(text.encode())
    assert isinstance(outcome, PodSample), outcome
    return outcome


def model(text: str, name: str = "m") -> ModelSample:
    return read(text).models[name]


def cause(text: str | bytes, *, openmetrics: bool | None = None) -> ScrapeCause:
    body = text if isinstance(text, bytes) else text.encode()
    outcome = read_exposition(body, openmetrics=openmetrics)
    assert isinstance(outcome, Failure), outcome
    return outcome.cause


def histogram(
    name: str, *points: tuple[str, float], total: float, labels: str = 'engine="0",model_name="m"'
) -> str:
    lines = [f'{name}_bucket{{{labels},le="{le}"}} {count}' for le, count in points]
    lines += [f"{name}_sum{{{labels}}} {total}", f"{name}_count{{{labels}}} {points[-1][1]}"]
    return "\n".join(lines) + "\n"


# --- V01, V02, V03 ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("lines", "name"),
    [
        pytest.param(
            ['vllm:gpu_cache_usage_perc{model_name="m"} 0.7'],
            "vllm:gpu_cache_usage_perc",
            id="only the old name",
        ),
        pytest.param(
            ['vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.7'],
            "vllm:kv_cache_usage_perc",
            id="only the new name",
        ),
        pytest.param(
            [
                'vllm:gpu_cache_usage_perc{engine="0",model_name="m"} 0.7',
                'vllm:kv_cache_usage_perc{engine="0",model_name="m"} 0.7',
            ],
            "vllm:kv_cache_usage_perc",
            id="both",
        ),
    ],
)
def test_v01_kv_by_either_name_is_counted_once(lines: list[str], name: str) -> None:
    sample = read(BASE + "\n".join(lines) + "\n")

    assert sample.kv_name == name
    assert sample.models["m"].kv_usage == 0.7
    assert sample.models["m"].kv_usage_mean == 0.7
    assert "kv" not in sample.missing


def test_v01_without_any_kv_name_the_rest_still_reads() -> None:
    sample = read(BASE)

    assert sample.kv_name is None
    assert "kv" in sample.missing
    assert sample.models["m"].kv_usage is None
    assert sample.models["m"].running == 2


@pytest.mark.parametrize(
    "declare",
    [
        pytest.param("# HELP {0} Text.\n# TYPE {0} gauge\n", id="text format"),
        pytest.param("# TYPE {0} gauge\n", id="TYPE alone"),
    ],
)
def test_v02_declared_families_without_samples_are_an_idle_pod(declare: str) -> None:
    body = "".join(map(declare.format, [names.WAITING, names.RUNNING, "vllm:kv_cache_usage_perc"]))
    sample = read(body)

    assert sample.models == {}
    assert sample.missing == frozenset()


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("", id="0 bytes"),
        pytest.param("\n \n", id="blank"),
        pytest.param("# EOF\n", id="empty OpenMetrics"),
        pytest.param(
            'python_info{version="3.12.3"} 1.0\nprocess_start_time_seconds 1.7e9\n',
            id="python and process families alone",
        ),
        pytest.param(
            'vllm:lora_requests_info{max_lora="0"} 1.7e9\n', id="a vllm family without meaning here"
        ),
    ],
)
def test_v03_200_without_vllm_families_is_a_failure(body: str) -> None:
    outcome = read_exposition(body.encode())

    assert isinstance(outcome, Failure)
    assert outcome.cause is ScrapeCause.NO_VLLM_METRICS
    assert "stats logging disabled, or wrong port?" in outcome.detail


def test_v03_gauges_that_vanish_after_load_are_unknown_not_zero() -> None:
    served = 'vllm:generation_tokens_total{engine="0",model_name="m"} 7.0\n'

    assert cause(served) is ScrapeCause.NO_VLLM_METRICS
    assert model(served.replace("7.0", "0.0")).running == 0


@pytest.mark.parametrize("half", [RUNNING, WAITING])
def test_one_gauge_without_its_sibling_is_no_zero(half: str) -> None:
    assert cause(half) is ScrapeCause.TRUNCATED


# --- engines, twins, routers, models --------------------------------------------------------------


def test_v04_engines_are_summed_and_kv_is_the_fullest_and_the_mean() -> None:
    body = "".join(
        f'vllm:num_requests_running{{engine="{engine}",model_name="m"}} 1\n'
        f'vllm:num_requests_waiting{{engine="{engine}",model_name="m"}} {waiting}\n'
        f'vllm:kv_cache_usage_perc{{engine="{engine}",model_name="m"}} {kv}\n'
        for engine, waiting, kv in [(0, 3, 0.2), (1, 5, 0.9)]
    )
    found = model(body)

    assert (found.running, found.waiting, found.engines) == (2, 8, 2)
    assert found.kv_usage == 0.9
    assert found.kv_usage_mean == pytest.approx(0.55)


def test_v04_one_engine_repeated_by_pid_counts_once() -> None:
    """A gauge for each API process; all but one usually 0 (vLLM PR #28792)."""
    body = "".join(
        f'{name}{{engine="0",model_name="m",pid="{pid}"}} {value}\n'
        for name, values in [
            (names.RUNNING, (3, 3)),
            (names.WAITING, (3, 3)),
            ("vllm:kv_cache_usage_perc", (0.0, 0.6)),
        ]
        for pid, value in zip((71, 72), values, strict=True)
    )
    found = model(body)

    assert (found.running, found.waiting, found.engines) == (3, 3, 1)
    assert found.kv_usage == found.kv_usage_mean == 0.6


def test_engines_of_which_only_some_have_gauges_are_summed_as_they_are() -> None:
    body = BASE + "".join(
        f'vllm:generation_tokens_total{{engine="{engine}",model_name="m"}} 5\n' for engine in (0, 1)
    )
    found = model(body)

    assert (found.running, found.waiting) == (2, 3)
    assert found.counts[Count.GENERATION_TOKENS] == 10


def test_a_routers_series_are_left_out() -> None:
    """production-stack's router exports its own numbers under vLLM's names, label ``server``."""
    routed = 'vllm:num_requests_running{server="http://a:8000",model_name="m"} 99\n'

    assert model(BASE + routed).running == 2
    assert cause(routed) is ScrapeCause.NO_VLLM_METRICS
    declared = f"# TYPE {names.RUNNING} gauge\n{routed}"
    assert cause(declared) is ScrapeCause.NO_VLLM_METRICS


def test_each_model_has_its_own_sample() -> None:
    body = BASE + BASE.replace('"m"', '"org/other:7b%"').replace("3.0", "9.0")

    assert model(body, "m").waiting == 3
    assert model(body, "org/other:7b%").waiting == 9


@pytest.mark.parametrize(
    ("states", "sleeping"),
    [
        pytest.param(((0, 1.0), (1, 1.0)), False, id="awake"),
        pytest.param(((0, 0.0), (1, 1.0)), False, id="one of two sleeps"),
        pytest.param(((0, 0.0), (1, 0.0)), True, id="both sleep"),
    ],
)
def test_a_pod_sleeps_when_every_engine_does(
    states: tuple[tuple[int, float], ...], sleeping: bool
) -> None:
    lines = "".join(
        f'vllm:engine_sleep_state{{engine="{engine}",model_name="m",sleep_state="awake"}} {awake}\n'
        f'vllm:engine_sleep_state{{engine="{engine}",model_name="m",sleep_state="discard_all"}} 0\n'
        for engine, awake in states
    )

    assert model(BASE + lines).sleeping is sleeping


# --- exact names ---------------------------------------------------------------------------------


def test_v06_created_timestamps_are_no_seconds_of_queue() -> None:
    name = "vllm:request_queue_time_seconds"
    created = f'{name}_created{{engine="0",model_name="m"}} 1.78e9\n'
    before = model(BASE + histogram(name, ("0.3", 1), ("+Inf", 4), total=12) + created)
    after = model(BASE + histogram(name, ("0.3", 1), ("+Inf", 8), total=22) + created)

    old, new = before.latencies[Latency.QUEUE_TIME], after.latencies[Latency.QUEUE_TIME]
    assert (new.sum - old.sum) / (new.count - old.count) == 2.5


def test_v16_names_match_with_their_colon_and_whole() -> None:
    decoys = "".join(
        f'{name}{{engine="0",model_name="m",reason="capacity"}} 1000\n'
        for name in (
            "vllm_num_requests_waiting",
            "ray_vllm_num_requests_waiting",
            "vllm:num_requests_waiting_",
            "vllm:num_requests_waiting:sum",
            "x:vllm:num_requests_waiting",
            "vllm:iteration_tokens_total_sum",
        )
    )
    found = model(BASE + decoys)

    assert found.waiting == 3
    assert found.counts == {}


def test_v16_a_colon_written_as_an_underscore_is_not_an_idle_pod() -> None:
    body = f"# TYPE {names.RUNNING} gauge\n# TYPE {names.WAITING} gauge\n{BASE}# EOF\n"

    assert read(body.replace("\nvllm:", "\nvllm_")) == read(body)


def test_waiting_by_reason_is_apart_from_waiting() -> None:
    """It adds up to ``num_requests_waiting``: a prefix match counts the queue twice."""
    lines = "".join(
        f'vllm:num_requests_waiting_by_reason{{engine="0",model_name="m",reason="{reason}"}} {n}\n'
        for reason, n in [("capacity", 2), ("deferred", 1)]
    )
    found = model(lines + BASE)

    assert found.waiting == 3
    assert found.waiting_by_reason == {"capacity": 2, "deferred": 1}


def test_inter_token_latency_is_read_once_where_both_names_are_exported() -> None:
    """0.10.2 to 0.13 export the old and the new name (gpustack #2985)."""
    old = histogram("vllm:time_per_output_token_seconds", ("0.1", 7), ("+Inf", 9), total=1)
    new = histogram("vllm:inter_token_latency_seconds", ("0.1", 5), ("+Inf", 6), total=2)

    assert model(BASE + old + new).latencies[Latency.ITL].count == 6
    assert model(BASE + new + old).latencies[Latency.ITL].count == 6
    assert model(BASE + old).latencies[Latency.ITL].count == 9


@pytest.mark.parametrize(
    ("present", "expected"),
    [
        (("prompt_tokens_cached_total", "prefix_cache_hits_total"), 1),
        (("prefix_cache_hits_total", "gpu_prefix_cache_hits_total"), 2),
        (("gpu_prefix_cache_hits_total",), 3),
        (("external_prefix_cache_hits_total",), None),
    ],
)
def test_cached_tokens_come_from_the_best_counter(
    present: tuple[str, ...], expected: float | None
) -> None:
    values = {
        "prompt_tokens_cached_total": 1,
        "prefix_cache_hits_total": 2,
        "gpu_prefix_cache_hits_total": 3,
        "external_prefix_cache_hits_total": 4,
    }
    lines = "".join(f'vllm:{n}{{engine="0",model_name="m"}} {values[n]}\n' for n in present)

    assert model(BASE + lines).counts.get(Count.CACHED_TOKENS) == expected


def test_finished_leaves_aborts_out_and_errors_are_counted_apart() -> None:
    lines = "".join(
        f'vllm:request_success_total{{engine="0",finished_reason="{reason}",model_name="m"}} {n}\n'
        for reason, n in [("stop", 1), ("length", 2), ("abort", 100), ("error", 4)]
    )
    counts = model(BASE + lines).counts

    assert counts == {Count.FINISHED: 7, Count.ERRORS: 4}


def test_rejections_have_no_engine_and_add_up_over_reasons() -> None:
    lines = "".join(
        f'vllm:admission_rejections_total{{model_name="m",reason="{reason}"}} {n}\n'
        for reason, n in [("max_num_queued_reqs", 40), ("max_num_queued_tokens", 2)]
    )
    found = model(BASE + lines)

    assert found.counts == {Count.REJECTIONS: 42}
    assert found.engines == 1


def test_a_counter_that_the_version_lacks_is_absent_not_zero() -> None:
    sample = read(BASE)

    assert sample.models["m"].counts == {}
    assert sample.models["m"].latencies == {}
    assert sample.missing == {
        "kv", "finished", "prompt_tokens", "generation_tokens", "ttft", "itl", "queue_time"
    }  # fmt: skip


# --- values that cannot be ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ("-0.3875", "out_of_range"),
        ("37.5", "out_of_range"),
        ("1.0000001", "out_of_range"),
        ("NaN", "non_finite"),
        ("+Inf", "non_finite"),
    ],
)
def test_v12_kv_that_cannot_be_is_dropped_and_counted_never_clamped(value: str, why: str) -> None:
    bad = f'vllm:kv_cache_usage_perc{{engine="0",model_name="m"}} {value}\n'
    good = 'vllm:kv_cache_usage_perc{engine="1",model_name="m"} 0.5\n'

    alone = read(BASE + bad)
    assert alone.models["m"].kv_usage is None
    assert alone.rejected == {why: 1}
    assert "kv" not in alone.missing

    beside = read(BASE + bad + good)
    assert beside.models["m"].kv_usage == beside.models["m"].kv_usage_mean == 0.5
    assert beside.rejected == {why: 1}


def test_a_tiny_kv_use_of_an_idle_server_is_kept_as_it_is() -> None:
    """production-stack #617: the null block counts, up to 0.10.1."""
    found = model(BASE + 'vllm:gpu_cache_usage_perc{model_name="m"} 9.75e-06\n')

    assert found.kv_usage == 9.75e-06


@pytest.mark.parametrize("value", ["NaN", "+Inf", "-Inf", "-1"])
@pytest.mark.parametrize("line", [RUNNING, WAITING])
def test_v13_a_request_gauge_that_cannot_be_fails_the_scrape(line: str, value: str) -> None:
    body = BASE.replace(line, line.replace("2.0", value).replace("3.0", value))
    outcome = read_exposition(body.encode())

    assert isinstance(outcome, Failure)
    assert outcome.cause is ScrapeCause.NON_FINITE
    assert outcome.detail.startswith(line.partition("{")[0])


def test_v13_other_values_that_cannot_be_are_dropped_and_counted() -> None:
    body = (
        BASE
        + 'vllm:prompt_tokens_total{engine="0",model_name="m"} NaN\n'
        + 'vllm:generation_tokens_total{engine="0",model_name="m"} -5\n'
        + 'vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} +Inf\n'
        + 'vllm:num_requests_waiting_by_reason{model_name="m",reason="capacity"} NaN\n'
        + histogram("vllm:time_to_first_token_seconds", ("1", 4), ("+Inf", 3), total=1)
        + histogram("vllm:request_queue_time_seconds", ("1", 1), ("+Inf", 3), total=math.nan)
    )
    sample = read(body)

    assert sample.models["m"].counts == {}
    assert sample.models["m"].latencies == {}
    assert sample.models["m"].waiting_by_reason == {}
    assert sample.rejected == {"non_finite": 4, "out_of_range": 2}


# --- histograms -----------------------------------------------------------------------------------


def test_bounds_come_from_the_scrape() -> None:
    text = histogram(
        "vllm:time_to_first_token_seconds", ("0.2", 1), ("3.0", 4), ("+Inf", 9), total=30.5
    )

    assert model(BASE + text).latencies[Latency.TTFT] == Histogram(
        (0.2, 3.0, math.inf), (1, 4, 9), 30.5
    )


def test_engines_with_other_bounds_meet_on_their_common_edges() -> None:
    name = "vllm:time_to_first_token_seconds"
    text = histogram(name, ("1", 1), ("3", 4), ("+Inf", 9), total=30)
    other = histogram(
        name, ("2", 2), ("3", 5), ("+Inf", 6), total=10, labels='engine="1",model_name="m"'
    )

    assert model(BASE + text + other).latencies[Latency.TTFT] == Histogram(
        (3, math.inf), (9, 15), 40
    )


# --- bodies cut short, and bodies that are none ---------------------------------------------------


def test_a_body_cut_anywhere_is_never_read_as_less_load() -> None:
    """What a cut body still says is right: families may be lacking, requests are never fewer."""
    body = single("0.32.0-v1/loaded")
    whole = read_exposition(body)
    assert isinstance(whole, PodSample)
    for end in range(0, len(body) - 1, 97):
        outcome = read_exposition(body[:end])
        if isinstance(outcome, PodSample) and outcome.models:
            cut, full = outcome.models["tiny"], whole.models["tiny"]
            assert (cut.running, cut.waiting) == (full.running, full.waiting)
            assert cut.counts.items() <= full.counts.items()
            assert cut.latencies.items() <= full.latencies.items()


def test_a_histogram_cut_between_two_lines_is_truncated() -> None:
    text = histogram("vllm:time_to_first_token_seconds", ("1", 1), ("3", 4), ("+Inf", 9), total=30)
    lines = (BASE + text).splitlines(keepends=True)

    assert cause("".join(lines[:-3])) is ScrapeCause.TRUNCATED  # without +Inf
    assert cause("".join(lines[:-2])) is ScrapeCause.TRUNCATED  # without the sum
    assert model("".join(lines[:-1])).latencies[Latency.TTFT].count == 9


def test_a_last_line_without_its_end_is_truncated() -> None:
    assert cause(BASE[:-1]) is ScrapeCause.TRUNCATED
    assert cause(BASE[:-3]) is ScrapeCause.TRUNCATED  # "3.0" became "3"


def test_openmetrics_must_say_eof() -> None:
    declared = "# TYPE vllm:prompt_tokens counter\n"

    assert model(BASE + "# EOF\n").running == 2
    assert model(BASE + "# EOF").running == 2
    assert cause(declared + BASE) is ScrapeCause.TRUNCATED
    assert cause(BASE, openmetrics=True) is ScrapeCause.TRUNCATED
    assert model(declared.replace("tokens", "tokens_total") + BASE).running == 2


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"<!DOCTYPE html>\n<html>sign in</html>\n", id="login page"),
        pytest.param(b"<html>no newline", id="login page without a newline"),
        pytest.param(b'{"detail":"Not Found"}', id="JSON"),
        pytest.param(b'{\n  "object": "list"\n}\n', id="JSON over lines"),
        pytest.param(b"\x1f\x8b\x08\x00\x00\x00\n", id="gzip"),
        pytest.param(b"\x00\xff\xfe\n", id="bytes"),
        pytest.param(b"OK\n", id="a word"),
        pytest.param(b"404 page not found\n", id="a sentence"),
    ],
)
def test_d16_what_is_no_exposition_is_a_failure(body: bytes) -> None:
    assert cause(body) is ScrapeCause.NOT_METRICS


@pytest.mark.parametrize(
    "line",
    [
        'vllm:num_requests_running{engine="0"\n',
        'vllm:num_requests_running{engine="0} 4\n',
        'vllm:num_requests_running{engine="0",engine="1"} 4\n',
        'vllm:num_requests_running{engine="0"} four\n',
        'vllm:num_requests_running{engine="0"}\n',
        "vllm:num_requests_running \n",
        'vllm:time_to_first_token_seconds_bucket{le="much"} 4\n',
    ],
)
def test_a_wanted_line_that_is_no_sample_fails_the_scrape(line: str) -> None:
    outcome = read_exposition((BASE + line).encode())

    assert isinstance(outcome, Failure)
    assert outcome.cause is ScrapeCause.NOT_METRICS
    assert "vllm:" in outcome.detail


def test_lines_of_others_need_not_be_understood() -> None:
    odd = 'broken{a="b\n{"detail":"x"}\n{"my.metric",a="b"} 1\n{"unfinished\nword\n# comment {\n'

    assert model(odd + BASE).running == 2


# --- shapes of a line -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        'vllm:num_requests_running{engine="0",model_name="m"} 2',
        'vllm:num_requests_running{model_name="m",engine="0",} 2.0',
        'vllm:num_requests_running { engine = "0" , model_name = "m" } 2 1395066363000',
        '  vllm:num_requests_running\t{engine="0",model_name="m"}\t2\t1395066363',
        'vllm:num_requests_running{engine="0",model_name="m"}2',
        'vllm:num_requests_running{engine="0",model_name="m"} 2 # {trace_id="} 9"} 0.5 1.2',
        '{"vllm:num_requests_running",engine="0",model_name="m"} 2',
        '{engine="0", "vllm:num_requests_running", "model_name"="m"} 2',
        'vllm:num_requests_running{engine="0",model_name="m"} 2\r',
    ],
)
@pytest.mark.parametrize("place", ["first", "last"])
def test_a_line_reads_in_any_shape_the_formats_allow(line: str, place: str) -> None:
    body = f"{line}\n{WAITING}" if place == "first" else f"{WAITING}{line}\n"

    for _ in range(2):  # the second time from memory
        assert model(body).running == 2


@pytest.mark.parametrize(
    ("raw", "name"),
    [
        (r"a\"b", 'a"b'),
        (r"a\\", "a\\"),
        (r"a\\n", "a\\n"),
        (r"a\nb", "a\nb"),
        (r"a\tb", r"a\tb"),
        ("a} 7", "a} 7"),
        ('a\\"} 7 # {x=\\"', 'a"} 7 # {x="'),
        ("a,b=c{d}", "a,b=c{d}"),
        ("naïve/模型", "naïve/模型"),
        ("", ""),
    ],
)
def test_label_values_hold_anything(raw: str, name: str) -> None:
    body = BASE.replace('"m"', f'"{raw}"')

    for _ in range(2):
        assert read(body).models == {name: ModelSample(running=2, waiting=3)}


def test_bytes_that_are_no_utf8_do_not_end_the_scrape() -> None:
    outcome = read_exposition(BASE.encode().replace(b'"m"', b'"\xff"'))

    assert isinstance(outcome, PodSample)
    assert list(outcome.models) == ["\ufffd"]


def test_samples_without_labels_are_read() -> None:
    sample = read(f"{names.RUNNING} 2\n{names.WAITING}\t3\nprocess_start_time_seconds 1.5e9\n")

    assert sample.models == {"": ModelSample(running=2, waiting=3)}
    assert sample.process_start == 1.5e9


def test_what_is_remembered_stays_within_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(series, "_MOST_LABELS", 50)
    for number in range(500):
        assert model(BASE.replace('"m"', f'"m{number}"'), f"m{number}").waiting == 3

    assert len(series._labels_seen) <= 50


LARGE = 2_000_000


@pytest.mark.timeout(20)
@pytest.mark.parametrize(
    "line",
    [
        pytest.param("vllm:num_requests_running{" + "a" * LARGE, id="a label name"),
        pytest.param('vllm:num_requests_running{a="' + "b" * LARGE, id="a value without an end"),
        pytest.param('vllm:num_requests_running{a="' + "\\\\" * LARGE + '"} 1', id="escapes"),
        pytest.param("vllm:num_requests_running{a" + " " * LARGE + "b", id="spaces after a name"),
        pytest.param('vllm:num_requests_running{a="b"' + " " * LARGE + "x", id="after a value"),
        pytest.param("vllm:num_requests_running{" + 'a="",' * (LARGE // 5) + "} 1", id="labels"),
        pytest.param("vllm:num_requests_running{" + "} " * LARGE, id="braces"),
        pytest.param("vllm:num_requests_running " + "9" * LARGE + "x", id="digits"),
        pytest.param('{"a"}' + "9" * LARGE + "x", id="digits after a quoted name"),
        pytest.param("a" + " " * LARGE + "x", id="spaces"),
        pytest.param("a" * LARGE, id="a name"),
        pytest.param("{" * LARGE, id="opening braces"),
        pytest.param('{"' * LARGE, id="quotes"),
    ],
)
def test_a_hostile_line_costs_no_more_than_its_length(line: str) -> None:
    outcome = read_exposition(line.encode() + b"\n")

    assert isinstance(outcome, Failure)
    assert len(outcome.detail) < 100


def test_more_labels_than_any_series_has_are_refused() -> None:
    labels = ",".join(f'a{number}="x"' for number in range(201))

    assert cause(f"vllm:num_requests_running{{{labels}}} 1\n") is ScrapeCause.NOT_METRICS


# --- the table of names ---------------------------------------------------------------------------


def test_every_sample_name_is_wanted_once_and_in_a_form_vllm_exports() -> None:
    assert len(set(names.SAMPLE_NAMES)) == len(names.SAMPLE_NAMES)
    recorded = "".join(
        single(name).decode() for name in ("0.8.5-v0/loaded", "0.9.2-v1/loaded", "0.32.0-v1/loaded")
    )
    never_seen = {
        name
        for name in names.SAMPLE_NAMES
        if f"\n{name}{{" not in recorded and f"\n{name} " not in recorded
    }

    assert never_seen <= {"vllm:admission_rejections_total"}  # made by the first rejection
