"""Pods that a trigger names itself: which are allowed, and what a name stands for now."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from fakes_dns import hanging

from scaler.config.endpoints import read_endpoints
from scaler.config.findings import Findings
from scaler.core.model import PodLife
from scaler.core.policy import TriggerPolicy
from scaler.discovery.pods import Found, FoundPod
from scaler.discovery.static import StaticDiscovery
from scaler.errors import EndpointNotAllowed
from scaler.resolver import Resolver

if TYPE_CHECKING:
    from collections.abc import Iterable


class Names:
    """A name service whose records the test moves."""

    def __init__(self, **records: list[str]) -> None:
        self.records = {name.replace("_", "."): found for name, found in records.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str) -> Iterable[str]:
        self.asked.append(host)
        if host not in self.records:
            raise OSError("no such name")
        return self.records[host]


async def find(*endpoints: str, allow: Iterable[str] = ("*",), names: Names | None = None) -> Found:
    discovery = StaticDiscovery(tuple(allow), resolve=names or Names())
    return await discovery.find("ns", "so", TriggerPolicy(endpoints=endpoints))


async def pods(*endpoints: str, **given: object) -> list[str]:
    found = await find(*endpoints, **given)  # type: ignore[arg-type]
    assert found.error is None
    return [pod.pod for pod in found.pods]


async def test_an_endpoint_is_a_pod_whose_life_nobody_watches() -> None:
    discovery = StaticDiscovery(["*"])
    policy = TriggerPolicy(endpoints=("http://a:8000/base",), metrics_path="/stats/prometheus")

    assert await discovery.find("ns", "so", policy) == Found(
        pods=(
            FoundPod("http://a:8000/base", "http://a:8000/base/stats/prometheus", PodLife.UNKNOWN),
        )
    )


@pytest.mark.parametrize(
    ("endpoints", "expected"),
    [
        (("http://h", "http://h:80/", "http://h/"), ["http://h"]),
        (("https://h:443", "https://h"), ["https://h"]),
        (("http://h:443", "https://h"), ["http://h:443", "https://h"]),
        (("http://H:8000", "http://h:8000", "http://h.:8000"), ["http://h:8000"]),
        (("http://h:8000", "http://h:8001"), ["http://h:8000", "http://h:8001"]),
        (("http://h/a", "http://h/b"), ["http://h/a", "http://h/b"]),
    ],
)
async def test_the_same_endpoint_twice_counts_once(
    endpoints: tuple[str, ...], expected: list[str]
) -> None:
    assert await pods(*endpoints) == expected


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://[fd00::7]:8000", "http://[fd00::7]:8000/metrics"),
        ("http://[FD00:0::7]:8000", "http://[fd00::7]:8000/metrics"),
        ("dns+http://six:8000", "http://[fd00::7]:8000/metrics"),
        ("dns+http://zone:8000", "http://[fd00::8%25eth1]:8000/metrics"),
    ],
)
async def test_d10_ipv6_literals_stand_in_brackets(endpoint: str, url: str) -> None:
    names = Names(six=["fd00::7"], zone=["fd00::8%eth1"])
    found = await find(endpoint, names=names)

    assert [pod.url for pod in found.pods] == [url]


def test_d10_a_zone_is_refused_with_what_to_write_instead() -> None:
    """Kubernetes gives pods no zoned addresses, and link-local ones are barred by name anyway."""
    findings = Findings()
    assert read_endpoints("http://[fe80::1%eth0]:8000,http://[fe80::1%25eth0]", findings) == ()

    told = [str(problem) for problem in findings.problems]
    assert len(told) == 2
    assert all("must have a plain IPv6 address, without a zone" in text for text in told)


async def test_no_endpoints_are_no_pods_and_none_given_is_not_known() -> None:
    assert await find() == Found()

    unknown = await StaticDiscovery(["*"]).find("ns", "so", TriggerPolicy(endpoints=None))
    assert unknown.pods == ()
    assert unknown.error == "the trigger has no `endpoints`, and Kubernetes is not available"


# --- what is allowed ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("allow", "endpoint", "allowed"),
    [
        ([], "http://a:8000", False),
        (["a"], "http://a:8000", True),
        (["A"], "http://a", True),
        (["a"], "http://A", True),
        (["a"], "http://b.a", False),
        (["a"], "http://a.b", False),
        (["*.vllm.svc"], "http://p-0.vllm.svc:8000", True),
        (["*.vllm.svc"], "http://vllm.svc", False),
        (["*.vllm.svc"], "http://p.vllm.svc.", True),
        (["*.vllm.svc"], "http://evil/?.vllm.svc", False),
        (["a:8000"], "http://a:8000", True),
        (["a:8000"], "http://a:8001", False),
        (["a:80"], "http://a", True),
        (["a:443"], "https://a", True),
        (["a:80*"], "http://a:8000", True),
        (["10.0.0.*"], "http://10.0.0.7", True),
        (["10.0.0.*"], "http://10.0.1.7", False),
        (["fd00::*"], "http://[fd00::7]:8000", True),
        (["fd00::*"], "http://[fd01::7]:8000", False),
        (["[fd00::7]"], "http://[fd00::7]:8000", True),
        (["[fd00::7]:8000"], "http://[fd00::7]:8000", True),
        (["[fd00::7]:8000"], "http://[fd00::7]:8001", False),
        (["::1"], "http://[0:0::1]:8000", True),
        (["[ab].svc"], "http://b.svc", True),
        (["*"], "dns+http://a", True),
        (["b"], "dns+http://a", False),
    ],
)
async def test_hosts_are_allowed_by_glob(allow: list[str], endpoint: str, allowed: bool) -> None:
    finding = find(endpoint, allow=allow, names=Names(a=["10.0.0.1"]))
    if allowed:
        assert len((await finding).pods) == 1
    else:
        with pytest.raises(EndpointNotAllowed):
            await finding


async def test_what_is_barred_is_named_all_at_once_with_what_is_allowed() -> None:
    with pytest.raises(EndpointNotAllowed) as raised:
        await find(
            "http://a", "http://b:8000", "http://[fd00::7]", "http://ok", allow=["ok", "x:1"]
        )

    assert str(raised.value) == (
        "a:80, b:8000, [fd00::7]:80: not allowed by --allow-endpoints (ok, x:1)"
    )
    with pytest.raises(EndpointNotAllowed, match=r"--allow-endpoints \(none\)"):
        await find("http://a", allow=[])


# --- names ----------------------------------------------------------------------------------------


async def test_d11_a_name_stands_for_all_its_addresses_and_is_looked_up_each_time() -> None:
    names = Names(vllm_svc=["10.0.0.2", "10.0.0.1", "10.0.0.2"])
    discovery = StaticDiscovery(["vllm.svc"], resolve=names)
    policy = TriggerPolicy(endpoints=("dns+http://vllm.svc:8000",))

    first = await discovery.find("ns", "so", policy)
    names.records["vllm.svc"] = ["10.0.0.2", "10.0.0.3"]
    second = await discovery.find("ns", "so", policy)

    assert [p.pod for p in first.pods] == ["http://10.0.0.1:8000", "http://10.0.0.2:8000"]
    assert [p.pod for p in second.pods] == ["http://10.0.0.2:8000", "http://10.0.0.3:8000"]
    assert names.asked == ["vllm.svc", "vllm.svc"]


@pytest.mark.parametrize("answers", [None, []], ids=["NXDOMAIN", "no address"])
async def test_d11_a_name_without_an_answer_is_not_zero_pods(answers: list[str] | None) -> None:
    names = Names() if answers is None else Names(vllm=answers)
    found = await find("http://10.0.0.1", "dns+http://vllm:8000", names=names)

    assert found == Found(error="cannot resolve vllm: the name has no address")


async def test_d11_a_resolver_that_hangs_costs_a_short_time() -> None:
    async def hang(_: str) -> Iterable[str]:
        await asyncio.Event().wait()
        raise AssertionError

    discovery = StaticDiscovery(["*"], resolve=hang, lookup_seconds=0.05)
    found = await discovery.find("ns", "so", TriggerPolicy(endpoints=("dns+http://vllm",)))

    assert found == Found(error="cannot resolve vllm: no answer within 0.05 s")


async def test_d11_eight_triggers_whose_names_hang_do_not_stop_a_ninth() -> None:
    with hanging("10.0.0.9", names={f"hung-{n}" for n in range(8)}) as look_up:
        discovery = StaticDiscovery(["*"], resolve=Resolver(look_up), lookup_seconds=0.3)
        names = [*(f"hung-{n}" for n in range(8)), "good"]
        policies = [TriggerPolicy(endpoints=(f"dns+http://{name}",)) for name in names]
        found = await asyncio.gather(*(discovery.find("ns", "so", p) for p in policies))

    assert [f.error for f in found[:8]] == [
        f"cannot resolve hung-{n}: no answer within 0.3 s" for n in range(8)
    ]
    assert [p.pod for p in found[8].pods] == ["http://10.0.0.9"]


async def test_localhost_says_itself_where_it_leads() -> None:
    names = Names(localhost=["127.0.0.1"])
    names.records["evil.localhost"] = ["169.254.169.254"]

    assert await pods("dns+http://localhost", allow=["localhost"], names=names) == [
        "http://127.0.0.1"
    ]
    elsewhere = await find("dns+http://evil.localhost", allow=["*.localhost"], names=names)
    assert elsewhere.error is not None


async def test_a_pod_with_an_address_of_each_family_is_one_pod() -> None:
    names = Names(dual=["fd00::1", "10.0.0.1", "fd00::2", "10.0.0.2"], six=["fd00::1", "fd00::2"])

    assert await pods("dns+http://dual", names=names) == ["http://10.0.0.1", "http://10.0.0.2"]
    assert await pods("dns+https://six", names=names) == ["https://[fd00::1]", "https://[fd00::2]"]


async def test_an_address_that_is_named_and_found_counts_once() -> None:
    names = Names(vllm=["10.0.0.1", "10.0.0.2"])

    assert await pods("http://10.0.0.1:8000", "dns+http://vllm:8000", names=names) == [
        "http://10.0.0.1:8000",
        "http://10.0.0.2:8000",
    ]


@pytest.mark.parametrize(
    ("answer", "address"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.9.9.9", "127.9.*"),
        ("169.254.169.254", "169.254.169.254"),
        ("0.0.0.0", "0.0.0.0"),
        ("::1", "::1"),
        ("fe80::1", "[fe80::*]"),
        ("fe80::1%2", "[fe80::*]"),
        ("224.0.0.1", "224.*"),
        ("ff02::1", "ff02::*"),
        ("::", "::"),
        ("::ffff:127.0.0.1", "127.0.0.1"),
    ],
)
async def test_a_name_that_leads_inward_needs_the_address_allowed_too(
    answer: str, address: str
) -> None:
    names = Names(rebound=[answer])

    found = await find("dns+http://rebound:8000", allow=["rebound"], names=names)
    assert found == Found(error="rebound leads to loopback, link-local or multicast addresses only")

    both = await find("dns+http://rebound:8000", allow=["rebound", address], names=names)
    assert len(both.pods) == 1
    assert both.error is None


async def test_only_the_inward_addresses_of_a_name_are_left_out() -> None:
    names = Names(mixed=["127.0.0.1", "10.0.0.1"])

    assert await pods("dns+http://mixed", allow=["mixed"], names=names) == ["http://10.0.0.1"]


async def test_a_name_with_absurdly_many_addresses_is_refused() -> None:
    names = Names(huge=[f"10.{n // 65536}.{n // 256 % 256}.{n % 256}" for n in range(2001)])

    assert (await find("dns+http://huge", names=names)).error == "huge has more than 2000 addresses"
