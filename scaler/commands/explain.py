"""``vllm-scaler explain``: the current decision of a running scaler, and why.

Exit codes: 0 explained, 1 no such ScaledObject, 2 the scaler cannot be reached or understood.
"""

from __future__ import annotations

import json
import sys
from http.client import HTTPException
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlencode, urlsplit
from urllib.request import ProxyHandler, build_opener

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from scaler.exporter.view import SHAPE
from scaler.exporter.words import number, seconds

if TYPE_CHECKING:
    from collections.abc import Sequence

TIMEOUT_SECONDS = 5.0
MOST_BYTES = 64 * 1024 * 1024
SHOWN_PODS = 50
PIPED_WIDTH = 200  # a table that nobody looks at must not be cut

# What /decisions holds of a trigger; see docs/metrics.md.
Json = dict[str, Any]


class Unreachable(Exception):
    """The scaler gave no usable answer."""


@click.command("explain")
@click.argument("target", metavar="NAMESPACE/NAME")
@click.option(
    "--page",
    default="http://127.0.0.1:8081",
    show_default=True,
    envvar="VLLM_SCALER_PAGE",
    metavar="URL",
    help="The page of a running scaler (its --page-address).",
)
@click.option("--json", "as_json", is_flag=True, help="Print what /decisions says of it.")
def explain(target: str, page: str, as_json: bool) -> None:
    """Print the current decision for a ScaledObject, and why.

    In a cluster, reach the page with `kubectl port-forward` first.
    """
    namespace, slash, name = target.partition("/")
    if not (namespace and slash and name) or "/" in name:
        raise click.BadParameter(f"{target!r} is not NAMESPACE/NAME", param_hint="NAMESPACE/NAME")
    if urlsplit(page).scheme not in {"http", "https"}:
        raise click.BadParameter(f"{page!r} is not an http or https URL", param_hint="--page")
    try:
        triggers = _fetch(page, namespace=namespace, name=name)
        known = [] if triggers else _fetch(page)
    except Unreachable as error:
        click.echo(f"cannot ask the scaler at {page}: {error}", err=True)
        sys.exit(2)
    if not triggers:
        click.echo(_unknown(target, known), err=True)
        sys.exit(1)
    if as_json:
        click.echo(json.dumps(triggers, indent=2))
        return
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = PIPED_WIDTH
    for trigger in triggers:
        _print_trigger(console, trigger)


def _fetch(page: str, **query: str) -> list[Json]:
    """Return the triggers of ``/decisions``. Raises Unreachable with the cause."""
    url = f"{page.rstrip('/')}/decisions?{urlencode(query)}"
    # No proxies: what is asked is nearby, and what it answers is nobody else's business.
    opener = build_opener(ProxyHandler({}))
    try:
        with opener.open(url, timeout=TIMEOUT_SECONDS) as answer:
            body = json.loads(answer.read(MOST_BYTES))
    except HTTPError as error:
        error.close()  # it holds the connection
        raise Unreachable(f"it answers HTTP {error.code} {error.reason}") from error
    except URLError as error:
        raise Unreachable(str(error.reason)) from error
    except (OSError, HTTPException) as error:
        raise Unreachable(str(error) or type(error).__name__) from error
    except ValueError as error:
        raise Unreachable("its answer is no JSON; is this the --page-address?") from error
    if not isinstance(body, dict) or body.get("shape") != SHAPE:
        raise Unreachable("it speaks another version of /decisions than this command")
    triggers: list[Json] = body["triggers"]
    return triggers


def _unknown(target: str, known: Sequence[Json]) -> str:
    names = sorted({f"{trigger['namespace']}/{trigger['name']}" for trigger in known})
    if not names:
        return f"no ScaledObject {target}: KEDA has not asked this scaler about any yet"
    return _clean(f"no ScaledObject {target}; this scaler knows: {', '.join(names)}")


# --- printing -----------------------------------------------------------------------------------


def _print_trigger(console: Console, trigger: Json) -> None:
    title = f"{trigger['namespace']}/{trigger['name']}"
    console.print(Text(_clean(title), "bold"), Text(f"trigger {trigger['trigger']}", "dim"))
    for warning in trigger["warnings"]:
        console.print(Text(_clean(f"warning: {warning}"), "yellow"))
    decision = None if trigger["refusal"] is not None else trigger["decision"]
    good = decision is not None and decision["valid"]
    console.print(Text(_clean(f"{trigger['headline']}."), "bold green" if good else "bold red"))
    if decision is None:
        return
    console.print(Text(_clean(_summary(trigger, decision)), "dim"))
    if decision["signals"]:
        console.print(_signals(decision))
    if trigger["why"]:
        console.print(Text("\nWhy", "bold"))
    for sentence in trigger["why"]:
        console.print(Text(_clean(f"  - {sentence}")))
    if decision["pods"]:
        console.print(Text("\nPods", "bold"))
        console.print(_pods(decision["pods"]))
        if len(decision["pods"]) > SHOWN_PODS:
            console.print(Text(f"  and {len(decision['pods']) - SHOWN_PODS} more", "dim"))
    console.print()


def _summary(trigger: Json, decision: Json) -> str:
    most = trigger["max_replicas"]
    floors = decision["floors"]
    return ", ".join(
        (
            "valid" if decision["valid"] else "invalid",
            "active" if decision["active"] else "inactive",
            f"reason {decision['reason']}",
            f"decided {seconds(trigger['age_seconds'])} ago",
            f"min {trigger['min_replicas']}, max {'unbounded' if most is None else most}",
            f"floors: schedule {floors['schedule']}, forecast {floors['forecast']}",
            f"guards: {' '.join(decision['guards']) or 'none'}",
        )
    )


def _signals(decision: Json) -> Table:
    table = _table("signal", "needed", "observed", "target", "counted", "")
    for name, read in decision["signals"].items():
        values = (read["needed"], read["observed"], read["target"], read["counted"])
        binds = "binds" if name == decision["binding"] else ""
        table.add_row(
            Text(_clean(name)), *(Text(_known(value)) for value in values), Text(binds, "bold")
        )
    return table


def _pods(pods: Sequence[Json]) -> Table:
    table = _table("pod", "state", "running", "waiting", "KV", "age s", "last failure")
    for pod in pods[:SHOWN_PODS]:
        numbers = (pod["running"], pod["waiting"], pod["kv_usage"], pod["age"])
        failure = pod["failure"]
        cause = "" if failure is None else f"{failure['cause']}: {failure['detail']}"
        table.add_row(
            Text(_clean(pod["pod"])),
            Text(pod["state"]),
            *(Text(_known(value)) for value in numbers),
            Text(_clean(cause)),
        )
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    numeric = {"needed", "observed", "target", "counted", "running", "waiting", "KV", "age s"}
    for column in columns:
        table.add_column(column, justify="right" if column in numeric else "left")
    return table


def _known(value: float | None) -> str:
    return "-" if value is None else number(value)


def _clean(text: str) -> str:
    """Names come from tenants: nothing in them may steer the terminal."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)
