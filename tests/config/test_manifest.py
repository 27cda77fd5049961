"""Manifests: one file per rule, each ending in the exact remarks it must get."""

from __future__ import annotations

from pathlib import Path

import pytest

from scaler.config.manifest import read_manifest
from scaler.config.remarks import Level

TESTDATA = Path(__file__).parent / "testdata"
FILES = sorted(TESTDATA.glob("*.yaml"))
WORST = {"invalid": Level.ERROR, "warning": Level.WARNING, "note": Level.NOTE}


def expected_remarks(text: str) -> list[str]:
    _, _, listing = text.partition("# expect:\n")
    return [line.removeprefix("#   ") for line in listing.splitlines()]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_file_gets_exactly_the_remarks_it_names(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    report = read_manifest(text)

    assert [f"{remark.line}: {remark}" for remark in report.remarks] == expected_remarks(text)
    worst = max((remark.level for remark in report.remarks), default=None)
    assert worst == WORST.get(path.stem.split("-")[0])


def test_h06_no_remark_shows_a_secret() -> None:
    for path in FILES:
        report = read_manifest(path.read_text(encoding="utf-8"))
        assert not any("hush" in str(remark) for remark in report.remarks)


def remarks_of(name: str) -> list[str]:
    return [str(remark) for remark in read_manifest((TESTDATA / name).read_text()).remarks]


def test_f10_a_keda_cron_trigger_beside_ours_is_said_to_join_by_maximum() -> None:
    assert (
        "warning: spec.triggers[3].type: cron: joins by maximum and knows no lead time; "
        "write the window into this scaler's schedule"
    ) in remarks_of("warning-company.yaml")


def test_k04_a_static_fallback_below_the_maximum_is_warned_of() -> None:
    (remark,) = remarks_of("warning-fallback-static.yaml")

    assert "use currentReplicasIfHigher" in remark


def test_k07_value_multiplies_and_is_warned_of() -> None:
    (remark,) = remarks_of("warning-metric-type-value.yaml")

    assert "use AverageValue" in remark


@pytest.mark.parametrize(
    ("target", "bare"),
    [
        ('targetInFlight: "40"', False),
        ('targetTokenRate: "2000"', False),
        ("targetTtft: 3s", False),
        ("targetQueueTime: 2s", False),
        ('targetTtft: "off"', True),
        ('targetWaiting: "5"', True),
        ('targetKvUsage: "0.8"', True),
        ('targetWaitng: "5"', True),
        ("target: 3s", True),
        ("targetTtft: soon", False),  # refused with a remark of its own
    ],
)
def test_only_a_target_that_counts_makes_a_trigger_more_than_bare(
    target: str, *, bare: bool
) -> None:
    text = (TESTDATA / "warning-bare.yaml").read_text().partition("# expect:")[0]

    report = read_manifest(f"{text}        {target}\n")

    assert any("no target is set" in remark.message for remark in report.remarks) is bare


def test_k21_going_down_without_a_stabilization_is_warned_of() -> None:
    (remark,) = remarks_of("warning-stabilization.yaml")

    assert "cooldownPeriod is something else" in remark


def test_every_rule_file_is_there() -> None:
    """A glob that finds nothing would pass everything above."""
    assert len(FILES) >= 70


@pytest.mark.parametrize(
    ("name", "objects", "triggers"),
    [("good", 1, 1), ("good-list", 1, 1), ("warning-company", 1, 2), ("note-other-scaler", 0, 0)],
)
def test_a_report_counts_what_is_ours(name: str, objects: int, triggers: int) -> None:
    report = read_manifest((TESTDATA / f"{name}.yaml").read_text(encoding="utf-8"))

    assert (report.scaled_objects, report.triggers) == (objects, triggers)


def test_json_is_read_like_yaml() -> None:
    report = read_manifest(
        '{"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "spec": {"triggers": [\n'
        '\t{"type": "external", "metadata": {"scalerAddress": "a:1", "targetTtft": "soon"}}]}}'
    )

    assert "2: targetTtft: soon" in {
        f"{remark.line}: {remark.key}: {remark.value}" for remark in report.remarks
    }


@pytest.mark.parametrize(
    "text", ["", "---\n---\n", "just text", "- a\n- b\n", "? [a]\n: b\n", "kind: ScaledObject\n"]
)
def test_a_file_without_our_objects_says_so(text: str) -> None:
    report = read_manifest(text)

    assert [str(remark) for remark in report.remarks] == [
        "note: no ScaledObject with a trigger for this scaler"
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[" * 60, "nested deeper than 50 levels"),
        ("[" + "1," * 50_001 + "]", "more than 50000 values"),
        ("a: &a [1]\nb: *a\n", "anchors and aliases (& and *) are not accepted"),
        (
            "a: !!python/object:os.system x\n",
            "note: no ScaledObject with a trigger for this scaler",
        ),
        ("a: 'open", "not YAML: found unexpected end of stream"),
    ],
)
def test_hostile_yaml_is_bounded(text: str, message: str) -> None:
    assert [str(remark) for remark in read_manifest(text).remarks] == [message]


@pytest.mark.parametrize(
    ("written", "what"),
    [
        ("5", "a number"),
        ("0.85", "a number"),
        ("1e3", "a number"),
        ("0x1f", "a number"),
        (".inf", "a number"),
        ("yes", "a boolean"),
        ("Off", "a boolean"),
        ("~", "null"),
        ("", "null"),
        ("{a: b}", "a map"),
        ("[1]", "a list"),
        ("2026-12-24", None),
        ("3s", None),
        ("'5'", None),
        ('"off"', None),
        ("1.2.3", None),
    ],
)
def test_what_kubernetes_would_not_read_as_a_string(written: str, what: str | None) -> None:
    report = read_manifest(
        "apiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nspec: {triggers: [{type: external, "
        f"metadata: {{scalerAddress: a, model: {written}}}}}]}}\n"
    )

    said = [remark.message for remark in report.remarks if "metadata values" in remark.message]
    assert [message.partition(",")[0] for message in said] == ([f"is {what}"] if what else [])


def test_control_characters_are_shown_escaped() -> None:
    report = read_manifest(
        "apiVersion: keda.sh/v1alpha1\nkind: ScaledObject\nspec: {triggers: [{type: external, "
        'metadata: {scalerAddress: a, targetTtft: "\\e[31m"}}]}\n'
    )

    assert not any("\x1b" in str(remark) for remark in report.remarks)
    assert any("'\\x1b[31m'" in str(remark) for remark in report.remarks)
