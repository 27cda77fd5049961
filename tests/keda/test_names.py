from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaler.keda.names import METRIC_NAME, is_ours, metric_name

# A path segment of the Kubernetes API that survives lower-casing.
KUBERNETES_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


@pytest.mark.parametrize(
    ("metadata", "name"),
    [
        pytest.param({}, METRIC_NAME, id="no-model"),
        pytest.param({"model": "  "}, METRIC_NAME, id="blank-model"),
        pytest.param(
            {"model": "org/name:7b%"},
            "vllm-desired-replicas-org-name-7b-bc9e3f88",
            id="punctuation",
        ),
        pytest.param({"model": "日本"}, "vllm-desired-replicas-cf2abf0c", id="nothing-to-spell"),
    ],
)
def test_v16_the_name_is_literal_and_stable(metadata: dict[str, str], name: str) -> None:
    assert metric_name(metadata) == name


def test_v16_models_that_look_alike_have_names_of_their_own() -> None:
    alike = ["a/b", "a-b", "a.b", "A/B", "a" * 80, "a" * 81]

    assert len({metric_name({"model": model}) for model in alike}) == len(alike)


@given(st.text())
def test_v16_any_model_gives_a_name_that_kubernetes_takes(model: str) -> None:
    name = metric_name({"model": model})

    assert KUBERNETES_NAME.fullmatch(name)
    assert len(name) <= 63
    assert is_ours(name)


@pytest.mark.parametrize(
    ("asked", "ours"),
    [
        ("vllm-desired-replicas", True),
        ("VLLM-Desired-Replicas", True),
        ("s0-vllm-desired-replicas", True),
        ("S12-vllm-desired-replicas-llama-0a1b2c3d", True),
        ("vllm-desired-replicas-of-a-model-before-the-edit", True),
        ("", False),
        ("s0-", False),
        ("s-vllm-desired-replicas", False),
        ("s0-s0-vllm-desired-replicas", False),
        ("prometheus", False),
    ],
)
def test_names_are_known_in_any_case_and_with_an_index(asked: str, *, ours: bool) -> None:
    assert is_ours(asked) is ours
