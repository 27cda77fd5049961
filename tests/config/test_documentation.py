"""What the documentation says is what the code does: every key, default, range and example."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from scaler.config.keys import OWN_KEYS, VALUE_KEYS
from scaler.config.manifest import read_manifest
from scaler.config.trigger import MAX_CHARACTERS, MAX_KEYS, parse_trigger

DOCS = Path(__file__).parents[2] / "docs"
TRIGGERS = (DOCS / "triggers.md").read_text(encoding="utf-8")
FENCED_YAML = re.compile(r"```yaml\n(.*?)```", re.DOTALL)
BLOCKS = [
    pytest.param(block, id=f"{page}-{index}")
    for page in ("triggers", "schedules")
    for index, block in enumerate(
        FENCED_YAML.findall((DOCS / f"{page}.md").read_text(encoding="utf-8"))
    )
]


@pytest.mark.parametrize("key", VALUE_KEYS, ids=lambda key: key.name)
def test_a_key_is_listed_with_its_default_and_what_is_allowed(key: object) -> None:
    name, default, allowed = key.name, key.default, key.reader.allowed  # type: ignore[attr-defined]
    shown = f"`{default}`" if default else "(none)"

    assert f"| `{name}` | {shown} | {allowed} |" in TRIGGERS


@pytest.mark.parametrize("name", sorted(OWN_KEYS))
def test_a_key_is_listed_once_and_explained(name: str) -> None:
    assert TRIGGERS.count(f"| `{name}` |") == 1
    assert f"**`{name}`**" in TRIGGERS


def test_nothing_is_listed_that_is_no_key() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", TRIGGERS, re.MULTILINE)) == OWN_KEYS


def test_the_bounds_are_the_documented_ones() -> None:
    assert f"More than {MAX_KEYS} keys or {MAX_CHARACTERS // 1024} KiB" in TRIGGERS


def test_there_are_examples() -> None:
    assert len(BLOCKS) >= 6


@pytest.mark.parametrize("block", BLOCKS)
def test_an_example_is_what_the_scaler_accepts_without_a_word(block: str) -> None:
    if "kind: ScaledObject" in block:
        report = read_manifest(block)
        assert (report.remarks, report.triggers) == ((), 1)
    else:
        policy, warnings = parse_trigger(yaml.safe_load(block))
        assert warnings == ()
        assert policy.windows
