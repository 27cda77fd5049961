"""One scrape: the newest sample of a pod, or why there is none.

The Python front end of vLLM mounts prometheus_client's own app at ``/metrics/``, which can leave
out what is not asked for (``?name[]=``) and compress: a tenth of the bytes and of the work on both
sides. The exact ``/metrics`` can neither; the Rust front end has nothing else; and with several API
servers the filter answers with *nothing*, because a multiprocess registry knows no names
(``CollectorRegistry._get_names``). So a URL is first read whole; from then on filtered, as long as
the filtered body says as much as the whole one did.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from yarl import URL

from scaler.core.model import PodSample, ScrapeCause, ScrapeFailure
from scaler.resolver import Resolver
from scaler.vllm.exposition import read_exposition
from scaler.vllm.fetch import Answer, Fetcher, failure_of
from scaler.vllm.names import SAMPLE_NAMES

if TYPE_CHECKING:
    from scaler.config.settings import ScrapeSettings
    from scaler.resolver import Admits, Resolve

# Bytes; parsing more could keep the event loop from its RPCs. One engine's whole body is 52 KB, and
# the worst that a pod can send in so many takes 40 ms.
_LARGE: Final = 64 * 1024
_FILTER: Final = "&".join(f"name[]={name}" for name in SAMPLE_NAMES)
_RETRY_SECONDS: Final = 600.0
_MOST_URLS: Final = 10_000

# Failures that say "this path does not serve a filter"; the others say something about the pod.
_OF_THE_FILTER: Final = frozenset(
    {
        ScrapeCause.HTTP_STATUS,
        ScrapeCause.REDIRECT,
        ScrapeCause.NOT_METRICS,
        ScrapeCause.NO_VLLM_METRICS,
        ScrapeCause.TRUNCATED,
    }
)

_Holdings = frozenset[tuple[str, ...]]


def _admits_all(host: str, port: int, /) -> bool:
    del host, port
    return True


@dataclass(slots=True)
class _Learned:
    """What is known of one URL: what its whole body held, and when to try the filter."""

    url: URL
    filtered: URL | None
    holdings: _Holdings | None = None
    filter_from: float = 0.0


class Scraper:
    """Scrapes any number of pods. Raises InvalidSettings for files that cannot be used.

    How many scrapes run at once is the caller's business. ``admits`` says which addresses of this
    machine, its link or a group a *name* may lead to; left out: all, for a person's own endpoints.
    """

    def __init__(
        self,
        settings: ScrapeSettings,
        *,
        resolve: Resolve | None = None,
        admits: Admits = _admits_all,
    ) -> None:
        self._settings = settings
        self._fetcher = Fetcher(settings, resolve or Resolver(), admits)
        self._parser = ThreadPoolExecutor(max_workers=1, thread_name_prefix="exposition")
        self._learned: dict[str, _Learned] = {}

    async def close(self) -> None:
        """Close all connections."""
        await self._fetcher.close()
        self._parser.shutdown(wait=False, cancel_futures=True)

    async def scrape(self, url: str) -> PodSample | ScrapeFailure:
        """GET a metrics URL within ``settings.timeout``, connecting, reading and parsing included.

        Never raises on what the network does; whatever was not foreseen is ``OTHER``.
        """
        try:
            async with asyncio.timeout(self._settings.timeout):
                outcome = await self._scrape(self._known(url))
        except Exception as error:  # noqa: BLE001 - a scrape never ends the loop; the type is told
            outcome = failure_of(error, self._settings)
        if isinstance(outcome, ScrapeFailure):
            self._learned.pop(url, None)  # it may come back as another version
        return outcome

    def _known(self, url: str) -> _Learned:
        known = self._learned.get(url)
        if known is None:
            if len(self._learned) >= _MOST_URLS:
                self._learned.pop(next(iter(self._learned)))
            known = self._learned[url] = _Learned(URL(url), _filtered(URL(url)))
        return known

    async def _scrape(self, known: _Learned) -> PodSample | ScrapeFailure:
        now = asyncio.get_running_loop().time()
        part: PodSample | ScrapeFailure | None = None
        if known.filtered is not None and known.holdings and now >= known.filter_from:
            part = await self._sample(known.filtered, direct=True)
            if isinstance(part, PodSample):
                if _holdings(part) >= known.holdings:
                    return part
            elif part.cause not in _OF_THE_FILTER:
                return part
        whole = await self._sample(known.url)
        if isinstance(whole, PodSample):
            known.holdings = _holdings(whole)
            if part is not None and not (
                isinstance(part, PodSample) and _holdings(part) >= known.holdings
            ):
                known.filter_from = now + _RETRY_SECONDS
        return whole

    async def _sample(self, url: URL, *, direct: bool = False) -> PodSample | ScrapeFailure:
        """Fetch and read one body; ``direct``: take no redirect, each would cost a round trip."""
        answer = await self._fetcher.get(url, gzip=direct)
        if isinstance(answer, ScrapeFailure):
            return answer
        if direct and answer.redirected:
            return ScrapeFailure(ScrapeCause.REDIRECT, "the filter's path is redirected")
        return await self._read(answer)

    async def _read(self, answer: Answer) -> PodSample | ScrapeFailure:
        read = partial(read_exposition, answer.body, openmetrics=answer.openmetrics)
        if len(answer.body) < _LARGE:
            return read()
        return await asyncio.get_running_loop().run_in_executor(self._parser, read)


def _filtered(url: URL) -> URL | None:
    """Return the filtering sibling of ``…/metrics``; None where there cannot be one."""
    if not url.path.endswith("/metrics") or url.query_string:
        return None
    return URL(f"{url}/?{_FILTER}", encoded=True)


def _holdings(sample: PodSample) -> _Holdings:
    """Return what a sample knows, without its values: what a filter must not lose."""
    held: set[tuple[str, ...]] = {(sample.kv_name or "", str(sample.process_start is not None))}
    held.update(("config", label) for label in sample.cache_config)
    for name, model in sample.models.items():
        held.add((name, str(model.engines)))
        held.update((name, count) for count in model.counts)
        held.update((name, latency) for latency in model.latencies)
        held.update((name, "waiting", reason) for reason in model.waiting_by_reason)
    return frozenset(held) if sample.models else frozenset()
