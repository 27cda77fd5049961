"""YAML from strangers: node trees with line numbers, bounded in size and depth, without aliases.

Scalars stay the text they were written as (``BaseLoader``): ``NO`` is a country, not a boolean.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Protocol

    class _Mark(Protocol):
        line: int


__all__ = ["BadYaml", "MappingNode", "Node", "ScalarNode", "SequenceNode", "compose"]


class BadYaml(ValueError):
    """Text that is no YAML we accept. ``line`` counts from 1; the message names no value."""

    def __init__(self, line: int, message: str) -> None:
        self.line = line
        self.message = message
        super().__init__(f"line {line}: {message}")


def compose(text: str, *, max_depth: int, max_nodes: int) -> list[Node]:
    """Return the root node of each document. Raises BadYaml."""
    if text.lstrip()[:1] in {"[", "{"}:
        text = text.expandtabs()  # JSON may be indented with tabs, YAML may not
    try:
        _check_bounds(text, max_depth, max_nodes)
        return list(yaml.compose_all(text, Loader=yaml.BaseLoader))
    except yaml.MarkedYAMLError as error:
        raise BadYaml(line_of(error.problem_mark or error.context_mark), _explain(error)) from None
    except yaml.YAMLError as error:  # a character that YAML does not allow
        raise BadYaml(1, f"not YAML: {str(error).splitlines()[0]}") from None


def _check_bounds(text: str, max_depth: int, max_nodes: int) -> None:
    # The event stream is read without recursion, so depth is known before a tree is built.
    depth = nodes = 0
    for event in yaml.parse(text, Loader=yaml.BaseLoader):
        line = line_of(event.start_mark)
        if isinstance(event, yaml.AliasEvent) or getattr(event, "anchor", None):
            raise BadYaml(line, "anchors and aliases (& and *) are not accepted")
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        nodes += isinstance(event, yaml.NodeEvent)
        if depth > max_depth:
            raise BadYaml(line, f"nested deeper than {max_depth} levels")
        if nodes > max_nodes:
            raise BadYaml(line, f"more than {max_nodes} values")


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
