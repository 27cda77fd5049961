"""HTML and SVG elements as values. Text is escaped by construction, never by remembering to."""

from __future__ import annotations

from html import escape

VOID = frozenset({"meta", "link", "br"})


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def element(name: str, /, *children: str | None, **attributes: object) -> Html:
    """Return an element. Plain strings are escaped; None children and attributes are left out.

    Attribute names lose a trailing underscore (``class_``); others become hyphens (``aria_label``).
    """
    shown = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_escaped(_plain(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in VOID:
        return Html(f"<{name}{shown}>")
    return Html(f"<{name}{shown}>{join(*children)}</{name}>")


def join(*children: str | None) -> Html:
    """Return the children one after the other, plain ones escaped."""
    return Html(
        "".join(
            child if isinstance(child, Html) else _escaped(child)
            for child in children
            if child is not None
        )
    )


def _escaped(text: str) -> str:
    # A lone surrogate cannot be encoded, and a control character is no legal HTML.
    legal = text.encode("utf-8", "replace").decode("utf-8")
    return escape("".join(c if c.isprintable() or c in "\n\t" else "\ufffd" for c in legal))


def _plain(value: object) -> str:
    # Coordinates: a tenth of a pixel is plenty, and keeps the page small.
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
