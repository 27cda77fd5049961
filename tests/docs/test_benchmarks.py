"""The page of figures names its scripts, and the scripts do not talk a miss away."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SCRIPTS = sorted((ROOT / "benchmarks").glob("*.py"))
PAGE = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_every_script_has_its_row(path: Path) -> None:
    rows = [line for line in PAGE.splitlines() if line.startswith("|")]

    assert any(f"`{path.name}`" in row for row in rows)


def test_every_named_script_is_there() -> None:
    assert set(re.findall(r"`(\w+\.py)`", PAGE)) == {path.name for path in SCRIPTS}


@pytest.mark.parametrize(
    ("p99", "bare", "verdict"),
    [
        pytest.param(4.9, 1.0, "met", id="under the budget"),
        pytest.param(4.9, 9.0, "met", id="under the budget on a slow machine"),
        pytest.param(5.1, 4.9, "MISSED", id="over it where nothing is under it"),
        pytest.param(9.0, 6.0, "cannot be told, doing nothing takes 6.0 ms here", id="all slow"),
        pytest.param(12.1, 6.0, "MISSED", id="twice as slow as nothing"),
    ],
)
def test_a_slow_machine_excuses_only_so_much(
    p99: float, bare: float, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = importlib.util.spec_from_file_location("rpc", ROOT / "benchmarks" / "rpc.py")
    assert spec is not None
    assert spec.loader is not None
    rpc = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "rpc", rpc)  # where dataclasses look themselves up
    spec.loader.exec_module(rpc)

    assert rpc._verdict(p99, bare, 5.0) == f"  budget 5 ms: {verdict}"
