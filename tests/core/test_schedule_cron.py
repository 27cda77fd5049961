"""The cron dialect: what is read, what is refused, and how a refusal names the token."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from itertools import islice, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scaler.core.cron import CronError, parse_cron

MINUTE = timedelta(minutes=1)
JUST_BEFORE_2024 = datetime(2023, 12, 31, 23, 59)  # noqa: DTZ001 - cron speaks local time
MONDAY = datetime(2026, 3, 2, 8, 30)  # noqa: DTZ001 - cron speaks local time


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("-39 * * * *", "'-39' is no minute: allowed is 0-59"),
        ("0 24 * * *", "'24' is no hour: allowed is 0-23"),
        ("0 0 8 * * *", "expected 5 fields, got 6"),
        ("* * * *", "expected 5 fields, got 4"),
        ("", "expected 5 fields, got 0"),
        ("0 0 L * *", "'L' is no day of month: allowed is 1-31"),
        ("0 0 15W * *", "'15W' is no day of month: allowed is 1-31"),
        ("0 0 * * 5L", "'5L' is no day of week: allowed is 0-7 or SUN-SAT"),
        ("0 0 * * 5#2", "'5#2' is no day of week: allowed is 0-7 or SUN-SAT"),
        ("0 0 * * 8", "'8' is no day of week: allowed is 0-7 or SUN-SAT"),
        ("0 0 * 13 *", "'13' is no month: allowed is 1-12 or JAN-DEC"),
        ("0 0 0 * *", "'0' is no day of month: allowed is 1-31"),
        ("0 ? * * *", "'?' is no hour: allowed is 0-23"),
        ("@daily", "'@daily' is not supported; write five fields"),
        ("0 0 30 2 *", "'0 0 30 2 *' never matches: no such day of the month"),
        ("0 0 31 4,6,9,11 ?", "'0 0 31 4,6,9,11 ?' never matches: no such day of the month"),
        ("0 17-9 * * *", "'17-9' is no hour: the range runs backwards"),
        ("*/0 * * * *", "'*/0' is no minute: a step is a whole number above 0"),
        ("*/x * * * *", "'*/X' is no minute: a step is a whole number above 0"),
        ("1,,2 * * * *", "'' is no minute: allowed is 0-59"),
        ("1- * * * *", "'1-' is no minute: allowed is 0-59"),
        ("٣ * * * *", "'٣' is no minute: allowed is 0-59"),
        ("99999999999999999999 * * * *", "'99999999999999999999' is no minute: allowed is 0-59"),
    ],
)
def test_t10_a_foreign_dialect_is_refused_with_its_token(text: str, message: str) -> None:
    with pytest.raises(CronError) as caught:
        parse_cron(text)

    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("0 9 * * 1-5", ["02 09:00", "03 09:00", "04 09:00"]),
        ("\t0  9 * * 1-5\n", ["02 09:00", "03 09:00", "04 09:00"]),
        ("0 0 ? * MON-FRI", ["03 00:00", "04 00:00", "05 00:00"]),
        ("0 0 * mar fri", ["06 00:00", "13 00:00", "20 00:00"]),
        ("0 9 * * 7", ["08 09:00", "15 09:00", "22 09:00"]),
        ("0 9 * * 6-7", ["07 09:00", "08 09:00", "14 09:00"]),
        ("0 9 * * 5/1", ["06 09:00", "07 09:00", "13 09:00"]),
        ("*/20 8,9 * * *", ["02 08:40", "02 09:00", "02 09:20"]),
        ("10-30/10 9 * * *", ["02 09:10", "02 09:20", "02 09:30"]),
        ("50/5 8 * * *", ["02 08:50", "02 08:55", "03 08:50"]),
        ("0 9 5 * 1", ["02 09:00", "05 09:00", "09 09:00"]),
        ("0 9 */10 * 1", ["02 09:00", "09 09:00", "11 09:00"]),
        ("0 9 * * *,3", ["02 09:00", "03 09:00", "04 09:00"]),
    ],
)
def test_t10_what_is_accepted_fires_when_crontab_says(text: str, first: list[str]) -> None:
    firings = islice(parse_cron(text).firings_after(MONDAY), 3)

    assert [firing.strftime("%d %H:%M") for firing in firings] == first


def test_firings_run_both_ways_from_the_same_minute() -> None:
    cron = parse_cron("0,30 8 * * *")

    assert next(cron.firings_until(MONDAY)) == MONDAY
    assert next(cron.firings_after(MONDAY)) == datetime(2026, 3, 3, 8, 0)  # noqa: DTZ001
    assert list(islice(cron.firings_until(MONDAY - timedelta(seconds=1)), 2)) == [
        datetime(2026, 3, 2, 8, 0),  # noqa: DTZ001
        datetime(2026, 3, 1, 8, 30),  # noqa: DTZ001
    ]


def test_excluded_dates_do_not_fire() -> None:
    skip = frozenset({date(2026, 3, 2), date(2026, 3, 3)})
    cron = parse_cron("0 9 * * *")

    assert next(cron.firings_after(MONDAY, skip)).date() == date(2026, 3, 4)
    assert next(cron.firings_until(MONDAY + timedelta(hours=1), skip)).date() == date(2026, 3, 1)


@pytest.mark.parametrize(
    ("text", "gap"),
    [
        ("0 9 * * 1-5", timedelta(days=1)),
        ("0 9 * * 1", timedelta(days=7)),
        ("0 0,23 * * 1", timedelta(hours=23)),
        ("* * * * *", timedelta(minutes=1)),
        ("0 9 1 * *", timedelta(days=28)),
        ("0 9 29 2 *", timedelta(days=1461)),
    ],
)
def test_the_period_is_the_shortest_time_between_two_firings(text: str, gap: timedelta) -> None:
    assert parse_cron(text).shortest_gap == gap


@pytest.mark.parametrize(
    ("earlier", "later", "expected"),
    [
        ("59 23 * * *", "0 0 * * *", True),
        ("59 23 * * 5", "0 0 * * 6", True),
        ("59 23 * * 5", "0 0 * * 5", False),
        ("59 8 * * *", "0 9 * * *", True),
        ("59 8 * * 1", "0 9 * * 2", False),
        ("0 9 * * *", "0 9 * * *", False),
    ],
)
def test_one_expression_meets_another_a_minute_later(
    earlier: str, later: str, expected: bool
) -> None:
    assert parse_cron(earlier).meets(parse_cron(later)) is expected


@pytest.mark.parametrize(
    ("inner", "outer", "expected"),
    [
        ("0 9 * * 1", "0 9 * * 1-5", True),
        ("0 9 * * 6", "0 9 * * 1-5", False),
        ("30 9 * * 1", "0 9 * * 1-5", False),
        ("0 9 29 2 *", "0 9 29 2 THU", True),  # either day field suffices
        ("0 9 29 2 *", "0 9 * 2 THU", False),  # a Thursday in 2024, not in 2028
    ],
)
def test_one_expression_lies_within_another(inner: str, outer: str, expected: bool) -> None:
    assert parse_cron(inner).within(parse_cron(outer)) is expected


FIELDS = (
    st.sampled_from(["0", "*/20", "59", "5,35"]),
    st.sampled_from(["*", "0", "9", "23", "0,23"]),
    st.sampled_from(["*", "?", "1-30", "29", "*/2", "31"]),
    st.sampled_from(["*", "2", "1,7,12"]),
    st.sampled_from(["*", "?", "MON-FRI", "4", "*/2"]),
)
EXPRESSIONS = st.tuples(*FIELDS).map(" ".join).filter(lambda text: not text.endswith("31 2 *"))


@settings(max_examples=60, deadline=None)
@given(EXPRESSIONS, EXPRESSIONS)
def test_calendars_say_what_counting_days_says(text: str, other_text: str) -> None:
    """The quick answers are masks; these walk the nine years a day at a time."""
    try:
        cron, other = parse_cron(text), parse_cron(other_text)
    except CronError:
        return
    firings = list(cron.firings_after(JUST_BEFORE_2024))
    sample = firings[:: 1 + len(firings) // 5000]

    assert cron.shortest_gap == min(b - a for a, b in pairwise(firings))
    assert not cron.within(other) or all(other.fires_at(at) for at in sample)
    if set(cron.times) <= set(other.times) and not cron.within(other):
        assert not all(other.matches(at.date()) for at in firings)
    assert not any(other.fires_at(at + MINUTE) for at in sample) or cron.meets(other)
