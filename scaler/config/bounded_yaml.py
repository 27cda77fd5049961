"""YAML from strangers: node trees with line numbers, bounded in size and depth, without aliases.

Scalars stay the text they were written as (``BaseLoader``): ``NO`` is a country, not a boolean.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import yaml
from yaml.nodes import CollectionNode, MappingNode, Node, ScalarNode, SequenceNode

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import Protocol

    class _Mark(Protocol):
        line: int


__all__ = ["BadYaml", "MappingNode", "Node", "ScalarNode", "SequenceNode", "compose"]


# libyaml, which PyYAML's wheels carry, reads ten times as fast; metadata is read on the event loop.
_LOADER = getattr(yaml, "CBaseLoader", yaml.BaseLoader)


class BadYaml(ValueError):
    """Text that is no YAML we accept. ``line`` counts from 1; the message names no value."""

    def __init__(self, line: int, message: str) -> None:
        self.line = line
        self.message = message
        super().__init__(f"line {line}: {message}")


def compose(
    text: str, *, max_depth: int, max_nodes: int, max_items: int | None = None
) -> list[Node]:
    """Return the root node of each document. Raises BadYaml.

    ``max_items`` bounds a list that is a document. Reading stops at the first bound that is passed,
    so a hostile text costs no more than an allowed one.
    """
    if text.lstrip()[:1] in {"[", "{"}:
        text = text.expandtabs()  # JSON may be indented with tabs, YAML may not
    try:
        return _Tree(max_depth, max_nodes, max_items).read(yaml.parse(text, Loader=_LOADER))
    except yaml.MarkedYAMLError as error:
        raise BadYaml(line_of(error.problem_mark or error.context_mark), _explain(error)) from None
    except (yaml.YAMLError, UnicodeEncodeError):
        message = "not YAML: a character that it does not allow"
        raise BadYaml(1, message) from None


@dataclass(slots=True)
class _Tree:
    """Nodes from events: in one pass, without recursion, each bound checked before it is passed."""

    max_depth: int
    max_nodes: int
    max_items: int | None
    roots: list[Node] = field(default_factory=list)
    # The collections that are open, outermost first, each with what is in it so far.
    open: list[tuple[CollectionNode, list[Node]]] = field(default_factory=list)
    nodes: int = 0

    def read(self, events: Iterable[yaml.Event]) -> list[Node]:
        """Return the roots."""
        for event in events:
            if isinstance(event, yaml.NodeEvent):
                self._add(event)
            elif isinstance(event, yaml.CollectionEndEvent):
                node, children = self.open.pop()
                pairs = isinstance(node, MappingNode)
                node.value = list(zip(*[iter(children)] * 2, strict=True)) if pairs else children
        return self.roots

    def _add(self, event: yaml.NodeEvent) -> None:
        line = line_of(event.start_mark)
        if isinstance(event, yaml.AliasEvent) or event.anchor:
            raise BadYaml(line, "anchors and aliases (& and *) are not accepted")
        self.nodes += 1
        if self.nodes > self.max_nodes:
            raise BadYaml(line, f"more than {self.max_nodes} values")
        siblings = self.open[-1][1] if self.open else self.roots
        node = _node(event)
        siblings.append(node)
        if len(self.open) == 1 and isinstance(self.open[0][0], SequenceNode):
            self._check_items(len(siblings), line)
        if isinstance(node, CollectionNode):
            self.open.append((node, []))
            if len(self.open) > self.max_depth:
                raise BadYaml(line, f"nested deeper than {self.max_depth} levels")

    def _check_items(self, items: int, line: int) -> None:
        if self.max_items is not None and items > self.max_items:
            raise BadYaml(line, f"more than {self.max_items} items")


def _node(event: yaml.NodeEvent) -> Node:
    # Typed as marks of either parser; nodes are typed for the slow one's alone.
    start: Any = event.start_mark
    end: Any = event.end_mark
    if isinstance(event, yaml.ScalarEvent):
        # The C parser says "" for a plain scalar, the other one None.
        return ScalarNode("", event.value, start, end, style=event.style or None)
    kind = MappingNode if isinstance(event, yaml.MappingStartEvent) else SequenceNode
    return kind("", [], start, end)


def line_of(mark: _Mark | None) -> int:
    """Return a mark's line, counted from 1; what has no mark is put on the first."""
    return 1 if mark is None else mark.line + 1


def _explain(error: yaml.MarkedYAMLError) -> str:
    if error.context == "while scanning an alias":
        return "a value that begins with * needs quotes"
    return f"not YAML: {error.problem or error.context}"


def entries(node: MappingNode) -> Iterator[tuple[ScalarNode, Node]]:
    """Yield a mapping's entries whose keys are plain, in order, repeats included."""
    for key, value in node.value:
        if isinstance(key, ScalarNode):
            yield key, value
