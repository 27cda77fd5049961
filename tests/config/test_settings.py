"""The plain settings of the process."""

from __future__ import annotations

import pytest

from scaler.config.settings import Address, ScrapeSettings, Settings


@pytest.mark.parametrize(
    ("address", "shown"),
    [(Address("0.0.0.0", 6000), "0.0.0.0:6000"), (Address("::1", 80), "[::1]:80")],
)
def test_an_address_is_shown_as_people_write_it(address: Address, shown: str) -> None:
    assert str(address) == shown


def test_a_sample_is_fresh_for_three_intervals_and_the_time_out() -> None:
    assert ScrapeSettings(interval=5, timeout=4).fresh_for == 19


def test_the_defaults_are_those_the_documentation_promises() -> None:
    settings = Settings()

    addresses = (settings.grpc_address, settings.http_address, settings.page_address)
    assert [str(address) for address in addresses] == [
        "0.0.0.0:6000",
        "0.0.0.0:8080",
        "127.0.0.1:8081",
    ]
    assert (settings.scrape.interval, settings.scrape.timeout) == (5.0, 4.0)
    assert settings.allow_endpoints == ()
