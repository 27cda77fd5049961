"""Any exposition a server may write reads as prometheus_client's own parsers read it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client.core import Metric
from prometheus_client.openmetrics.exposition import generate_latest
from prometheus_client.samples import Exemplar
from recordings.oracle import expected

from scaler.core.model import PodSample
from scaler.vllm import names
from scaler.vllm.exposition import read_exposition

if TYPE_CHECKING:
    from collections.abc import Iterator

# Everything but surrogates and NUL; the reference parser strips and splits at odd spaces.
TEXTS = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"], include_characters="\n\"\\{},=# '"),
    max_size=12,
)
NUMBERS = st.integers(0, 2**40).map(float)
RATIOS = st.floats(0, 1)
BOUNDS = st.sets(st.sampled_from([0.1, 0.5, 1.0, 2.5, 10.0]), max_size=5).map(sorted)


@dataclass(frozen=True)
class Line:
    """One sample, and the family it belongs to."""

    family: str
    kind: str
    name: str
    labels: dict[str, str]
    value: float


@st.composite
def series(draw: st.DrawFn) -> list[Line]:
    """All series of a pod: some models, some engines, some versions' families."""
    lines: list[Line] = []
    kv = draw(st.lists(st.sampled_from(names.KV_USAGE), unique=True))
    itl = draw(st.lists(st.sampled_from(names.HISTOGRAMS["itl"]), unique=True))  # type: ignore[index]
    counters = draw(st.lists(st.sampled_from(COUNTERS), unique=True))
    if draw(st.booleans()):
        lines.append(Line(names.PROCESS_START, "gauge", names.PROCESS_START, {}, draw(NUMBERS)))
    for model in draw(st.lists(TEXTS, min_size=1, max_size=3, unique=True)):
        for engine in range(draw(st.integers(1, 3))):
            labels = {"engine": str(engine), "model_name": model}
            gauges = (names.RUNNING, names.WAITING, "vllm:num_requests_waiting_by_mood")
            lines += [Line(name, "gauge", name, labels, draw(NUMBERS)) for name in gauges]
            lines += [Line(name, "gauge", name, labels, draw(RATIOS)) for name in kv]
            lines += [_counter(name, labels, draw(NUMBERS)) for name in counters]
            for reason in ("stop", "abort", "error"):
                labelled = {**labels, "finished_reason": reason}
                lines.append(_counter(names.REQUEST_SUCCESS, labelled, draw(NUMBERS)))
            for reason in draw(st.sets(TEXTS, max_size=2)):
                labelled = {**labels, "reason": reason}
                name = names.WAITING_BY_REASON
                lines.append(Line(name, "gauge", name, labelled, draw(NUMBERS)))
            for name in ["vllm:time_to_first_token_seconds", *itl]:
                lines += _histogram(draw, name, labels)
            sleeps = {**labels, "sleep_state": "awake"}
            awake = float(draw(st.booleans()))
            lines.append(Line(names.SLEEP_STATE, "gauge", names.SLEEP_STATE, sleeps, awake))
    return lines


COUNTERS = sorted(
    name for aliases in names.COUNTERS.values() for name in aliases if name.endswith("_total")
)


def _counter(name: str, labels: dict[str, str], value: float) -> Line:
    return Line(name.removesuffix("_total"), "counter", name, labels, value)


def _histogram(draw: st.DrawFn, name: str, labels: dict[str, str]) -> Iterator[Line]:
    count = 0.0
    for bound in [*map(str, draw(BOUNDS)), "+Inf"]:
        count += draw(st.integers(0, 100))
        bucket = {**labels, "le": bound}
        yield Line(name, "histogram", f"{name}_bucket", bucket, count)
    yield Line(name, "histogram", f"{name}_count", labels, count)
    yield Line(name, "histogram", f"{name}_sum", labels, draw(NUMBERS))
    created = f"{name}_created"
    yield Line(created, "gauge", created, labels, draw(NUMBERS))


def _escape(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _sample(line: Line, tail: str) -> str:
    labels = ",".join(f'{key}="{_escape(value)}"' for key, value in line.labels.items())
    return f"{line.name}{f'{{{labels}}}' if labels else ''} {line.value}{tail}\n"


def _text(lines: list[Line], tail: str) -> str:
    """In the text format; a TYPE line wherever the family changes."""
    written, family = [], ""
    for line in lines:
        total = "_total" if line.kind == "counter" else ""
        if line.family != family:
            family = line.family
            written.append(
                f"# HELP {family}{total} It's {{odd}}.\n# TYPE {family}{total} {line.kind}\n"
            )
        written.append(_sample(line, tail))
    return "".join(written)


@given(series(), st.sampled_from(["", " 1395066363000"]))
@settings(max_examples=100, deadline=None)
def test_the_text_format_with_families_together(lines: list[Line], tail: str) -> None:
    text = _text(sorted(lines, key=lambda line: line.family), tail)

    _check(text)


@given(series().flatmap(st.permutations))
@settings(max_examples=100, deadline=None)
def test_the_text_format_in_any_order(lines: list[Line]) -> None:
    _check(_text(lines, ""))


@given(series(), st.data())
@settings(max_examples=100, deadline=None)
def test_series_repeated_by_process_and_series_of_a_router(
    lines: list[Line], data: st.DataObject
) -> None:
    twins = [
        Line(line.family, line.kind, line.name, {**line.labels, "pid": pid}, value)
        for line in lines
        if line.name in {names.RUNNING, names.WAITING, *names.KV_USAGE}
        for pid, value in (("71", line.value), ("72", data.draw(RATIOS) * line.value))
    ]
    singles = [line for line in lines if line.name not in {twin.name for twin in twins}]
    routed = [
        Line(line.family, line.kind, line.name, {**line.labels, "server": "http://a"}, 7.0)
        for line in data.draw(st.lists(st.sampled_from(lines), max_size=5))
    ]

    _check(_text(data.draw(st.permutations([*singles, *twins, *routed])), ""))


@given(series())
@settings(max_examples=100, deadline=None)
def test_openmetrics_as_prometheus_client_writes_it(lines: list[Line]) -> None:
    families: dict[str, Metric] = {}
    for line in lines:
        if line.name.endswith("_created"):
            continue
        family = families.setdefault(line.family, Metric(line.family, "It's odd.", line.kind))
        exemplar = Exemplar({"trace_id": "a1"}, 0.05) if "le" in line.labels else None
        family.add_sample(line.name, line.labels, line.value, exemplar=exemplar)

    class Registry:
        def collect(self) -> Iterator[Metric]:
            yield from families.values()

    # prometheus_client writes the samples' colons as underscores here, and the families' as they
    # are, which its own parser refuses; the Rust front end writes colons everywhere.
    escaped = generate_latest(Registry()).decode()  # type: ignore[no-untyped-call]
    text = escaped.replace("\nvllm_", "\nvllm:")

    outcome = read_exposition(text.encode(), openmetrics=True)
    assert outcome == expected(text, openmetrics=True)
    assert outcome == read_exposition(text.encode())
    assert outcome == read_exposition(escaped.encode(), openmetrics=True)


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
@settings(max_examples=300, deadline=None)
def test_no_bytes_whatever_raise(body: bytes) -> None:
    read_exposition(body)
    read_exposition(b"vllm:num_requests_running{" + body + b"\n")
    read_exposition(b'{"vllm:num_requests_running"' + body + b"\n")


def _check(text: str) -> None:
    outcome = read_exposition(text.encode())

    assert isinstance(outcome, PodSample)
    assert outcome == expected(text)
