"""``vllm-scaler check``: what it prints, and how it exits."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from scaler.commands.check import check
from scaler.config.trigger import parse_trigger

ROOT = Path(__file__).parents[2]
TESTDATA = ROOT / "tests" / "config" / "testdata"
EXAMPLES = sorted((ROOT / "deploy" / "examples").glob("*.yaml"))


def run(*arguments: str | Path, text: str | bytes | None = None) -> Result:
    return CliRunner().invoke(check, [str(argument) for argument in arguments], input=text)


NOTE = (
    "note: 1 trigger without endpoints: this version does not find pods in Kubernetes yet; "
    "name them, as dns+http://HEADLESS-SERVICE.NAMESPACE.svc:8000"
)


def test_a_clean_file_is_counted_and_exits_0() -> None:
    result = run(TESTDATA / "good.yaml")

    assert result.stdout.splitlines() == [
        NOTE,
        "1 file, 1 ScaledObject, 1 trigger: 0 problems, 0 warnings",
    ]
    assert result.exit_code == 0


def test_a_trigger_with_endpoints_needs_no_note(tmp_path: Path) -> None:
    text = (TESTDATA / "good.yaml").read_text()
    named = text.replace(
        "        scalerAddress:",
        '        endpoints: "dns+http://llama.llm.svc"\n        scalerAddress:',
    )
    (tmp_path / "named.yaml").write_text(named)

    assert named != text
    assert "note" not in run(tmp_path / "named.yaml").stdout


def test_a_problem_is_file_line_key_value_and_what_is_allowed() -> None:
    path = TESTDATA / "invalid-number.yaml"

    result = run(path)

    assert result.stdout.splitlines() == [
        f"{path}:24: targetWaiting: many: must be a number above 0, at most 1,000,000, or off",
        NOTE,
        "1 file, 1 ScaledObject, 1 trigger: 1 problem, 0 warnings",
    ]
    assert result.exit_code == 1


def test_every_problem_of_every_file_is_printed() -> None:
    result = run(TESTDATA / "invalid-schedule-window.yaml", TESTDATA / "warning-company.yaml")

    assert result.stdout.splitlines()[-1] == (
        "2 files, 2 ScaledObjects, 3 triggers: 7 problems, 4 warnings"
    )
    assert result.exit_code == 1


@pytest.mark.parametrize(("options", "code"), [([], 0), (["--strict"], 1)])
def test_warnings_fail_only_a_strict_check(options: list[str], code: int) -> None:
    result = run(*options, TESTDATA / "warning-bare.yaml")

    assert "yaml:21: warning: spec.triggers[0].metadata: no target is set" in result.stdout
    assert result.exit_code == code


def test_a_note_never_fails() -> None:
    assert run("--strict", TESTDATA / "note-other-scaler.yaml").exit_code == 0


def test_standard_input_is_a_file_too() -> None:
    result = run("-", text=(TESTDATA / "invalid-quorum.yaml").read_bytes())

    assert result.stdout.startswith("<stdin>:24: quorum: 50: must be a number above 0")
    assert result.exit_code == 1


def test_an_unreadable_file_exits_2_and_the_others_are_still_checked(tmp_path: Path) -> None:
    missing, binary, huge = tmp_path / "none.yaml", tmp_path / "latin.yaml", tmp_path / "huge.yaml"
    binary.write_bytes(b"\xff\xfe")
    huge.write_bytes(b"#" * (4 * 1024 * 1024 + 1))

    result = run(missing, tmp_path, binary, huge, TESTDATA / "invalid-number.yaml")

    assert result.stderr.splitlines() == [
        f"{missing}: No such file or directory",
        f"{tmp_path}: Is a directory",
        f"{binary}: not UTF-8 text",
        f"{huge}: larger than 4194304 bytes",
    ]
    assert "targetWaiting: many" in result.stdout
    assert result.exit_code == 2


@pytest.mark.parametrize("arguments", [[], ["--nonsense"]])
def test_wrong_usage_exits_2(arguments: list[str]) -> None:
    assert run(*arguments).exit_code == 2


def test_colours_are_for_terminals_only(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = run(TESTDATA / "invalid-number.yaml").stdout
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    coloured = run(TESTDATA / "invalid-number.yaml").stdout

    assert "\x1b" not in plain
    assert "\x1b[31m" in coloured


def test_square_brackets_in_a_manifest_are_not_markup() -> None:
    text = (TESTDATA / "good.yaml").read_text().replace('"40"', '"[red]40[/red]"')

    assert "targetInFlight: [red]40[/red]: must be" in run("-", text=text).stdout


# --- the shipped examples -------------------------------------------------------------------------


def test_there_are_examples() -> None:
    assert {path.stem for path in EXAMPLES} >= {"minimal", "morning-stand-up", "shared-judge"}


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_passes_a_strict_check(path: Path) -> None:
    result = run("--strict", path)

    assert result.stdout == "1 file, 1 ScaledObject, 1 trigger: 0 problems, 0 warnings\n"
    assert result.exit_code == 0


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_a_policy_without_warnings(path: Path) -> None:
    (trigger,) = yaml.safe_load(path.read_text())["spec"]["triggers"]

    assert parse_trigger(trigger["metadata"])[1] == ()


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_k04_an_example_keeps_what_runs_when_the_scaler_is_gone(path: Path) -> None:
    fallback = yaml.safe_load(path.read_text())["spec"]["fallback"]

    assert fallback["behavior"] == "currentReplicasIfHigher"
    assert fallback["failureThreshold"] >= 1
    assert fallback["replicas"] >= 1


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_k21_an_example_says_how_long_going_down_waits(path: Path) -> None:
    spec = yaml.safe_load(path.read_text())["spec"]
    behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]

    assert behavior["scaleDown"]["stabilizationWindowSeconds"] >= 300


def test_the_judge_waits_a_quarter_of_an_hour_and_loses_no_step_of_one() -> None:
    """DESIGN's second user: thrash is what must not happen."""
    spec = yaml.safe_load((ROOT / "deploy/examples/shared-judge.yaml").read_text())["spec"]
    behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]

    assert behavior["scaleDown"]["stabilizationWindowSeconds"] == 900
    assert {behavior[way]["tolerance"] for way in ("scaleUp", "scaleDown")} == {"0"}
