"""What is seen, and what is decided: the frozen types the whole package speaks in.

``PodSample`` is one good scrape, ``PodObservation`` one pod as the shell knows it at an instant,
``Snapshot`` all pods of a trigger, ``Decision`` the answer with its reasons. Absence is a value
(``None``, a missing key, a ``ScrapeFailure``), never a zero.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


@dataclass(frozen=True, slots=True)
class Now:
    """One instant on two clocks.

    ``wall`` is aware and serves calendars only; ``monotonic`` (seconds) serves ages and windows,
    so a stepped wall clock cannot make data old or rates negative.
    """

    wall: datetime
    monotonic: float


# --- one scrape ---------------------------------------------------------------------------------


class Count(StrEnum):
    """The counters the core reads, by neutral name; ``vllm/names.py`` knows vLLM's names."""

    FINISHED = "finished"  # requests, all finish reasons but abort
    ERRORS = "errors"  # requests that finished with an error
    REJECTIONS = "rejections"  # requests refused by admission control (vLLM 0.32+)
    FIRST_TOKENS = "first_tokens"  # the TTFT histogram's count; present in deltas only
    PROMPT_TOKENS = "prompt_tokens"
    CACHED_TOKENS = "cached_tokens"  # prompt tokens served from the prefix cache
    GENERATION_TOKENS = "generation_tokens"
    PREEMPTIONS = "preemptions"
    PROMPT_LENGTH_SUM = "prompt_length_sum"  # over finished requests
    PROMPT_LENGTH_COUNT = "prompt_length_count"
    OUTPUT_LENGTH_SUM = "output_length_sum"  # over finished requests
    OUTPUT_LENGTH_COUNT = "output_length_count"


class Latency(StrEnum):
    """The latency histograms the core reads."""

    TTFT = "ttft"  # observed at the first token
    ITL = "itl"  # observed at each token
    QUEUE_TIME = "queue_time"  # observed when a request finishes: late


@dataclass(frozen=True, slots=True)
class Histogram:
    """A Prometheus histogram at one instant: cumulative ``counts`` at upper ``bounds``.

    ``bounds`` ascend and end with +Inf, so ``counts[-1]`` is the number of observations.
    """

    bounds: tuple[float, ...]
    counts: tuple[float, ...]
    sum: float

    @property
    def count(self) -> float:
        """Observations so far."""
        return self.counts[-1]


@dataclass(frozen=True, slots=True)
class ModelSample:
    """What one pod says about one model, combined over its engines.

    Requests and counters are summed over engines; ``kv_usage`` (0..1) is the fullest engine's and
    ``kv_usage_mean`` the engines' mean. A counter or histogram the version lacks is absent.
    """

    running: float
    waiting: float
    kv_usage: float | None = None
    kv_usage_mean: float | None = None
    waiting_by_reason: Mapping[str, float] = field(default_factory=dict)
    engines: int = 1
    sleeping: bool = False  # every engine sleeps
    counts: Mapping[Count, float] = field(default_factory=dict)
    latencies: Mapping[Latency, Histogram] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PodSample:
    """One good scrape of one pod.

    ``models`` maps the served model name to its sample. It is empty when vLLM declared its families
    but has served no request yet: an idle pod whose model is not known.
    ``process_start`` is unix seconds where the server exports it: a change is a restart.
    ``rejected`` counts values that were dropped, by cause (``out_of_range``, ``non_finite``).
    ``kv_name`` is the exposed name the KV use came from; ``missing`` names wanted families that the
    body lacks (``kv``, ``ttft`` …). ``cache_config``: the labels of ``vllm:cache_config_info``.
    """

    models: Mapping[str, ModelSample]
    process_start: float | None = None
    rejected: Mapping[str, int] = field(default_factory=dict)
    kv_name: str | None = None
    missing: frozenset[str] = frozenset()
    cache_config: Mapping[str, str] = field(default_factory=dict)


class ScrapeCause(StrEnum):
    """Why a scrape gave nothing. Low cardinality: a label value."""

    REFUSED = "refused"  # nobody listens: the pod is loading, or dead
    TIMEOUT = "timeout"
    RESET = "reset"
    DNS = "dns"
    TLS = "tls"
    UNAUTHORIZED = "unauthorized"  # 401 or 403
    HTTP_STATUS = "http_status"
    REDIRECT = "redirect"  # elsewhere, or more than once
    TOO_LARGE = "too_large"
    TRUNCATED = "truncated"
    NOT_METRICS = "not_metrics"  # a login page, JSON, bytes that are no exposition
    NO_VLLM_METRICS = "no_vllm_metrics"  # 200, but no vllm: family
    NON_FINITE = "non_finite"  # NaN or Inf where a request count belongs
    OTHER_MODEL = "other_model"  # the pod serves other models than the trigger's
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class ScrapeFailure:
    """A scrape that failed: the cause, and one line for a person, without secrets."""

    cause: ScrapeCause
    detail: str


# --- one pod, all pods ----------------------------------------------------------------------------


class PodLife(StrEnum):
    """Where a pod stands, as the discovery knows it."""

    READY = "ready"
    UNKNOWN = "unknown"  # a static endpoint: nobody says whether it should be serving
    STARTING = "starting"
    UNSCHEDULABLE = "unschedulable"
    CRASH_LOOPING = "crash_looping"
    OVERDUE = "overdue"  # starting for longer than any start should take
    TERMINATING = "terminating"


@dataclass(frozen=True, slots=True)
class PodObservation:
    """One expected pod: its newest good sample, and how the newest attempt went.

    ``pod`` is stable and never reused for another process (a UID, or a static base URL).
    ``sampled_at`` is the monotonic instant of ``sample``; ``failure`` is None when the newest
    attempt succeeded. No sample and no failure: not asked yet.
    """

    pod: str
    life: PodLife = PodLife.UNKNOWN
    sample: PodSample | None = None
    sampled_at: float | None = None
    failure: ScrapeFailure | None = None


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All pods of a trigger at one instant.

    ``fresh_for`` (seconds) is how old a sample may be and still count as fresh: three scrape
    intervals and the time-out. ``current_replicas`` is what the scale target asks for now, where
    that is known. ``discovery_error`` says why the list of pods cannot be trusted.
    """

    sequence: int
    pods: tuple[PodObservation, ...]
    fresh_for: float
    current_replicas: int | None = None
    discovery_error: str | None = None
    waking: bool = False
    learned_cold_start: float | None = None
    forecast_floor: int = 0


# --- the answer -----------------------------------------------------------------------------------


class Signal(StrEnum):
    """One way to turn what was seen into replicas needed."""

    QUEUE = "queue"
    CONCURRENCY = "concurrency"
    THROUGHPUT = "throughput"
    KV = "kv"
    QUEUE_TIME = "queue_time"
    TTFT = "ttft"


class Reason(StrEnum):
    """What set the number (valid) or why there is none (invalid). A label value."""

    # valid
    IDLE = "idle"  # nothing to do, and nothing asks for more
    NO_PODS = "no_pods"  # a legal state: nothing runs, nothing is asked for
    LOAD = "load"  # the binding signal
    SPARE = "spare"  # spareReplicas on top of the load
    SCHEDULE_FLOOR = "schedule_floor"
    FORECAST_FLOOR = "forecast_floor"
    STARTING = "starting"  # no pod is ready yet; those asked for are kept
    OCCUPIED = "occupied"  # nothing else is needed, but pods hold a place and cannot serve
    DOWN_RATIO = "down_ratio"
    MIN_REPLICAS = "min_replicas"
    MAX_REPLICAS = "max_replicas"
    BELOW_QUORUM = "below_quorum"  # up only
    HOLD = "hold"  # the last good value
    FLOOR_ONLY = "floor_only"  # blind, but a floor is due
    # invalid
    QUORUM_LOST = "quorum_lost"
    NO_DATA = "no_data"
    CANNOT_LIST_PODS = "cannot_list_pods"
    AMBIGUOUS_MODEL = "ambiguous_model"


@dataclass(frozen=True, slots=True)
class SignalReading:
    """One signal: ``needed`` replicas, from ``observed`` against ``target`` (in the signal's unit).

    ``counted`` is what entered the composite: ``needed``, or less when the throughput capped it,
    or None when the signal was read but must not count.
    """

    needed: float
    observed: float
    target: float
    counted: float | None


class Guard(StrEnum):
    """A rule that changed the number on its way out, in the order they are applied."""

    THROUGHPUT_CAP = "throughput_cap"  # queue or concurrency asked for more than the work is worth
    SPARE = "spare"
    OCCUPIED = "occupied"  # pods that hold a place and cannot serve were added
    DOWN_RATIO = "down_ratio"
    UP_ONLY = "up_only"  # below quorum: not down
    HOLD = "hold"
    MIN_REPLICAS = "min_replicas"
    MAX_REPLICAS = "max_replicas"


@dataclass(frozen=True, slots=True)
class PodCounts:
    """How many pods are in which state. ``total`` leaves out the terminating ones."""

    total: int = 0
    ready: int = 0  # expected to serve: the denominator of the quorum
    fresh: int = 0  # of ``ready``, those with a fresh sample
    starting: int = 0
    unschedulable: int = 0
    crash_looping: int = 0
    overdue: int = 0
    sleeping: int = 0
    stalled: int = 0
    terminating: int = 0

    @property
    def serving(self) -> int:
        """Ready pods that can take work: neither asleep nor stalled."""
        return self.ready - self.stalled


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Mean and quantiles of a latency over the window, seconds.

    Each quantile is (estimate, lower edge, upper edge) of the bucket it lies in; the upper edge is
    +Inf in the last bucket, where the estimate is the lower edge.
    """

    count: float
    mean: float
    p50: tuple[float, float, float]
    p95: tuple[float, float, float]
    p99: tuple[float, float, float]


@dataclass(frozen=True, slots=True)
class FleetView:
    """What the fleet does, after the rules for missing pods. Rates are per second over the window.

    None: not known (yet). ``within_promise`` bounds the share of requests whose first token came
    within ``targetTtft``, from the bucket edges around it.
    """

    running: float | None = None
    waiting: float | None = None
    waiting_by_reason: Mapping[str, float] = field(default_factory=dict)
    kv_mean: float | None = None
    kv_max: float | None = None
    arrival_rate: float | None = None
    finish_rate: float | None = None
    rejection_rate: float | None = None
    error_rate: float | None = None
    preemption_rate: float | None = None
    prompt_token_rate: float | None = None
    generation_token_rate: float | None = None
    tokens_per_request: float | None = None
    arriving_token_rate: float | None = None
    expected_wait: float | None = None
    latencies: Mapping[Latency, Quantiles] = field(default_factory=dict)
    within_promise: tuple[float, float] | None = None

    @property
    def in_flight(self) -> float | None:
        """Running and waiting requests."""
        if self.running is None or self.waiting is None:
            return None
        return self.running + self.waiting


class PodState(StrEnum):
    """One word for a pod in a decision."""

    FRESH = "fresh"
    STALE = "stale"
    MISSING = "missing"
    STARTING = "starting"
    UNSCHEDULABLE = "unschedulable"
    CRASH_LOOPING = "crash_looping"
    OVERDUE = "overdue"
    SLEEPING = "sleeping"
    STALLED = "stalled"
    TERMINATING = "terminating"


@dataclass(frozen=True, slots=True)
class PodView:
    """One pod as the decision saw it. ``age`` is that of its newest good sample, seconds."""

    pod: str
    state: PodState
    running: float | None = None
    waiting: float | None = None
    kv_usage: float | None = None
    age: float | None = None
    failure: ScrapeFailure | None = None
    rejected: Mapping[str, int] = field(default_factory=dict)
    missing: frozenset[str] = frozenset()
    kv_name: str | None = None


@dataclass(frozen=True, slots=True)
class Floors:
    """The least replicas that a schedule or a forecast asks for now."""

    schedule: int = 0
    forecast: int = 0
    window: str = ""  # the open window, in words; empty when none is
    released: bool = False  # a window is open, but its spike did not come
    next_opening: datetime | None = None  # lead included

    @property
    def highest(self) -> int:
        """The floor that binds."""
        return max(self.schedule, self.forecast)


@dataclass(frozen=True, slots=True)
class Decision:
    """The published answer. KEDA, ``/metrics``, the log and the page all read this object.

    ``desired`` means something only when ``valid``; ``active`` always does. ``message`` is one
    short, stable, secret-free sentence. ``composite`` is the largest counted signal (replicas,
    fractional), ``pressure`` that over the serving pods.
    """

    sequence: int
    at: Now
    valid: bool
    desired: int
    active: bool
    reason: Reason
    message: str
    binding: Signal | None = None
    composite: float | None = None
    pressure: float | None = None
    signals: Mapping[Signal, SignalReading] = field(default_factory=dict)
    guards: tuple[Guard, ...] = ()
    floors: Floors = Floors()
    counts: PodCounts = PodCounts()
    fleet: FleetView = FleetView()
    pods: tuple[PodView, ...] = ()
    model: str | None = None
    notes: tuple[str, ...] = ()  # e.g. infeasible_promise, in words
    infeasible_promise: bool = False
    oldest_sample_age: float | None = None
    resets: int = 0  # pods whose counters started anew since the decision before
