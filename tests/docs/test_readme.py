"""The README and the pages it leads to: what they show works, and what they link to exists."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

from scaler.__main__ import COMMANDS
from scaler.config.manifest import read_manifest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
SIGNALS = ("concurrency", "queue")
LINK = re.compile(r"\]\((?!https?://)([^)#\s]+)")
FENCED_YAML = re.compile(r"^( *)```yaml\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


def name_of(page: Path) -> str:
    return page.name


def test_the_readme_opens_with_the_two_commands() -> None:
    lines = (ROOT / "README.md").read_text().splitlines()
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)

    assert [line.split()[:2] for line in lines[3:5]] == [["make", "run"], ["make", "test"]]
    assert {"run", "test"} <= set(targets)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    broken = [link for link in LINK.findall(page.read_text()) if not (page.parent / link).exists()]

    assert broken == []


def test_the_readme_s_scaledobject_passes_check() -> None:
    blocks = FENCED_YAML.findall((ROOT / "README.md").read_text())
    assert len(blocks) == 1
    [(indent, text)] = blocks
    manifest = "\n".join(line.removeprefix(indent) for line in text.splitlines())

    report = read_manifest(manifest)

    assert (report.scaled_objects, report.triggers) == (1, 1)
    assert [str(remark) for remark in report.remarks] == []


def test_every_command_is_in_the_readme() -> None:
    text = (ROOT / "README.md").read_text()

    assert all(f"vllm-scaler {command}" in text for command in COMMANDS)


def test_every_flag_of_serve_that_the_pages_name_exists() -> None:
    from scaler.commands.serve import serve  # noqa: PLC0415 - slow to import

    known = {option for parameter in serve.params for option in parameter.opts}
    named = set(re.findall(r"`(--[a-z-]+)", (ROOT / "docs" / "operations.md").read_text()))

    assert named <= known


def test_the_readme_tells_what_the_picture_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    path = ROOT / "docs" / "pictures" / "stand_up.py"
    spec = importlib.util.spec_from_file_location("stand_up", path)
    assert spec is not None
    assert spec.loader is not None
    drawing = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "stand_up", drawing)  # where dataclasses look themselves up
    spec.loader.exec_module(drawing)
    found = drawing.moments()
    text = " ".join((ROOT / "README.md").read_text().split())

    concurrency, queue = (round(drawing.first(found, name, 2.0)) for name in SIGNALS)
    answer = round(drawing.first(found, "desired", 2.0))
    slow = round(next(m.at for m in found if m.ttft is not None and m.ttft > 1.0))

    assert concurrency == answer < queue < slow
    assert (
        f"`concurrency` asks for the second replica at {concurrency} s, `queue` at {queue} s, "
        f"and the mean TTFT passes 1 s at {slow} s."
    ) in text
