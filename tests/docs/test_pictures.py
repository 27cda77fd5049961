"""Pictures are made by the code they speak of, and are current."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("script", sorted((ROOT / "docs" / "pictures").glob("*.py")), ids=str)
def test_the_picture_is_current(script: Path) -> None:
    check = subprocess.run(
        [sys.executable, script, "--check"], capture_output=True, text=True, check=False, cwd=ROOT
    )

    assert check.returncode == 0, check.stdout + check.stderr
