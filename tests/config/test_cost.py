"""What a stranger's metadata may cost the event loop: counted work, so that no machine is too slow.

``benchmarks/metadata.py`` prints the times.
"""

from __future__ import annotations

from datetime import date
from itertools import product
from pathlib import Path

import holidays
import pytest
import yaml

from scaler.config import bounded_yaml, calendars, findings
from scaler.config.bounded_yaml import BadYaml, MappingNode, Node, ScalarNode, SequenceNode, compose
from scaler.config.trigger import parse_trigger
from scaler.config.windows import MAX_WINDOWS
from scaler.errors import InvalidTrigger

ROOT = Path(__file__).parents[2]
COUNTRIES = ("AT", "BE", "DE", "ES", "FR", "GB", "IT", "JP", "US", "ZA")


def window(number: int, rest: str = "") -> str:
    return (
        f"- {{timezone: UTC, start: '{number % 60} 9 * * *', end: '{number % 60} 17 * * *', "
        f"desiredReplicas: 2{rest}}}\n"
    )


def schedule(rest: str = "", windows: int = MAX_WINDOWS) -> str:
    return "".join(window(number, rest) for number in range(windows))


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch) -> list[Node]:
    """Every node that is built."""
    built: list[Node] = []
    make = bounded_yaml._node

    def counted(event: yaml.NodeEvent) -> Node:
        built.append(make(event))
        return built[-1]

    monkeypatch.setattr(bounded_yaml, "_node", counted)
    return built


@pytest.mark.parametrize(
    ("text", "most"),
    [
        pytest.param(schedule(), 1 + 9 * MAX_WINDOWS, id="allowed"),
        pytest.param("- a\n" * 3900, 2 + MAX_WINDOWS, id="3900 items"),
        pytest.param("[" + "a," * 3900 + "]", 2 + MAX_WINDOWS, id="3900 items in brackets"),
        pytest.param(schedule(windows=101), 2 + 9 * MAX_WINDOWS, id="a window too many"),
        pytest.param("[" * 3900, 4, id="deep"),
        pytest.param("- [" + "a, " * 9000 + "]", 4001, id="9000 values in an item"),
        pytest.param(" " * 40_000 + "[]", 0, id="too long"),
    ],
)
def test_each_value_is_read_once_and_none_beyond_a_bound(
    text: str, most: int, nodes: list[Node]
) -> None:
    try:
        parse_trigger({"schedule": text})
    except InvalidTrigger:
        assert len(nodes) <= most
    else:
        assert len(nodes) == most


def test_too_many_windows_are_refused_at_the_first_too_many() -> None:
    with pytest.raises(InvalidTrigger) as refused:
        parse_trigger({"schedule": schedule(windows=150)})

    (problem,) = refused.value.problems
    assert str(problem) == (
        "schedule: line 101: more than 100 items (must be a YAML or JSON list of at most 100 "
        "windows, each with timezone, start, end and desiredReplicas)"
    )


def test_a_list_elsewhere_has_no_bound_of_its_own() -> None:
    (root,) = compose("a: [1, 2, 3]", max_depth=3, max_nodes=9, max_items=2)
    assert isinstance(root, MappingNode)

    with pytest.raises(BadYaml, match="line 1: more than 2 items"):
        compose("[1, 2, 3]", max_depth=3, max_nodes=9, max_items=2)


def test_reading_builds_no_calendar(monkeypatch: pytest.MonkeyPatch) -> None:
    """A calendar is built when a window is first looked at, once a country for all triggers."""
    calendars._calendar.cache_clear()
    built: list[str] = []
    make = holidays.country_holidays

    def counted(country: str, **options: str | None) -> holidays.HolidayBase:
        built.append(country)
        return make(country, subdiv=options["subdiv"])

    monkeypatch.setattr(holidays, "country_holidays", counted)
    text = "".join(
        window(number, f", holidays: {country}")
        for number, country in enumerate(COUNTRIES * (MAX_WINDOWS // len(COUNTRIES)))
    )

    policies = [parse_trigger({"schedule": text, "targetWaiting": str(n)})[0] for n in (1, 2)]

    assert built == []
    for policy, year in product(policies, (2026, 2027)):
        assert all(date(year, 1, 1) in one.excluded for one in policy.windows)
    assert sorted(built) == sorted(COUNTRIES)


def test_hints_are_looked_for_a_few_times_only(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    monkeypatch.setattr(findings, "nearest", lambda name, _: looked.append(name))
    monkeypatch.setattr("scaler.config.windows.nearest_zone", looked.append)
    text = "".join(window(n, f", nmae{n}: x").replace("UTC", f"Mars/{n}") for n in range(100))

    with pytest.raises(InvalidTrigger) as refused:
        parse_trigger({"schedule": text, "targetWaitin": "5"})

    assert len(looked) == findings.MAX_HINTS
    assert len(refused.value.problems) == MAX_WINDOWS


# --- the tree is the one that PyYAML's own reader builds ------------------------------------------


def shape(node: Node) -> object:
    """What we read of a node: kind, text, style, line."""
    line = bounded_yaml.line_of(node.start_mark)
    if isinstance(node, ScalarNode):
        return node.value, node.style, line
    if isinstance(node, MappingNode):
        return [(shape(key), shape(value)) for key, value in node.value], line
    assert isinstance(node, SequenceNode)
    return [shape(item) for item in node.value], line


@pytest.mark.parametrize(
    "path",
    [
        path
        for folder in ("tests/config/testdata", "deploy")
        for path in sorted((ROOT / folder).rglob("*.yaml"))
        if "yaml" not in path.stem
    ],
    ids=lambda path: path.stem,
)
def test_the_tree_is_pyyamls(path: Path) -> None:
    text = path.read_text(encoding="utf-8")

    ours = compose(text, max_depth=50, max_nodes=50_000)

    assert [shape(root) for root in ours] == [
        shape(root) for root in yaml.compose_all(text, Loader=yaml.BaseLoader)
    ]


def test_the_fast_parser_is_there() -> None:
    """PyYAML's wheels carry libyaml; without it a schedule takes ten times as long to read."""
    assert yaml.__with_libyaml__
    assert bounded_yaml._LOADER is yaml.CBaseLoader
