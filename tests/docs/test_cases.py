"""Every acceptance case is a test named by its id, or is said to be left out, and why."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# Letters are what a case is about: vLLM's metrics, KEDA and the HPA, time, discovery and scraping,
# the Python process, prediction.
CASES = {
    "V": "01-04 06 07 09 11-13 16 17",
    "K": "01-04 06-09 11-13 16-19 21 23",
    "T": "01 04 06 07 09 10 13-15 17",
    "D": "02-04 06 09-14 16-18",
    "P": "01 03 05-07 09 12-17",
    "F": "02-04 06 08 10-12",
}


def ids() -> list[str]:
    """Return each case's id."""
    found = []
    for letter, numbers in CASES.items():
        for span in numbers.split():
            first, _, last = span.partition("-")
            found += [f"{letter}{n:02}" for n in range(int(first), int(last or first) + 1)]
    return found


def left_out() -> str:
    """Return the table of the operations page."""
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    (section,) = re.findall(
        r"^## Cases that need more.*?(?=^## |\Z)", page, re.DOTALL | re.MULTILINE
    )
    return str(section)


TESTED = {
    name.upper()
    for path in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^ *(?:async )?def test_([a-z]\d\d)_", path.read_text(), re.MULTILINE)
}
WHOLE = set(
    re.findall(
        r"[A-Z]\d\d", " ".join(re.findall(r"^\| ([^|]+) \| whole", left_out(), re.MULTILINE))
    )
)


@pytest.mark.parametrize("case", ids())
def test_a_case_is_a_test_or_is_said_to_be_left_out(case: str) -> None:
    assert (case in TESTED) != (case in WHOLE)


def test_nothing_is_left_out_that_is_no_case() -> None:
    named = set(re.findall(r"\b[A-Z]\d\d\b", left_out()))

    assert {"K03", "D09"} <= WHOLE
    assert named <= set(ids())
