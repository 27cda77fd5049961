"""ScaledObject manifests: find our triggers, read their metadata, and remark on what is around.

Everything is found in one pass over YAML nodes, so each remark has its line.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from scaler.config.bounded_yaml import BadYaml, Node, compose
from scaler.config.keys import KEDA_KEYS, OWN_KEYS, SCHEDULE, printable
from scaler.config.manifest_rules import Ours, remarks_on
from scaler.config.remarks import Level, Remark
from scaler.config.trigger import read_trigger
from scaler.config.yaml_view import View

if TYPE_CHECKING:
    from collections.abc import Iterator

    from scaler.config.findings import Findings
    from scaler.errors import Problem

_MAX_DEPTH = 50
_MAX_NODES = 50_000
_EXTERNAL = frozenset({"external", "external-push"})


_NULLS = frozenset({"", "~", "null", "Null", "NULL"})


@dataclass(frozen=True, slots=True)
class Report:
    """What one file holds: ScaledObjects with triggers of ours, those triggers, and remarks.

    ``without_endpoints`` counts the triggers that leave it to Kubernetes to find their pods.
    """

    remarks: tuple[Remark, ...]
    scaled_objects: int = 0
    triggers: int = 0
    without_endpoints: int = 0

    def count(self, level: Level) -> int:
        """Return how many remarks are of a level."""
        return sum(remark.level is level for remark in self.remarks)


def read_manifest(text: str) -> Report:
    """Return everything there is to say about a file of YAML or JSON documents."""
    try:
        roots = compose(text, max_depth=_MAX_DEPTH, max_nodes=_MAX_NODES)
    except BadYaml as error:
        return Report((_error(error.line, "", error.message),))
    remarks: list[Remark] = []
    counts: list[int] = []
    without_endpoints = 0
    for scaled_object in _scaled_objects(roots):
        ours = _read_scaled_object(scaled_object, remarks)
        if ours:
            counts.append(len(ours))
        without_endpoints += sum(not one.metadata.get("endpoints").present for one in ours)
    if not counts:
        message = "no ScaledObject with a trigger for this scaler"
        remarks.append(Remark(1, Level.NOTE, "", "", message))
    return Report(tuple(sorted(set(remarks))), len(counts), sum(counts), without_endpoints)


def _scaled_objects(roots: list[Node]) -> Iterator[View]:
    for root in roots:
        view = View.root(root)
        documents = view.get("items").items() if view.get("kind").text == "List" else [view]
        for document in documents:
            api = document.get("apiVersion").text or ""
            if document.get("kind").text == "ScaledObject" and api.startswith("keda.sh/"):
                yield document


def _read_scaled_object(document: View, remarks: list[Remark]) -> list[Ours]:
    ours: list[Ours] = []
    for trigger in document.get("spec", "triggers").items():
        if trigger.get("type").text not in _EXTERNAL:
            continue
        metadata = trigger.get("metadata")
        names = {name for name, _ in metadata.children()}
        if names & (OWN_KEYS | KEDA_KEYS):
            ours.append(_read_ours(trigger, metadata, remarks))
        else:
            message = "is an external trigger for some other scaler: not checked"
            remarks.append(Remark(trigger.line, Level.NOTE, trigger.path, "", message))
    if ours:
        remarks.extend(
            _error(view.line, view.path, "is given twice") for view in document.repeats()
        )
        remarks.extend(remarks_on(document, ours))
    return ours


def _read_ours(trigger: View, metadata: View, remarks: list[Remark]) -> Ours:
    values: dict[str, str] = {}
    for name, view in metadata.children():
        wrong = view.not_a_string
        if wrong is not None:
            remarks.append(_not_a_string(name, view, wrong))
        if view.text is not None:
            values[name] = view.text
    if "scalerAddress" not in values:
        remarks.append(_error(metadata.line, "scalerAddress", "is required by KEDA"))
    policy, findings = read_trigger(values)
    remarks.extend(_translate(findings, metadata))
    return Ours(trigger=trigger, metadata=metadata, policy=policy)


def _not_a_string(name: str, view: View, wrong: str) -> Remark:
    if view.text is None:
        shown = ""
        advice = "write it as a block after |" if name == "schedule" else "write it as one string"
    elif view.text in _NULLS:
        shown, advice = view.text, "give a value, or leave the key out"
    elif name in OWN_KEYS:
        shown, advice = view.text, f'write "{view.text}"'
    else:
        shown, advice = "", "put it in quotes"
    message = f"is {wrong}, and metadata values are strings: {advice}"
    return Remark(view.line, Level.ERROR, printable(name), shown, message)


def _translate(findings: Findings, metadata: View) -> Iterator[Remark]:
    lines = _lines(metadata)
    for level, problems in (
        (Level.ERROR, findings.problems),
        (Level.ERROR, findings.unknown),
        (Level.WARNING, findings.warnings),
    ):
        for problem in problems:
            line = _line(problem, lines, metadata.line)
            yield Remark(line, level, problem.key, problem.value or "", problem.message)


def _line(problem: Problem, lines: dict[str, int], otherwise: int) -> int:
    """Return the line of the key, else of the key above it, else of the metadata."""
    outer = problem.key.partition("[")[0]
    window = problem.key.partition(".")[0]
    return lines.get(problem.key) or lines.get(window) or lines.get(outer) or otherwise


def _lines(metadata: View) -> dict[str, int]:
    """Return the line of each key, those inside a schedule written as a block included."""
    lines = {printable(name): view.line for name, view in metadata.children()}
    schedule = metadata.get(SCHEDULE)
    if not schedule.block:
        return lines
    try:
        windows = compose(schedule.text or "", max_depth=_MAX_DEPTH, max_nodes=_MAX_NODES)
    except BadYaml as error:
        return lines | {SCHEDULE: schedule.line + error.line}
    for window in (item for root in windows for item in View.root(root).items()):
        path = f"{SCHEDULE}{window.path}"
        lines[path] = schedule.line + window.line
        for name, view in window.children():
            lines[f"{path}.{printable(name)}"] = schedule.line + view.line
    return lines


def _error(line: int, key: str, message: str) -> Remark:
    return Remark(line, Level.ERROR, key, "", message)
