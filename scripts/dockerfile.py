"""Reads a Dockerfile into stages of instructions: as much of the syntax as ours uses, no more.

The reference is Docker's own "Dockerfile reference". Not read: heredocs, parser directives and
``ONBUILD``; one of these is a ValueError rather than a wrong answer.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

STAGES = {"ARG", "COPY", "FROM", "RUN", "WORKDIR"}
RUNNING = {"CMD", "ENTRYPOINT", "ENV", "EXPOSE", "HEALTHCHECK", "STOPSIGNAL", "USER"}
KNOWN = STAGES | RUNNING | {"LABEL"}


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction: its name in capitals, and its text with continuation lines joined."""

    name: str
    text: str
    line: int

    @property
    def exec_form(self) -> tuple[str, ...] | None:
        """The arguments when written as a JSON list, else None: the shell form."""
        if not self.text.startswith("["):
            return None
        return tuple(json.loads(self.text))

    @property
    def pairs(self) -> dict[str, str]:
        """The ``key=value`` pairs of an ENV, LABEL or ARG."""
        return dict(pair.split("=", 1) for pair in shlex.split(self.text) if "=" in pair)

    @property
    def flags(self) -> dict[str, str]:
        """Leading ``--flag=value`` options."""
        words = [word for word in self.text.split() if word.startswith("--")]
        return dict(word[2:].partition("=")[::2] for word in words)

    @property
    def words(self) -> tuple[str, ...]:
        """The arguments without the flags."""
        return tuple(word for word in self.text.split() if not word.startswith("--"))


@dataclass(frozen=True, slots=True)
class Stage:
    """One build stage: its base image (build arguments resolved), its name, what it does."""

    image: str
    name: str
    instructions: tuple[Instruction, ...]

    def all(self, name: str) -> tuple[Instruction, ...]:
        """Return every instruction of that name."""
        return tuple(i for i in self.instructions if i.name == name)

    def last(self, name: str) -> Instruction | None:
        """Return the instruction of that name that counts."""
        return next(iter(reversed(self.all(name))), None)


def read(path: Path) -> tuple[Stage, ...]:
    """Return the stages of the Dockerfile at ``path``. Raises ValueError on unknown syntax."""
    arguments: dict[str, str] = {}
    stages: list[tuple[str, str, list[Instruction]]] = []
    for instruction in _instructions(path.read_text()):
        if instruction.name == "FROM":
            image, *alias = instruction.words
            stages.append((_expand(image, arguments), alias[1] if alias else "", []))
        elif stages:
            stages[-1][2].append(instruction)
        else:
            for name, value in instruction.pairs.items():
                arguments[name] = _expand(value, arguments)
    return tuple(Stage(image, name, tuple(body)) for image, name, body in stages)


def _instructions(text: str) -> Iterator[Instruction]:
    start, parts = 0, list[str]()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        start = start if parts else number
        parts.append(line.strip().removesuffix("\\").strip())
        if line.rstrip().endswith("\\"):
            continue
        name, _, rest = " ".join(parts).partition(" ")
        if name.upper() not in KNOWN or "<<" in rest:
            raise ValueError(f"line {start}: cannot read {name!r}")
        yield Instruction(name.upper(), rest.strip(), start)
        parts = []


def _expand(text: str, arguments: Mapping[str, str]) -> str:
    return re.sub(r"\$\{(\w+)\}", lambda match: arguments[match[1]], text)
