"""What a hostile body costs: never much more than an honest one of its size.

One thread parses all large bodies, and the event loop the small ones, so a body that is slow to
read is slow for everybody.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recordings.corpus import single

from scaler.config.settings import ScrapeSettings
from scaler.core.model import PodSample, ScrapeCause, ScrapeFailure
from scaler.vllm import scrape, series
from scaler.vllm.exposition import read_exposition

if TYPE_CHECKING:
    from collections.abc import Callable

RUNNING = "vllm:num_requests_running"
BUCKET = "vllm:time_to_first_token_seconds_bucket"
LIMIT = ScrapeSettings().max_body_bytes
HONEST = single("0.32.0-v1/loaded")
PLAIN = f'{RUNNING}{{model_name="m"}} 1\nvllm:num_requests_waiting{{model_name="m"}} 1\n'
LABELS = ",".join(f'a{n}="b"' for n in range(198))

SHAPES: dict[str, Callable[[int], str]] = {
    "braces": lambda _: "{\n",
    "spaces": lambda _: " \n",
    "tabs": lambda _: "\t\n",
    "empty lines": lambda _: "\n",
    "comments": lambda _: "#\n",
    "types": lambda _: "# TYPE vllm:\n",
    "almost a name": lambda _: RUNNING[:-1] + "\n",
    "other names in quotes": lambda _: '{"a"} 1\n',
    "a name in quotes": lambda _: f'{{"{RUNNING}"}} 1\n',
    "a name in quotes, all different": lambda n: f'{{"{RUNNING}",a="{n}"}} 1\n',
    "bare names": lambda _: f"{RUNNING} 1\n",
    "bare names with a tab": lambda _: f"{RUNNING}\t1\n",
    "timestamps": lambda _: f'{RUNNING}{{model_name="m"}} 1 1\n',
    "models": lambda n: f'{RUNNING}{{model_name="{n}"}} 1\n',
    "buckets": lambda n: f'{BUCKET}{{model_name="m",le="{n}"}} 1\n',
    "histograms": lambda n: f'{BUCKET}{{model_name="{n}",le="+Inf"}} 1\n',
    "other labels": lambda _: f"{{{LABELS}}} 1\n",
    "labels": lambda n: f'{RUNNING}{{z="{n}",{LABELS}}} 1\n',
    "labels too long to remember": lambda n: f'{RUNNING}{{a="{n}{"x" * 3000}"}} 1\n',
    "escapes": lambda n: f'{RUNNING}{{a="{chr(92) * 1000}{n}"}} 1\n',
    "braces in a row": lambda _: "{" * 1000 + "\n",
    "braces within": lambda _: RUNNING + "{" * 1000 + "} \n",
    "spaces within": lambda _: "{" + " " * 1000 + "\n",
    "digits": lambda _: f'{RUNNING}{{model_name="m"}} {"1" * 1000}\n',
}


def of_size(size: int, line: Callable[[int], str]) -> bytes:
    lines, length, n = [], 0, 0
    while length < size:
        lines.append(line(n))
        length += len(lines[-1])
        n += 1
    return "".join(lines).encode()


def honest(size: int) -> bytes:
    """The body of as many engines as fit, in the families' usual order."""
    return HONEST * (size // len(HONEST))


def cost(body: bytes) -> float:
    """CPU seconds of this thread to read a body whose labels are new: the best of two."""

    def once() -> float:
        series._labels_seen.clear()
        started = time.thread_time()
        read_exposition(body)
        return time.thread_time() - started

    return min(once(), once())


@pytest.fixture(scope="module")
def fair() -> float:
    return cost(honest(LIMIT))


@pytest.mark.parametrize("head", ["", PLAIN], ids=["alone", "after a plain sample"])
@pytest.mark.parametrize("shape", SHAPES)
def test_a_hostile_body_costs_no_more_than_some_honest_ones(
    shape: str, head: str, fair: float
) -> None:
    assert cost(head.encode() + of_size(LIMIT, SHAPES[shape])) < 20 * fair


@pytest.mark.parametrize("size", [scrape._LARGE, LIMIT], ids=["on the loop", "at the limit"])
@pytest.mark.parametrize("shape", SHAPES)
def test_what_is_read_slowly_is_bounded(
    shape: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow: list[int] = []
    read_line = series._read_line

    def counting(line: bytes) -> object:
        slow.append(len(line))
        return read_line(line)

    monkeypatch.setattr(series, "_read_line", counting)
    series._labels_seen.clear()
    read_exposition(of_size(size, SHAPES[shape]))

    assert len(slow) <= 6_000
    assert sum(slow) <= 600_000


@given(st.lists(st.sampled_from(["{", "}", " ", "\t", '"', ",", "=", "\\", RUNNING, "1", "\n"])))
def test_any_mixture_of_odd_pieces_ends_early_or_reads(pieces: list[str]) -> None:
    body = of_size(20_000, lambda _: "".join(pieces) + "{\n")

    assert isinstance(read_exposition(body), PodSample | ScrapeFailure)


def test_too_many_odd_lines_are_told() -> None:
    body = PLAIN.encode() + of_size(LIMIT, SHAPES["braces"])

    assert read_exposition(body) == ScrapeFailure(
        ScrapeCause.NOT_METRICS, "too many lines that are no plain samples"
    )


def test_many_engines_whose_labels_are_new_are_read() -> None:
    """As many as one endpoint has in a wide deployment; each line is read slowly this once."""
    engines = [HONEST.replace(b'engine="0"', f'engine="{n}"'.encode()) for n in range(24)]
    series._labels_seen.clear()
    sample = read_exposition(b"".join(engines))

    assert isinstance(sample, PodSample)
    [model] = sample.models.values()
    assert model.engines == 24
