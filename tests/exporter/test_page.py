"""The page as HTML: escaped, self-contained, and readable without its script."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from typing import TYPE_CHECKING

import pytest

from scaler.core.model import PodState, PodView, Reason, ScrapeCause, ScrapeFailure
from scaler.exporter import page
from scaler.exporter.markup import Html, element, join
from scaler.exporter.view import look

if TYPE_CHECKING:
    from exporter.conftest import Fleet

EVIL = "</title><script>alert(1)</script>\"'&\u202e\x00"


class Document(HTMLParser):
    """All tags with their attributes, and all text outside style and script."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self._hidden = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag in {"style", "script"}:
            self._hidden = tag

    def handle_endtag(self, tag: str) -> None:
        if tag == self._hidden:
            self._hidden = ""

    def handle_data(self, data: str) -> None:
        if not self._hidden:
            self.text += data


def html(fleet: Fleet, *, filtered: bool = False) -> str:
    return page.render(look(fleet.store, fleet.clock.now()), filtered=filtered).decode()


def test_the_decision_in_words(fleet: Fleet) -> None:
    fleet.publish(fleet.busy())
    text = Document(html(fleet)).text

    assert "Wants 4 replicas: 512 requests in flight, a replica carries 128." in text
    assert "Capped by throughput" in text
    assert "The next floor opens Tue 01 Dec 09:00 UTC" in text
    assert "Requests in flight · binds" in text
    assert "Time to first token · not counted" in text


def test_an_invalid_decision_shows_no_number(fleet: Fleet) -> None:
    fleet.publish(fleet.blind())
    text = Document(html(fleet)).text

    assert "No answer: 1 of 4 ready pods answers" in text
    assert "Desired—" in text
    assert "✕ invalid" in text
    assert "judge-1 stale: timeout, no answer within 4 s (last sample 31 s ago)" in text
    assert "judge-3 stalled" in text
    assert "judge-0" not in text


def test_pods_that_cannot_be_listed_are_a_dash(fleet: Fleet) -> None:
    fleet.publish(fleet.blind(reason=Reason.CANNOT_LIST_PODS))

    assert "Serving—" in Document(html(fleet)).text


def test_a_decision_that_grows_old_says_so(fleet: Fleet) -> None:
    fleet.publish(fleet.busy())
    fleet.clock.forward(300)
    document = Document(html(fleet))

    assert "decided 5 min ago" in document.text
    assert document.tags.count(("span", {"class": "tag bad"})) == 1


def test_the_empty_state_says_how_to_begin(fleet: Fleet) -> None:
    text = Document(html(fleet)).text

    assert "type: external" in text
    assert "scalerAddress: " in text


def test_a_name_that_is_not_registered_says_so(fleet: Fleet) -> None:
    assert "No such trigger is registered." in Document(html(fleet, filtered=True)).text


def test_first_contact_and_refusal(fleet: Fleet) -> None:
    fleet.trigger("a")
    fleet.publish(fleet.busy(), "b").refuse("host elsewhere is not allowed")
    text = Document(html(fleet)).text

    assert "Waiting for the first look at the pods." in text
    assert "Refused: host elsewhere is not allowed." in text
    assert "Wants 4 replicas" not in text


def test_many_triggers_become_a_table_of_links(fleet: Fleet) -> None:
    for i in range(page.SHOWN_WHOLE + 1):
        fleet.publish(fleet.blind() if i == 0 else fleet.busy(), f"llama-{i}", "a&b")
    document = Document(html(fleet))
    links = [attributes["href"] for tag, attributes in document.tags if tag == "a"]

    assert "/?namespace=a%26b&name=llama-3" in links
    assert len([tag for tag, _ in document.tags if tag == "tr"]) == page.SHOWN_WHOLE + 2
    assert "svg" not in {tag for tag, _ in document.tags}


def test_a_trigger_asked_for_by_name_is_shown_whole(fleet: Fleet) -> None:
    for i in range(page.SHOWN_WHOLE + 1):
        fleet.publish(fleet.busy(), f"llama-{i}")

    assert "svg" in {tag for tag, _ in Document(html(fleet, filtered=True)).tags}


def test_long_lists_of_pods_are_cut(fleet: Fleet) -> None:
    failure = ScrapeFailure(ScrapeCause.TIMEOUT, "no answer within 4 s")
    pods = tuple(PodView(f"p{i}", PodState.MISSING, failure=failure) for i in range(100))
    fleet.publish(fleet.busy(pods=pods))

    assert "and 88 more" in Document(html(fleet)).text


@pytest.mark.parametrize("count", [1, 9], ids=["whole", "table"])
def test_everything_is_escaped(fleet: Fleet, count: int) -> None:
    """Names, models, pods, details and notes come from tenants and from pods."""
    failure = ScrapeFailure(ScrapeCause.NOT_METRICS, EVIL)
    for i in range(count):
        fleet.publish(
            fleet.busy(
                model=EVIL,
                message=EVIL,
                notes=(EVIL,),
                pods=(PodView(EVIL, PodState.MISSING, failure=failure),),
            ),
            name=f"{EVIL}{i}\ud800",
            namespace=EVIL,
        )
    written = html(fleet)
    document = Document(written)
    tags = [tag for tag, _ in document.tags]

    assert tags.count("script") == 1
    assert tags.count("title") == 1 + tags.count("svg") - len(re.findall('class="key"', written))
    assert "alert(1)" in document.text
    assert not {name for _, attributes in document.tags for name in attributes} & {
        "onerror",
        "onload",
        "style",
        "src",
    }
    assert "\u202e" not in written
    assert "\x00" not in written


def test_the_policy_names_the_style_and_the_script_by_hash(fleet: Fleet) -> None:
    fleet.publish(fleet.busy())
    written = html(fleet)
    for tag in ("style", "script"):
        (inline,) = re.findall(f"<{tag}>(.*?)</{tag}>", written, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inline.encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in page.CONTENT_SECURITY_POLICY


def test_nothing_comes_from_elsewhere(fleet: Fleet) -> None:
    fleet.publish(fleet.busy())
    written = html(fleet)
    targets = [
        value
        for _, attributes in Document(written).tags
        for name, value in attributes.items()
        if name in {"href", "src", "action", "data", "xlink:href"}
    ]

    assert sorted(set(targets), key=str) == ["/decisions", "data:,"]
    assert "//" not in page.STYLE
    assert "url(" not in page.STYLE
    assert "@import" not in page.STYLE


def test_it_refreshes_without_its_script(fleet: Fleet) -> None:
    assert '<noscript><meta http-equiv="refresh" content="5"></noscript>' in html(fleet)


def test_markup_escapes_text_and_attributes() -> None:
    assert element("p", "<b>", title='"x"', class_=None) == '<p title="&quot;x&quot;">&lt;b&gt;</p>'
    assert element("p", Html("<b>"), None, "&") == "<p><b>&amp;</p>"
    assert join("a<", Html("<i>")) == "a&lt;<i>"
    assert element("br") == "<br>"
    assert element("line", x1=1.0, x2=2.25, aria_hidden="true") == (
        '<line x1="1" x2="2.2" aria-hidden="true"></line>'
    )


def luminance(colour: str) -> float:
    """Relative luminance, WCAG 2.2."""
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(a: str, b: str) -> float:
    lighter, darker = sorted((luminance(a), luminance(b)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_contrast_is_enough_in_both_schemes(scheme: int) -> None:
    """WCAG 2.2: 4.5 for text, 3 for lines that mean something."""
    block = re.findall(r":root \{(.*?)\}", page.STYLE, re.DOTALL)[scheme]
    colour = dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", block))

    for text in ("ink", "quiet", "bad", "blue"):
        for ground in ("paper", "card"):
            assert contrast(colour[text], colour[ground]) >= 4.5, (text, ground)
    assert contrast(colour["bad"], colour["bad-paper"]) >= 4.5
    for line in ("blue", "orange", "violet", "green-edge", "ink"):
        assert contrast(colour[line], colour["card"]) >= 3, line
    for line in ("blue", "orange", "violet"):
        assert contrast(colour[line], colour["green"]) >= 2, line
