"""Looking into a YAML tree: a place by its path, with the line a person finds it on."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from scaler.config.bounded_yaml import (
    MappingNode,
    Node,
    ScalarNode,
    SequenceNode,
    entries,
    line_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

# What kubectl's YAML reader makes of plain words (go-yaml v2, resolve.go). Dates stay texts.
_BOOLEANS = frozenset({"y", "yes", "n", "no", "on", "off", "true", "false"})
_NULLS = frozenset({"", "~", "null"})
_NUMBERS = re.compile(
    r"[-+]?(0x[0-9a-f_]+|0o?[0-7_]+|0b[01_]+|(\.\d+|\d[\d_]*(\.\d*)?)(e[-+]?\d+)?|\.inf)|\.nan",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class View:
    """A place in a document. ``node`` is None where nothing is written; ``line`` counts from 1."""

    node: Node | None
    path: str
    line: int

    @classmethod
    def root(cls, node: Node) -> View:
        """Return the view of a whole document."""
        return cls(node, "", line_of(node.start_mark))

    @property
    def present(self) -> bool:
        """Whether anything is written here."""
        return self.node is not None

    @property
    def text(self) -> str | None:
        """The scalar written here, as it is written."""
        return str(self.node.value) if isinstance(self.node, ScalarNode) else None

    @property
    def whole(self) -> int | None:
        """The whole number written here."""
        text = self.text or ""
        return int(text) if re.fullmatch(r"\d{1,9}", text, re.ASCII) else None

    @property
    def block(self) -> bool:
        """Whether the text is a ``|`` block: its lines are the file's lines."""
        return isinstance(self.node, ScalarNode) and self.node.style == "|"

    def get(self, *keys: str) -> View:
        """Return the place below; what is missing keeps the line of its parent."""
        view = self
        for key in keys:
            found = [child for name, child in view.children() if name == key]
            view = found[-1] if found else View(None, view.below(key), view.line)
        return view

    def below(self, key: str) -> str:
        """Return the path of a child."""
        return f"{self.path}.{key}" if self.path else key

    def children(self) -> Iterator[tuple[str, View]]:
        """Yield the entries of a mapping, repeats included; nothing for anything else."""
        if isinstance(self.node, MappingNode):
            for key, value in entries(self.node):
                yield key.value, View(value, self.below(key.value), line_of(key.start_mark))

    def items(self) -> Iterator[View]:
        """Yield the items of a sequence; nothing for anything else."""
        if isinstance(self.node, SequenceNode):
            for index, value in enumerate(self.node.value):
                yield View(value, f"{self.path}[{index}]", line_of(value.start_mark))

    def repeats(self) -> Iterator[View]:
        """Yield every entry, at any depth, whose key its mapping already has."""
        seen: set[str] = set()
        for name, child in self.children():
            if name in seen:
                yield child
            seen.add(name)
            yield from child.repeats()
        for item in self.items():
            yield from item.repeats()

    @property
    def not_a_string(self) -> str | None:
        """What Kubernetes would read instead of a string; None when it is one."""
        if not isinstance(self.node, ScalarNode):
            return "a list" if isinstance(self.node, SequenceNode) else "a map"
        plain = self.node.value
        if self.node.style is not None:
            return None
        if plain.lower() in _BOOLEANS:
            return "a boolean"
        if plain.lower() in _NULLS:
            return "null"
        return "a number" if _NUMBERS.fullmatch(plain) else None
