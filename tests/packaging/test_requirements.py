"""The pinned requirements: they fit pyproject.toml, carry hashes, and agree with each other."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())
GROUPS: dict[str, list[Any]] = PROJECT["dependency-groups"]


def pins(name: str) -> dict[str, Version]:
    """Return what requirements/NAME.txt pins, whatever the environment marker."""
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    found = re.findall(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)", text, flags=re.MULTILINE)
    return {canonicalize_name(package): Version(version) for package, version in found}


def group(name: str) -> Iterator[Requirement]:
    for entry in GROUPS[name]:
        if isinstance(entry, str):
            yield Requirement(entry)
        else:
            yield from group(entry["include-group"])


RUN = [Requirement(text) for text in PROJECT["project"]["dependencies"]]
BUILD = [Requirement(text) for text in PROJECT["build-system"]["requires"]]


@pytest.mark.parametrize(
    ("file", "wanted"),
    [
        pytest.param("run", RUN, id="run"),
        pytest.param("dev", [*RUN, *group("dev")], id="dev"),
        pytest.param("build", BUILD, id="build"),
    ],
)
def test_the_lock_covers_what_the_project_asks_for(file: str, wanted: list[Requirement]) -> None:
    pinned = pins(file)

    missing = [
        str(requirement)
        for requirement in wanted
        if (version := pinned.get(canonicalize_name(requirement.name))) is None
        or version not in requirement.specifier
    ]

    assert missing == [], "run make lock"


def needed(requirements: list[Requirement]) -> set[str]:
    """Return the names that these requirements lead to, on whatever platform."""
    names, ahead = set[str](), [canonicalize_name(r.name) for r in requirements]
    while ahead:
        name = ahead.pop()
        if name in names:
            continue
        names.add(name)
        try:
            texts = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # of another platform: a leaf, here
            continue
        further = [Requirement(text) for text in texts]
        ahead += [canonicalize_name(r.name) for r in further if "extra ==" not in str(r.marker)]
    return names


@pytest.mark.parametrize(
    ("file", "wanted"),
    [pytest.param("run", RUN, id="run"), pytest.param("build", BUILD, id="build")],
)
def test_nothing_is_shipped_that_nobody_asks_for(file: str, wanted: list[Requirement]) -> None:
    assert set(pins(file)) <= needed(wanted), "run make lock"


def test_the_build_group_is_what_the_build_system_requires() -> None:
    assert list(group("build")) == BUILD


@pytest.mark.parametrize("smaller", ["run", "build"])
def test_the_tests_run_on_what_is_shipped(smaller: str) -> None:
    tested = pins("dev")

    assert {name: tested.get(name) for name in pins(smaller)} == pins(smaller)


@pytest.mark.parametrize("file", ["run", "dev", "build", "proto"])
def test_every_pin_carries_hashes_and_no_address(file: str) -> None:
    text = (ROOT / "requirements" / f"{file}.txt").read_text()
    entries = re.split(r"\n(?=\S)", text.strip())

    assert len(entries) >= len(pins(file)) > 0
    assert [entry for entry in entries if "--hash=sha256:" not in entry] == []
    assert "://" not in text
