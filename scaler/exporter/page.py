"""The page: every trigger's decision in words, bars and a picture of the last hour.

Whole and self-contained: one style sheet and one script, both inline and named by their hashes in
the Content-Security-Policy, nothing from elsewhere. It works without the script as well.
"""

from __future__ import annotations

import base64
import hashlib
from importlib.resources import files
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import scaler
from scaler.exporter.article import article, mood, serving_of
from scaler.exporter.markup import Html, element, join
from scaler.exporter.view import headline_of

if TYPE_CHECKING:
    from scaler.exporter.view import FleetOfTriggers, TriggerView

SHOWN_WHOLE = 6  # more triggers than this become a table with links

STYLE = files(__package__).joinpath("page.css").read_text("utf-8")
SCRIPT = files(__package__).joinpath("page.js").read_text("utf-8")


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        f"style-src {_hash(STYLE)}",
        f"script-src {_hash(SCRIPT)}",
        "connect-src 'self'",
        "img-src data:",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)


def render(seen: FleetOfTriggers, *, filtered: bool = False) -> bytes:
    """Return the page as HTML. ``filtered``: a person asked for these triggers by name."""
    whole = filtered or len(seen.triggers) <= SHOWN_WHOLE
    if not seen.triggers:
        content = _nothing(filtered=filtered)
    elif whole:
        content = join(*(article(view, seen.now) for view in seen.triggers))
    else:
        content = _table(seen)
    html = element(
        "html",
        _head(),
        element(
            "body",
            element("main", _header(seen, filtered=filtered), content),
            element("p", role="status", id="trouble"),
            element("script", Html(SCRIPT)),
        ),
        lang="en",
    )
    return ("<!doctype html>\n" + html).encode()


def _head() -> Html:
    return element(
        "head",
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("noscript", element("meta", http_equiv="refresh", content="5")),
        element("link", rel="icon", href="data:,"),
        element("title", "vllm-scaler"),
        element("style", Html(STYLE)),
    )


def _header(seen: FleetOfTriggers, *, filtered: bool) -> Html:
    count = len(seen.triggers)
    return element(
        "header",
        element("h1", "vllm-scaler"),
        element(
            "p",
            f"{count} trigger{'' if count == 1 else 's'} · {seen.now.wall:%H:%M:%S} UTC · "
            f"version {scaler.__version__} · ",
            element("a", "all triggers", href="/") if filtered else None,
            " · " if filtered else None,
            element("a", "as JSON", href="/decisions"),
            class_="quiet",
        ),
    )


# --- no trigger, many triggers ------------------------------------------------------------------

EXAMPLE = """\
triggers:
  - type: external
    metadata:
      scalerAddress: vllm-scaler.keda.svc:6000
      targetInFlight: "128"
"""


def _nothing(*, filtered: bool) -> Html:
    if filtered:
        return element("p", "No such trigger is registered.", class_="headline")
    return element(
        "article",
        element("h2", "No trigger yet"),
        element(
            "p",
            "The scaler watches what KEDA asks it about. Point a ScaledObject at its gRPC address:",
        ),
        element("pre", EXAMPLE),
        element("p", "It appears here within one polling interval (KEDA's default is 30 s)."),
    )


def _table(seen: FleetOfTriggers) -> Html:
    titles = ("ScaledObject", "Desired", "Serving", "Max", "Decision")
    return element(
        "div",
        element(
            "table",
            element("thead", element("tr", *(element("th", t, scope="col") for t in titles))),
            element("tbody", *(_row(view) for view in seen.triggers)),
        ),
        class_="scroll",
    )


def _row(view: TriggerView) -> Html:
    decision = None if view.refusal is not None else view.decision
    most = view.policy.max_replicas
    known = decision is not None and decision.valid
    query = urlencode({"namespace": view.key.namespace, "name": view.key.name}, errors="replace")
    return element(
        "tr",
        element(
            "th",
            element("a", f"{view.key.namespace}/{view.key.name}", href=f"/?{query}"),
            scope="row",
        ),
        element("td", str(decision.desired) if decision is not None and known else "—"),
        element("td", "—" if decision is None else serving_of(decision)),
        element("td", "—" if most is None else str(most)),
        element("td", f"{headline_of(view)}.", class_=f"words{mood(view)}"),
    )
