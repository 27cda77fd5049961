"""vLLM's metric names by what they mean here: the one place that knows them.

Names are those of *samples* (a counter's ends in ``_total``), always matched whole. Where versions
differ, the aliases stand in order of preference, and the first one that a body holds is used alone:
0.9.2 exports both KV names and 0.10.2 to 0.13 both inter-token names, so adding them up counts
twice. Source: ``loggers.py`` of vLLM 0.8.5 to 0.33.0.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from scaler.core.model import Count, Latency

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PREFIX: Final = "vllm:"

RUNNING: Final = "vllm:num_requests_running"
WAITING: Final = "vllm:num_requests_waiting"
WAITING_BY_REASON: Final = "vllm:num_requests_waiting_by_reason"  # 0.20+; adds up to WAITING
SLEEP_STATE: Final = "vllm:engine_sleep_state"  # 0.11.1+
CACHE_CONFIG: Final = "vllm:cache_config_info"
PROCESS_START: Final = "process_start_time_seconds"  # absent in Prometheus multiprocess mode

# A ratio 0..1 despite its name. The old one goes by default in 0.11 and for good in 0.12.
KV_USAGE: Final = ("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc")

# By ``finished_reason``. ``abort`` is exported and stays 0: aborts are never counted (vLLM #31503).
REQUEST_SUCCESS: Final = "vllm:request_success_total"
NOT_FINISHED: Final = "abort"
FAILED: Final = "error"  # 0.13+

COUNTERS: Final[Mapping[Count, tuple[str, ...]]] = {
    Count.REJECTIONS: ("vllm:admission_rejections_total",),  # no engine label
    Count.PROMPT_TOKENS: ("vllm:prompt_tokens_total",),
    # Prompt tokens that were not computed. The first (0.16+) counts at the first token, together
    # with PROMPT_TOKENS; the hits count when a request is scheduled, again after a preemption, and
    # in 0.8.5 in blocks: a lower bound of the tokens.
    Count.CACHED_TOKENS: (
        "vllm:prompt_tokens_cached_total",
        "vllm:prefix_cache_hits_total",
        "vllm:gpu_prefix_cache_hits_total",
    ),
    Count.GENERATION_TOKENS: ("vllm:generation_tokens_total",),
    Count.PREEMPTIONS: ("vllm:num_preemptions_total",),
    Count.PROMPT_LENGTH_SUM: ("vllm:request_prompt_tokens_sum",),
    Count.PROMPT_LENGTH_COUNT: ("vllm:request_prompt_tokens_count",),
    Count.OUTPUT_LENGTH_SUM: ("vllm:request_generation_tokens_sum",),
    Count.OUTPUT_LENGTH_COUNT: ("vllm:request_generation_tokens_count",),
}

HISTOGRAMS: Final[Mapping[Latency, tuple[str, ...]]] = {
    Latency.TTFT: ("vllm:time_to_first_token_seconds",),
    # Until 0.10.1 "time per output token" was the latency between tokens (gpustack #2985).
    Latency.ITL: ("vllm:inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
    Latency.QUEUE_TIME: ("vllm:request_queue_time_seconds",),
}


def _sample_names() -> Iterator[str]:
    yield from (RUNNING, WAITING, WAITING_BY_REASON, SLEEP_STATE, CACHE_CONFIG, PROCESS_START)
    yield from KV_USAGE
    yield REQUEST_SUCCESS
    for counters in COUNTERS.values():
        yield from counters
    for histograms in HISTOGRAMS.values():
        for histogram in histograms:
            yield from (f"{histogram}_bucket", f"{histogram}_sum", f"{histogram}_count")


# Every sample that is read: what ``?name[]=`` asks for, which compares whole sample names
# (``Metric._restricted_metric`` in prometheus_client).
SAMPLE_NAMES: Final[tuple[str, ...]] = tuple(_sample_names())
