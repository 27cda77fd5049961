"""Scaler metadata -> policy: defaults, every key, every refusal, and what is never shown."""

from __future__ import annotations

import importlib.resources
import ipaddress
import subprocess
import sys
import zoneinfo
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.config.calendars import Holidays
from scaler.config.keys import OWN_KEYS, VALUE_KEYS
from scaler.config.trigger import MAX_CHARACTERS, parse_trigger
from scaler.core.policy import TriggerPolicy, Window
from scaler.core.schedule import evaluate
from scaler.errors import InvalidTrigger

if TYPE_CHECKING:
    from collections.abc import Iterator

NIGHT = {"timezone": "UTC", "start": "0 22 * * *", "end": "0 6 * * *", "desiredReplicas": "3"}


def policy(**metadata: str) -> TriggerPolicy:
    found, warnings = parse_trigger({"scalerAddress": "scaler:6000", **metadata})
    assert warnings == ()
    return found


def warnings(**metadata: str) -> list[str]:
    return list(parse_trigger(metadata)[1])


def problems(**metadata: str) -> list[str]:
    with pytest.raises(InvalidTrigger) as caught:
        parse_trigger(metadata)
    return [str(problem) for problem in caught.value.problems]


# --- values ---------------------------------------------------------------------------------------


def test_the_address_alone_is_a_policy_of_defaults() -> None:
    assert policy() == TriggerPolicy()


@pytest.mark.parametrize("key", [key for key in VALUE_KEYS if key.default], ids=lambda k: k.name)
def test_writing_a_default_changes_nothing(key: Any) -> None:
    """The table, the reader and the policy agree about each default."""
    assert key.reader(key.default) == getattr(TriggerPolicy(), key.field)


@pytest.mark.parametrize(
    ("key", "text", "field", "value"),
    [
        ("model", "meta-llama/Llama-3.1-8B", "model", "meta-llama/Llama-3.1-8B"),
        ("metricsPath", "/vllm/metrics", "metrics_path", "/vllm/metrics"),
        ("targetWaiting", "1e3", "target_waiting", 1000.0),
        ("targetWaiting", " 7.5 ", "target_waiting", 7.5),
        ("targetWaiting", "off", "target_waiting", None),
        ("targetInFlight", "24", "target_in_flight", 24.0),
        ("targetKvUsage", "off", "target_kv_usage", None),
        ("targetKvUsage", "1", "target_kv_usage", 1.0),
        ("targetQueueTime", "250ms", "target_queue_time", 0.25),
        ("targetTtft", "3s", "target_ttft", 3.0),
        ("targetTokenRate", "2600", "target_token_rate", 2600.0),
        ("drainTime", "2m", "drain_time", 120.0),
        ("signalWindow", "15", "signal_window", 15.0),
        ("minReplicas", "2", "min_replicas", 2),
        ("maxReplicas", "6", "max_replicas", 6),
        ("downRatio", "0.9", "down_ratio", 0.9),
        ("spareReplicas", "1", "spare_replicas", 1),
        ("holdSeconds", "0", "hold_seconds", 0.0),
        ("quorum", "1", "quorum", 1.0),
        ("stallAfter", "5m", "stall_after", 300.0),
        ("activeHold", "1h30m", "active_hold", 5400.0),
        ("coldStart", "4m", "cold_start", 240.0),
    ],
)
def test_each_key_fills_its_field(key: str, text: str, field: str, value: object) -> None:
    found, _ = parse_trigger({key: text})

    assert getattr(found, field) == value


@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999", "", "1_000", "٣", "0x10", "5,0"])
def test_a_number_is_finite_and_plain(text: str) -> None:
    assert problems(targetInFlight=text) == [
        f"targetInFlight={text!r}: must be a number above 0, at most 1,000,000, or off"
    ]


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        ("model", "", "must be the served model name, printable, 1 to 512 characters"),
        (
            "targetKvUsage",
            "0",
            "must be a number above 0, at most 1 (a ratio: 0.85, not 85), or off",
        ),
        ("model", "a\nb", "must be the served model name, printable, 1 to 512 characters"),
        (
            "metricsPath",
            "metrics",
            "must be a path such as /metrics, without query, fragment, spaces or '..'",
        ),
        (
            "targetKvUsage",
            "85",
            "must be a number above 0, at most 1 (a ratio: 0.85, not 85), or off",
        ),
        (
            "targetTtft",
            "3 s",
            "must be a duration from 1ms to 1h, such as 90s, 4m, 1h30m or plain seconds, or off",
        ),
        ("minReplicas", "1.5", "must be a whole number from 0 to 10000"),
        ("maxReplicas", "0", "must be a whole number from 1 to 10000"),
        ("downRatio", "0", "must be a number from 0.1, at most 1"),
        ("quorum", "0", "must be a number above 0, at most 1 (a ratio: 0.5, not 50)"),
        (
            "stallAfter",
            "0",
            "must be a duration from 1s to 24h, such as 90s, 4m, 1h30m or plain seconds",
        ),
    ],
)
def test_a_value_out_of_range_is_refused_with_what_is_allowed(
    key: str, text: str, message: str
) -> None:
    assert problems(**{key: text}) == [f"{key}={text!r}: {message}"]


def test_all_problems_are_reported_at_once() -> None:
    found = problems(
        targetWaiting="-1", drainTime="soon", minReplicas="7", maxReplicas="5", timezone="Mars/Base"
    )

    assert [line.partition("=")[0].partition(":")[0] for line in found] == [
        "targetWaiting",
        "drainTime",
        "timezone",
        "start",
        "end",
        "desiredReplicas",
        "minReplicas",
    ]


# --- endpoints ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ()),
        (" , ", ()),
        ("http://a:8000", ("http://a:8000",)),
        ("http://a:8000,http://a:8000/, HTTP://A:8000", ("http://a:8000",)),
        ("http://b:80,https://c:443", ("http://b", "https://c")),
        ("http://[FD00:0::1]:8000,http://[fd00::1]:8000", ("http://[fd00::1]:8000",)),
        ("dns+http://vllm.llm:8000,dns+https://v.", ("dns+http://vllm.llm:8000", "dns+https://v.")),
        ("http://10.0.0.1:8000/serve/a/", ("http://10.0.0.1:8000/serve/a",)),
    ],
)
def test_endpoints_are_normalised_and_count_once(text: str, expected: tuple[str, ...]) -> None:
    assert policy(endpoints=text).endpoints == expected


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("a:8000", "must be a base URL that begins with one of http, https, dns+http, dns+https"),
        ("ftp://a", "must be a base URL that begins with one of http, https, dns+http, dns+https"),
        ("http://", "must name a host, such as http://vllm-0.vllm:8000"),
        ("http://a b", "must name a host, such as http://vllm-0.vllm:8000"),
        ("http://-a", "must name a host, such as http://vllm-0.vllm:8000"),
        ("http://1.2.3:80", "must name a host or a complete IP address"),
        ("http://[::g]:80", "must be a URL such as http://[fd00::1]:8000"),
        ("http://[fe80::1%eth0]:80", "must have a plain IPv6 address, without a zone"),
        ("http://a:0", "must have a port from 1 to 65535"),
        ("http://a:99999", "must have a port from 1 to 65535"),
        ("http://a:x", "must have a port from 1 to 65535"),
        ("http://a/../b", "must have a plain path, without spaces or '..'"),
        (
            "http://a:8000/metrics",
            "must be a base URL: where the metrics are is what metricsPath says",
        ),
    ],
)
def test_an_endpoint_that_is_no_base_url_is_refused(url: str, message: str) -> None:
    assert problems(endpoints=f"http://good:8000,{url}") == [f"endpoints={url!r}: {message}"]


NUMBERS = ["0", "1", "9", "10", "099", "00", "199", "249", "250", "255", "256", "260", "300", ""]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(NUMBERS), min_size=1, max_size=5).map(".".join))
def test_a_numeric_host_is_what_the_standard_library_says(host: str) -> None:
    try:
        expected = (f"http://{ipaddress.IPv4Address(host)}:8000",)
    except ValueError:
        assert problems(endpoints=f"http://{host}:8000")
    else:
        assert policy(endpoints=f"http://{host}:8000").endpoints == expected


def test_an_endpoint_that_cannot_be_printed_is_refused() -> None:
    assert problems(endpoints="http://a\x1b[31m") == [
        "endpoints='http://a\\x1b[31m': must be printable"
    ]


def test_more_endpoints_than_a_fleet_has_are_refused() -> None:
    text = ",".join(f"http://h{number}" for number in range(2001))

    assert problems(endpoints=text) == ["endpoints: must be at most 2000, got 2001"]


def test_an_endpoint_below_v1_is_a_warning() -> None:
    assert warnings(endpoints="http://a:8000/v1/") == [
        "endpoints='http://a:8000/v1/': ends in /v1: vLLM serves its metrics beside it, not below"
    ]


# --- keys, and what is never shown ----------------------------------------------------------------


def test_kedas_own_keys_and_from_env_pass_without_a_word() -> None:
    found, said = parse_trigger(
        {
            "scalerAddress": "a:1",
            "enableTLS": "true",
            "unsafeSsl": "false",
            "caCert": "-----BEGIN",
            "metricType": "AverageValue",
            "useCachedMetrics": "false",
            "name": "x",
            "authenticationRef": "y",
            "bearerTokenFromEnv": "hush",
        }
    )

    assert (found, said) == (TriggerPolicy(), ())


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("targetwaiting", "; did you mean targetWaiting?"),
        ("MinReplicas", "; did you mean minReplicas?"),
        ("targetTTFT", "; did you mean targetTtft?"),
        ("zzz", ""),
    ],
)
def test_an_unknown_key_is_a_warning_with_the_nearest_known_one(key: str, hint: str) -> None:
    """Keys are matched exactly: the value of a misspelt one is not used."""
    found, said = parse_trigger({key: "17"})

    assert said == (f"{key}: is not a key of this scaler{hint}",)
    assert found == TriggerPolicy()


@pytest.mark.parametrize(
    "key",
    [
        "bearerToken",
        "password",
        "API_KEY",
        "apiKey",
        "clientSecret",
        "tlsClientKey",
        "Authorization",
    ],
)
def test_h06_a_key_that_looks_like_a_secret_is_warned_of_and_never_shown(key: str) -> None:
    said = warnings(**{key: "hush-hush"})

    assert len(said) == 1
    assert said[0].startswith(f"{key}: looks like a secret, and is not used")
    assert "hush" not in said[0]


@pytest.mark.parametrize(
    "metadata",
    [
        {"endpoints": "http://user:hush@host:8000"},
        {"endpoints": "http://host:8000/?token=hush"},
        {"endpoints": "http://host:8000#hush"},
        {"metricsPath": "/metrics?token=hush"},
        {"myFromEnv": "hush", "targetWaiting": "bad"},
        {"unknown": "hush", "targetWaiting": "bad"},
        {"schedule": "hush: ["},
        {"schedule": "- {password: hush}"},
    ],
    ids=str,
)
def test_h06_no_refusal_shows_what_may_be_a_secret(metadata: dict[str, str]) -> None:
    with pytest.raises(InvalidTrigger) as caught:
        parse_trigger(metadata)

    assert "hush" not in str(caught.value)


def test_an_unprintable_key_cannot_reach_a_log_line() -> None:
    assert warnings(**{"a\nb": "x", "k" * 99: "y"}) == [
        "a\\nb: is not a key of this scaler",
        f"{'k' * 59}…: is not a key of this scaler",
    ]


@pytest.mark.parametrize(
    "metadata",
    [{str(number): "" for number in range(101)}, {"model": "x" * MAX_CHARACTERS}],
    ids=["keys", "characters"],
)
def test_oversized_metadata_is_refused_unread(metadata: dict[str, str]) -> None:
    with pytest.raises(InvalidTrigger, match="metadata: must be at most 100 keys"):
        parse_trigger(metadata)


# --- windows --------------------------------------------------------------------------------------


def test_kedas_four_cron_keys_are_one_window() -> None:
    assert policy(**NIGHT).windows == (Window("UTC", "0 22 * * *", "0 6 * * *", 3),)


@pytest.mark.parametrize(
    "text",
    [
        (
            "- name: night\n  timezone: UTC\n  start: 0 22 * * *\n"
            "  end: 0 6 * * *\n  desiredReplicas: 3\n"
        ),
        (
            '[{"name": "night", "timezone": "UTC", "start": "0 22 * * *", "end": "0 6 * * *",'
            ' "desiredReplicas": 3}]'
        ),
        (
            '\t[\n\t{"name": "night",\n\t"timezone": "UTC", "start": "0 22 * * *",\n'
            '\t"end": "0 6 * * *", "desiredReplicas": "3"}]'
        ),
    ],
    ids=["yaml", "json", "json-with-tabs"],
)
def test_a_schedule_is_yaml_or_json(text: str) -> None:
    assert policy(schedule=text).windows == (
        Window("UTC", "0 22 * * *", "0 6 * * *", 3, name="night"),
    )


def test_an_empty_list_is_no_windows() -> None:
    assert policy(schedule="[]").windows == ()


def test_holidays_and_dates_of_the_trigger_hold_for_every_window_unless_it_says_otherwise() -> None:
    window = "timezone: UTC, start: 0 9 * * *, end: 0 17 * * *, desiredReplicas: 3"
    schedule = (
        f"- {{{window}}}\n"
        f"- {{{window}, holidays: NO}}\n"
        f"- {{{window}, holidays: off, excludeDates: [2026-05-04, 2026-05-05]}}\n"
    )
    first, second, third = policy(
        schedule=schedule, holidays="de-by", excludeDates="2026-12-24, 2026-12-31"
    ).windows

    epiphany, constitution = date(2026, 1, 6), date(2026, 5, 17)  # Bavaria's, Norway's
    eve, other = date(2026, 12, 24), date(2026, 5, 4)
    days = (epiphany, constitution, eve, other)
    assert [day in first.excluded for day in days] == [True, False, True, False]
    assert [day in second.excluded for day in days] == [False, True, True, False]
    assert [day in third.excluded for day in days] == [False, False, False, True]


def test_windows_with_holidays_compare_and_hash_by_value() -> None:
    """State is kept by policy: the same metadata must give the same one."""
    one, two = (policy(**NIGHT, holidays="DE-Augsburg").windows[0] for _ in range(2))

    assert one == two
    assert len({one, two}) == 1
    assert Holidays("DE", "Augsburg").subdivision == "Augsburg"


def test_t09_identical_start_and_end() -> None:
    assert problems(**NIGHT | {"start": "30 * * * *", "end": " 30  * * * ?"}) == [
        "end: start and end are identical"
    ]


def test_t09_every_start_an_end_too_never_opens() -> None:
    assert problems(**NIGHT | {"start": "0 9 * * 1", "end": "0 9,17 * * *"}) == [
        "end: the window never opens: every start is an end too"
    ]


def test_t10_a_bad_window_names_its_field_and_its_token() -> None:
    schedule = "- {timezone: UTC, start: 0 0 L * *, end: 0 9 * * *, desiredReplicas: 1}"

    assert problems(schedule=schedule) == [
        "schedule[0].start='0 0 L * *': 'L' is no day of month: allowed is 1-31"
    ]


def test_t13_a_lead_longer_than_the_period_is_refused() -> None:
    hourly = NIGHT | {"start": "0 * * * *", "end": "10 * * * *"}

    assert problems(**hourly, leadTime="61m") == [
        "leadTime='1h1m': must be at most 1h, the period of the window that starts at '0 * * * *'"
    ]
    assert policy(**hourly, leadTime="1h").lead_time == 3600.0
    assert policy(**hourly, leadTime="auto").lead_time is None


def test_t14_a_zone_without_daylight_saving_is_a_warning() -> None:
    assert warnings(**NIGHT | {"timezone": "EST"}) == [
        "timezone='EST': EST has no daylight saving; did you mean America/New_York?"
    ]
    assert warnings(**NIGHT | {"timezone": "Etc/GMT+5"}) == [
        (
            "timezone='Etc/GMT+5': Etc/GMT+5 has no daylight saving, and its sign is the reverse "
            "of the usual; name a city, such as America/New_York"
        )
    ]


def test_t07_windows_that_leave_a_hole_are_a_warning() -> None:
    assert warnings(**NIGHT | {"start": "0 0 * * *", "end": "59 23 * * *"}) == [
        (
            "end: windows leave a 60 s hole from the end '59 23 * * *' to the start '0 0 * * *'; "
            "it is bridged, but ends are exclusive: end at the start itself"
        )
    ]


def test_t07_many_holes_are_one_warning() -> None:
    rest = "timezone: UTC, desiredReplicas: 3"
    (warning,) = warnings(
        schedule=f"- {{{rest}, start: 0 6 * * *, end: 59 8 * * *}}\n"
        f"- {{{rest}, start: 0 9 * * *, end: 59 11 * * *}}\n"
        f"- {{{rest}, start: 0 12 * * *, end: 0 13 * * *}}"
    )

    assert "from the end '59 11 * * *' to the start '0 12 * * *' (and 1 more);" in warning


def test_t07_windows_in_different_zones_are_not_compared() -> None:
    rest = "desiredReplicas: 3"
    assert policy(
        schedule=f"- {{timezone: UTC, start: 0 6 * * *, end: 59 8 * * *, {rest}}}\n"
        f"- {{timezone: Asia/Tokyo, start: 0 9 * * *, end: 0 12 * * *, {rest}}}"
    ).windows


def test_t17_every_minute_starts_and_ends_are_legal() -> None:
    misuse = NIGHT | {"start": "* * * * 1-5", "end": "* * * * 6"}

    assert policy(**misuse).windows[0].start == "* * * * 1-5"


def test_t17_a_window_with_a_year_is_refused_and_excluded_dates_end_one() -> None:
    """Cron has no year, so a window for one day comes back unless later dates are left out."""
    one_day = NIGHT | {"start": "0 9 24 12 *", "end": "0 17 24 12 *"}
    (refused,) = problems(**one_day | {"start": "0 9 24 12 * 2026"})
    (window,) = policy(**one_day, excludeDates="2027-12-24, 2028-12-24").windows
    noons = [datetime(year, 12, 24, 12, tzinfo=UTC) for year in (2026, 2027, 2028)]

    assert refused == "start='0 9 24 12 * 2026': expected 5 fields, got 6"
    assert [evaluate([window], 0, noon).floor for noon in noons] == [3, 0, 0]


def test_a_schedule_longer_than_anyone_writes_is_refused_unread() -> None:
    assert problems(schedule=" " * 32 * 1024 + "[]") == [
        "schedule: must be at most 32768 characters"
    ]


def test_a_hundred_windows_that_never_meet_are_compared_within_the_time_out() -> None:
    """Every pair is compared for holes, and metadata is a stranger's: no pair may count days."""
    text = "\n".join(
        f"- {{timezone: UTC, start: '0 9 2 * *', end: '59 8 1,{day} * *', desiredReplicas: 2}}"
        for day in [*range(3, 28)] * 4
    )

    assert len(policy(schedule=text).windows) == 100


# --- zones ----------------------------------------------------------------------------------------


@pytest.fixture
def no_system_zones() -> Iterator[None]:
    """Look like a slim image: only the bundled data is left."""
    before = zoneinfo.TZPATH
    zoneinfo.reset_tzpath(to=[])
    zoneinfo.ZoneInfo.clear_cache()
    yield
    zoneinfo.reset_tzpath(to=before)
    zoneinfo.ZoneInfo.clear_cache()


@pytest.mark.usefixtures("no_system_zones")
@pytest.mark.parametrize("zone", ["Europe/Paris", "US/Central", "Asia/Calcutta", "UTC"])
def test_t04_zones_and_old_aliases_resolve_without_system_data(zone: str) -> None:
    assert policy(**NIGHT | {"timezone": zone}).windows[0].timezone == zone


@pytest.mark.parametrize(
    ("zone", "expected"),
    [
        ("Mars/Base", "timezone='Mars/Base': unknown timezone 'Mars/Base'"),
        ("", "timezone: timezone is required"),
        (" ", "timezone: timezone is required"),
        (
            "Europe/Berln",
            (
                "timezone='Europe/Berln': unknown timezone 'Europe/Berln'; "
                "did you mean 'Europe/Berlin'?"
            ),
        ),
        ("../etc/passwd", "timezone='../etc/passwd': unknown timezone '../etc/passwd'"),
        ("localtime", "timezone='localtime': unknown timezone 'localtime'"),
    ],
)
def test_t04_an_unknown_or_missing_zone_is_refused(zone: str, expected: str) -> None:
    """Never the node's own zone."""
    assert problems(**NIGHT | {"timezone": zone}) == [expected]


def test_t04_a_missing_zone_key_is_refused() -> None:
    schedule = "- {start: 0 9 * * *, end: 0 17 * * *, desiredReplicas: 1}"

    assert problems(schedule=schedule) == ["schedule[0].timezone: timezone is required"]


def test_t04_the_bundled_zones_are_a_dependency_of_ours() -> None:
    assert importlib.resources.files("tzdata").joinpath("zones").is_file()
    code = (
        "import zoneinfo; zoneinfo.reset_tzpath(to=[]);"
        "from scaler.config.trigger import parse_trigger;"
        f"print(parse_trigger({NIGHT | {'timezone': 'US/Central'}!r})[0].windows[0].timezone)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=30
    )
    assert done.stdout == "US/Central\n"


# --- together -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "expected"),
    [
        (
            NIGHT | {"maxReplicas": "2"},
            ["maxReplicas='2': cuts off a window that asks for 3"],
        ),
        (
            NIGHT | {"minReplicas": "3"},
            [
                (
                    "minReplicas='3': is never below a window's floor, at most 3: "
                    "the schedule does nothing"
                )
            ],
        ),
        (
            {"targetWaiting": "off", "targetKvUsage": "off"},
            ["targetWaiting='off': every signal is off: only floors can scale this"],
        ),
        (
            {"targetTtft": "3s", "targetQueueTime": "3s"},
            ["targetQueueTime='3s': leaves nothing of targetTtft, 3s, for the prompt itself"],
        ),
        (
            {"leadTime": "5m", "holidays": "DE", "excludeDates": "2026-01-01"},
            [
                "leadTime: has no effect without a schedule",
                "holidays: has no effect without a schedule",
                "excludeDates: has no effect without a schedule",
            ],
        ),
    ],
)
def test_values_that_cannot_do_what_they_say_together(
    metadata: dict[str, str], expected: list[str]
) -> None:
    assert warnings(**metadata) == expected


def test_the_table_names_every_key_once() -> None:
    names = [key.name for key in VALUE_KEYS]

    assert len(names) == len(set(names))
    assert len(OWN_KEYS) == len(names) + 4 + 4
