"""The rules that our Dockerfile keeps, and that its reader reads what it says."""

from __future__ import annotations

import re
from pathlib import Path

import dockerfile
import pytest

ROOT = Path(__file__).parents[2]
STAGES = dockerfile.read(ROOT / "Dockerfile")
LAST = STAGES[-1]
EVERY = [step for stage in STAGES for step in stage.instructions]


def test_every_base_image_names_a_version_and_no_registry() -> None:
    for stage in STAGES:
        repository, _, tag = stage.image.partition(":")
        assert re.fullmatch(r"\d+\.\d+[\w.-]*", tag), f"{stage.image}: pin a version"
        assert "/" not in repository, f"{stage.image} names a registry"


def test_p03_the_process_is_pid_1_itself() -> None:
    entry, command = LAST.last("ENTRYPOINT"), LAST.last("CMD")
    assert entry is not None
    assert entry.exec_form == ("python3", "-m", "scaler")
    assert command is not None
    assert command.exec_form == ("serve",)
    stop = LAST.last("STOPSIGNAL")
    assert stop is not None
    assert stop.text == "SIGTERM"


def test_the_last_stage_needs_no_shell() -> None:
    assert LAST.all("RUN") == ()
    shells = re.compile(r"\b(ba|da|a)?sh\b")
    for name in ("ENTRYPOINT", "CMD"):
        assert not any(shells.search(step.text) for step in LAST.all(name))


def test_p12_it_runs_as_a_number_that_is_not_root_and_writes_no_bytecode() -> None:
    user = LAST.last("USER")
    assert user is not None
    uid, gid = user.text.split(":")
    assert int(uid) >= 10_000
    assert int(gid) >= 10_000
    environment = {k: v for step in LAST.all("ENV") for k, v in step.pairs.items()}
    assert environment["PYTHONDONTWRITEBYTECODE"] == "1"
    assert environment["PYTHONSAFEPATH"] == "1"


def test_the_ports_are_those_of_the_settings() -> None:
    exposed = {port for step in LAST.all("EXPOSE") for port in step.words}
    assert exposed == {"6000", "8080"}


def test_nothing_is_fetched_but_what_the_hashes_name() -> None:
    installs = [step.text for step in EVERY if "pip install" in step.text]
    assert installs
    for text in installs:
        assert "--require-hashes" in text or "--no-index" in text, text
        assert "--no-cache-dir" in text, text
    assert not [step for step in EVERY if re.search(r"https?://|curl|wget", step.text)]


def test_run_lines_are_relative_so_that_a_script_can_run_them() -> None:
    runs = [step for step in EVERY if step.name == "RUN"]
    assert runs
    for step in runs:
        assert not re.search(r"(^|[\s=])/", step.text), f"line {step.line}: {step.text}"


def test_what_is_copied_in_passes_the_dockerignore() -> None:
    admitted = {
        line[1:]
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line.startswith("!")
    }
    copied = {
        source
        for stage in STAGES
        for step in stage.all("COPY")
        if "from" not in step.flags
        for source in step.words[:-1]
    }
    assert copied == admitted
    assert all((ROOT / source).exists() for source in copied)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param("FROM a:1\nADD https://x/y /z\n", 2, id="add"),
        pytest.param("FROM a:1\n\n# note\nRUN <<EOF\n", 4, id="heredoc"),
        pytest.param("FROM a:1\nONBUILD RUN x\n", 2, id="onbuild"),
    ],
)
def test_the_reader_refuses_what_it_cannot_read(tmp_path: Path, text: str, line: int) -> None:
    (tmp_path / "Dockerfile").write_text(text)

    with pytest.raises(ValueError, match=f"line {line}: cannot read"):
        dockerfile.read(tmp_path / "Dockerfile")


def test_the_reader_joins_lines_and_expands_arguments(tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text(
        "ARG A=base:1\nARG B=${A}\nFROM ${B} AS one\nENV X=1 \\\n    # a comment\n    Y=2\n"
        'FROM scratch:2\nCOPY --from=one /x /y\nCMD ["a", "b c"]\n'
    )

    one, two = dockerfile.read(tmp_path / "Dockerfile")

    assert (one.image, one.name, two.image, two.name) == ("base:1", "one", "scratch:2", "")
    assert one.instructions[0].pairs == {"X": "1", "Y": "2"}
    assert (one.instructions[0].line, two.instructions[0].line) == (4, 8)
    assert two.instructions[0].flags == {"from": "one"}
    assert two.instructions[0].words == ("/x", "/y")
    assert two.instructions[1].exec_form == ("a", "b c")
