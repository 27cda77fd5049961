"""What the repository and the wheel may hold, and what they must."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import scaler

ROOT = Path(__file__).parents[2]
# Where packages come from is the machine's business: pip's and apt's settings say it, no file here.
HOSTS = (
    r"pythonhosted\.org",
    r"\bpypi\.org",
    r"proxy\.golang\.org",
    r"registry\.npmjs\.org",
    r"deb\.debian\.org",
    r"crates\.io\b",
    r"repo1?\.maven\.",
    r"\bdocker\.io",
    r"\bghcr\.io",
    r"\bquay\.io",
    r"\bgcr\.io",
)


@pytest.fixture(scope="module")
def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    return [p for name in listed.stdout.split("\0") if name and (p := ROOT / name).is_file()]


def test_no_tracked_file_names_a_registry(tracked: list[Path]) -> None:
    pattern = re.compile("|".join(HOSTS))

    guilty = [
        str(path.relative_to(ROOT))
        for path in tracked
        if path.suffix != ".xz" and pattern.search(path.read_text(errors="replace"))
    ]

    assert guilty == []


def test_no_module_is_a_drawer_for_odds_and_ends(tracked: list[Path]) -> None:
    assert [p for p in tracked if p.stem in {"utils", "helpers", "common", "misc"}] == []


def test_the_wheel_holds_the_package_with_its_data_and_nothing_else(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", tmp_path],
        cwd=ROOT,
        capture_output=True,
        check=True,
    )

    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()

    assert wheel.name == f"vllm_scaler-{scaler.__version__}-py3-none-any.whl"
    assert "scaler/demo/data/h200-8b.standup.metrics.jsonl.xz" in names
    tops = {name.split("/")[0] for name in names}
    assert tops == {"scaler", f"vllm_scaler-{scaler.__version__}.dist-info"}
    metadata = f"vllm_scaler-{scaler.__version__}.dist-info"
    assert f"{metadata}/licenses/LICENSE" in names
    assert f"{metadata}/entry_points.txt" in names
