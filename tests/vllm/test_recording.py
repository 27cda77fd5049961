"""The recording format: what is written is read back, and what is broken is named."""

from __future__ import annotations

import json
import lzma
import tracemalloc
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st
from recordings.corpus import HOME, RECORDINGS, name_of, scrapes

from scaler.vllm.recording import BadRecording, RecordedScrape, RecordingWriter, read_recording

if TYPE_CHECKING:
    from pathlib import Path

LINE = '{"t": 1796073338.175, "ms": 0.6, "code": 0, "body": "refused"}\n'
SCRAPES = st.builds(
    RecordedScrape,
    at=st.integers(0, 4_000_000_000_000).map(lambda ms: ms / 1000),
    seconds=st.integers(0, 300_000).map(lambda tenths: tenths / 10 / 1000),
    status=st.sampled_from([0, 200, 503]),
    body=st.text(),
)


@pytest.mark.parametrize("path", RECORDINGS, ids=name_of)
def test_every_recording_reads_to_its_end(path: Path) -> None:
    last = 0.0
    for scrape in read_recording(path):
        assert scrape.at > last
        assert scrape.status in {0, 200}
        last = scrape.at


def test_a_recording_keeps_what_failed() -> None:
    restart = scrapes("cpu/0.32.0-v1/restart")

    assert len(restart) == 149
    assert sum(scrape.status == 0 for scrape in restart) == 37
    assert restart[20].body == "URLError(ConnectionRefusedError)"
    assert restart[20].seconds == pytest.approx(0.0005)


@given(st.lists(SCRAPES, max_size=5))
@pytest.mark.parametrize("suffix", [".jsonl", ".jsonl.xz"])
def test_what_is_written_is_read_back(
    tmp_path_factory: pytest.TempPathFactory, suffix: str, written: list[RecordedScrape]
) -> None:
    path = tmp_path_factory.mktemp("recording") / f"x{suffix}"
    with RecordingWriter(path) as writer:
        for scrape in written:
            writer.write(scrape)

    assert list(read_recording(path)) == written


def test_our_own_recordings_are_written_as_they_are(tmp_path: Path) -> None:
    source = HOME / "cpu/0.11.0-v1/idle.metrics.jsonl.xz"
    copy = tmp_path / "copy.jsonl.xz"
    with RecordingWriter(copy) as writer:
        for scrape in read_recording(source):
            writer.write(scrape)

    with lzma.open(copy) as ours, lzma.open(source) as theirs:
        assert list(map(json.loads, ours)) == list(map(json.loads, theirs))


def test_a_recording_is_never_written_over(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(LINE)

    with pytest.raises(FileExistsError):
        RecordingWriter(path)
    assert path.read_text() == LINE


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("{\n", "is no JSON"),
        ("[]\n", 'must be an object with "t", "ms", "code" and "body"'),
        (LINE.replace("1796073338.175", '"now"'), "\"t\" must be a number of at least 0, is 'now'"),
        (LINE.replace("1796073338.175", "NaN"), '"t" must be a number of at least 0, is nan'),
        (LINE.replace("0.6", "-1"), '"ms" must be a number of at least 0, is -1'),
        (LINE.replace("0.6", "true"), '"ms" must be a number of at least 0, is True'),
        (LINE.replace(": 0,", ": 700,"), '"code" must be an HTTP status or 0, is 700'),
        (LINE.replace('"code": 0, ', ""), '"code" must be an HTTP status or 0, is None'),
        (LINE.replace('"refused"', "7"), '"body" must be a text'),
    ],
)
def test_a_bad_line_is_named_with_its_file(tmp_path: Path, line: str, problem: str) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text(f"{LINE}\n{line}{LINE}")
    reading = read_recording(path)

    assert next(reading).body == "refused"
    with pytest.raises(BadRecording) as raised:
        next(reading)
    assert str(raised.value) == f"{path}, line 3: {problem}"


@pytest.mark.parametrize("damage", [lambda data: data[:-40], lambda data: b"x" + data])
def test_compressed_data_that_is_cut_or_broken_is_named(tmp_path: Path, damage: object) -> None:
    path = tmp_path / "x.jsonl.xz"
    data = (HOME / "cpu/0.11.0-v1/idle.metrics.jsonl.xz").read_bytes()
    assert callable(damage)
    path.write_bytes(damage(data))

    with pytest.raises(BadRecording, match=r"x\.jsonl\.xz, line \d+: .* cut or broken"):
        list(read_recording(path))


def test_a_file_that_is_not_there_is_an_os_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        list(read_recording(tmp_path / "x.jsonl.xz"))


def test_reading_and_writing_need_the_memory_of_one_scrape(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    scrape = RecordedScrape(1.0, 0.1, 200, "# one of many\n" * 4000)
    tracemalloc.start()
    with RecordingWriter(path) as writer:
        for _ in range(400):
            writer.write(scrape)
    count = sum(1 for _ in read_recording(path))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()

    assert count == 400
    assert path.stat().st_size > 20_000_000
    assert peak < 2_000_000
