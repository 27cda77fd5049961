from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.errors import Problem
from scaler.keda.refusal import LONGEST_TEXT, describe, shorten

LONG = "must be " + "é" * 600  # 1208 bytes


@pytest.mark.parametrize(
    ("problems", "text"),
    [
        pytest.param([Problem("quorum", "2", "from 0 to 1")], "quorum='2': from 0 to 1", id="one"),
        pytest.param(
            [Problem("a", None, "is wrong"), Problem("b", "x", "is wrong")],
            "a: is wrong; b='x': is wrong",
            id="all",
        ),
        pytest.param(
            [Problem("a", None, "is wrong"), Problem("b", None, LONG), Problem("c", None, LONG)],
            "a: is wrong; and 2 more",
            id="as-many-as-fit",
        ),
        pytest.param([Problem("b", None, LONG)], f"b: {LONG}"[:504] + "…", id="not-even-one"),
    ],
)
def test_problems_are_told_in_one_line(problems: list[Problem], text: str) -> None:
    assert describe(problems) == text


@given(st.text(max_size=2000))
def test_a_text_is_cut_between_characters_and_only_when_too_long(text: str) -> None:
    short = shorten(text)

    assert len(short.encode()) <= LONGEST_TEXT
    if len(text.encode()) <= LONGEST_TEXT:
        assert short == text
    else:
        assert short.endswith("…")
        assert text.startswith(short[:-1])
