"""``vllm-scaler check``: validate ScaledObject manifests before KEDA sees them.

Exit codes: 0 clean, 1 problems (with ``--strict`` warnings too), 2 a file that cannot be read.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console
from rich.text import Text

from scaler.config.manifest import Report, read_manifest
from scaler.config.remarks import Level

_ENDPOINTS = (
    "this version does not find pods in Kubernetes yet; name them, "
    "as dns+http://HEADLESS-SERVICE.NAMESPACE.svc:8000"
)
_MAX_BYTES = 4 * 1024 * 1024
_STYLES = {Level.ERROR: "red", Level.WARNING: "yellow", Level.NOTE: "dim"}


@click.command("check")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--strict", is_flag=True, help="Let warnings fail the check too.")
def check(files: tuple[str, ...], strict: bool) -> None:
    """Validate ScaledObject manifests: YAML or JSON FILEs, - for standard input.

    Names every problem at once, as FILE:LINE: KEY: VALUE: what is allowed.
    """
    out = Console(highlight=False, soft_wrap=True)
    reports: list[Report] = []
    for name in files:
        text = _read(name)
        if text is None:
            continue
        report = read_manifest(text)
        _print(out, "<stdin>" if name == "-" else name, report)
        reports.append(report)
    errors = sum(report.count(Level.ERROR) for report in reports)
    warnings = sum(report.count(Level.WARNING) for report in reports)
    _print_summary(out, reports, errors, warnings)
    if len(reports) < len(files):
        sys.exit(2)
    sys.exit(1 if errors or (strict and warnings) else 0)


def _read(name: str) -> str | None:
    """Return a file's text; None, with the cause on standard error, when it cannot be read."""
    try:
        if name == "-":
            data = sys.stdin.buffer.read(_MAX_BYTES + 1)
        else:
            with Path(name).open("rb") as file:
                data = file.read(_MAX_BYTES + 1)
        if len(data) <= _MAX_BYTES:
            return data.decode()
        cause = f"larger than {_MAX_BYTES} bytes"
    except OSError as error:
        cause = str(error.strerror)
    except UnicodeDecodeError:
        cause = "not UTF-8 text"
    click.echo(f"{name}: {cause}", err=True)
    return None


def _print(out: Console, name: str, report: Report) -> None:
    for remark in report.remarks:
        out.print(
            Text(f"{name}:{remark.line}: ", "bold"),
            Text(str(remark), _STYLES[remark.level]),
            sep="",
        )


def _print_summary(out: Console, reports: list[Report], errors: int, warnings: int) -> None:
    objects = sum(report.scaled_objects for report in reports)
    triggers = sum(report.triggers for report in reports)
    style = "red" if errors else "yellow" if warnings else "green"
    seen = ", ".join(
        _counted(number, word)
        for number, word in (
            (len(reports), "file"),
            (objects, "ScaledObject"),
            (triggers, "trigger"),
        )
    )
    verdict = f"{_counted(errors, 'problem')}, {_counted(warnings, 'warning')}"
    blind = sum(report.without_endpoints for report in reports)
    if blind:
        without = f"{_counted(blind, 'trigger')} without endpoints"
        out.print(Text(f"note: {without}: {_ENDPOINTS}", "yellow"))
    out.print(Text(f"{seen}: {verdict}", style))


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
