"""Which windows are open at an instant: timelines, and the acceptance cases about schedules."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from scaler.core.policy import Window
from scaler.core.schedule import ScheduleView, evaluate


def at(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def window(start: str, end: str, desired: int = 8, timezone: str = "UTC", **more: object) -> Window:
    return Window(timezone, start, end, desired, **more)  # type: ignore[arg-type]


def floors(windows: list[Window], instants: list[str], lead: float = 0) -> list[int]:
    return [evaluate(windows, lead, at(instant)).floor for instant in instants]


NINE_TO_FIVE = window("0 9 * * 1-5", "0 17 * * 1-5", timezone="Europe/Berlin", name="office")


def test_no_windows_is_no_floor_for_ever() -> None:
    view = evaluate((), 60, at("2026-03-02T10:00:00"))

    assert view == ScheduleView()
    assert (view.floor, view.window, view.opened_at, view.next_opening) == (0, "", None, None)
    assert view.holds_at(at("1970-01-01"))
    assert view.holds_at(at("9999-01-01"))


def test_a_view_says_which_window_is_open_since_when_and_until_when_it_holds() -> None:
    view = evaluate([NINE_TO_FIVE], 180, at("2026-03-02T10:00:00"))  # a Monday, 11:00 in Berlin

    assert view.floor == 8
    assert view.window == "office (0 9 * * 1-5 to 0 17 * * 1-5, Europe/Berlin)"
    assert view.opened_at == at("2026-03-02T08:00:00")
    assert view.open[0].closes_at == at("2026-03-02T16:00:00")
    assert view.next_opening == at("2026-03-03T07:57:00")
    assert (view.valid_from, view.valid_until) == (
        at("2026-03-02T08:00:00"),
        at("2026-03-02T16:00:00"),
    )


def test_while_only_the_lead_runs_the_real_start_lies_ahead() -> None:
    view = evaluate([NINE_TO_FIVE], 180, at("2026-03-02T07:58:00"))

    assert (view.floor, view.opened_at) == (8, at("2026-03-02T08:00:00"))
    assert view.open[0].closes_at == at("2026-03-02T16:00:00")
    assert view.valid_from == at("2026-03-02T07:57:00")
    assert view.valid_until == at("2026-03-02T08:00:00")


def test_a_closed_window_names_its_next_opening_with_the_lead() -> None:
    view = evaluate([NINE_TO_FIVE], 180, at("2026-03-06T16:00:00"))  # Friday, at the end: exclusive

    assert (view.floor, view.next_opening) == (0, at("2026-03-09T07:57:00"))


def test_t01_a_start_in_the_skipped_hour_opens_at_the_first_existing_minute() -> None:
    windows = [window("30 2 * * *", "30 4 * * *", timezone="Europe/Berlin")]

    assert floors(
        windows,
        [
            "2026-03-29T00:59:59",
            "2026-03-29T01:00:00",
            "2026-03-29T02:29:59",
            "2026-03-29T02:30:00",
            "2026-03-30T00:29:59",  # the next day is a normal one
            "2026-03-30T00:30:00",
            "2026-03-30T02:30:00",
        ],
    ) == [0, 8, 8, 0, 0, 8, 0]


def test_t01_an_end_in_the_skipped_hour_does_not_swallow_a_start_right_after_it() -> None:
    """Both happen at the same instant; in local time the start is the later one."""
    windows = [window("0 3 * * *", "30 2 * * *", timezone="Europe/Berlin")]

    assert floors(windows, ["2026-03-29T00:59:59", "2026-03-29T01:00:00"]) == [8, 8]


def test_t01_the_repeated_hour_fires_once() -> None:
    windows = [window("30 2 * * *", "45 2 * * *", timezone="Europe/Berlin")]

    assert floors(
        windows,
        ["2026-10-25T00:30:00", "2026-10-25T00:45:00", "2026-10-25T01:30:00"],
    ) == [8, 0, 0]


def test_t01_what_opened_in_the_first_pass_of_an_hour_stays_open_in_the_second() -> None:
    """At 02:10 CET the clocks have shown 02:30 already; cronsim's reverse iteration forgets it."""
    windows = [window("30 2 * * *", "0 6 * * *", timezone="Europe/Berlin")]

    assert floors(
        windows, ["2026-10-25T00:29:00", "2026-10-25T00:30:00", "2026-10-25T01:10:00"]
    ) == [
        0,
        8,
        8,
    ]


def test_t06_a_window_across_midnight_with_weekdays() -> None:
    windows = [window("0 22 * * 5", "0 6 * * 6", timezone="Asia/Kolkata")]

    assert floors(
        windows,
        [
            "2026-03-06T16:29:00",
            "2026-03-06T16:30:00",
            "2026-03-06T20:00:00",
            "2026-03-07T00:29:00",
            "2026-03-07T00:30:00",
        ],
    ) == [0, 8, 8, 8, 0]


def test_t07_adjacent_windows_hand_over_without_a_dip_or_a_sum() -> None:
    windows = [window("0 6 * * *", "0 9 * * *", 10), window("0 9 * * *", "0 12 * * *", 12)]
    seconds = [f"2026-03-02T{clock}" for clock in ("08:59:58", "08:59:59")]
    seconds += [f"2026-03-02T09:00:0{second}" for second in range(3)]

    assert floors(windows, seconds) == [10, 10, 12, 12, 12]


@pytest.mark.parametrize(
    ("windows", "expected"),
    [
        pytest.param([window("0 0 * * *", "59 23 * * *", 9)], 9, id="to-itself"),
        pytest.param(
            [window("0 12 * * *", "59 23 * * *", 9), window("0 0 * * *", "0 6 * * *", 3)],
            9,
            id="to-another-window",
        ),
        pytest.param(
            [window("0 12 * * *", "58 23 * * *", 9), window("0 0 * * *", "0 6 * * *", 3)],
            0,
            id="two-minutes-are-meant",
        ),
        pytest.param(
            [window("0 12 * * *", "0,59 23 * * *", 9), window("0 0 * * *", "0 6 * * *", 3)],
            0,
            id="an-end-that-closed-nothing",
        ),
        pytest.param(
            [window("0 12 * * *", "59 23 * * *", 9)],
            0,
            id="no-start-follows",
        ),
    ],
)
def test_t07_a_hole_of_a_minute_is_bridged(windows: list[Window], expected: int) -> None:
    assert evaluate(windows, 0, at("2026-03-02T23:59:30")).floor == expected


def test_t07_the_bridge_ends_where_the_next_window_starts() -> None:
    windows = [window("0 12 * * *", "59 23 * * *", 9), window("0 0 * * *", "0 6 * * *", 3)]

    view = evaluate(windows, 0, at("2026-03-02T23:59:30"))

    assert view.opened_at == at("2026-03-02T12:00:00")
    assert view.open[0].closes_at == view.valid_until == at("2026-03-03T00:00:00")
    assert floors(windows, ["2026-03-03T00:00:00"]) == [3]


def test_t13_the_lead_crosses_into_the_day_before() -> None:
    windows = [window("5 0 * * 1", "0 6 * * 1")]

    instants = ["2026-03-01T23:54:59", "2026-03-01T23:55:00"]
    assert floors(windows, instants, lead=600) == [0, 8]


def test_t13_the_lead_is_subtracted_in_absolute_time() -> None:
    """15 minutes before 03:00 would be 02:45, which does not exist on that day."""
    windows = [window("0 3 * * *", "0 6 * * *", timezone="Europe/Berlin")]

    instants = ["2026-03-29T00:44:59", "2026-03-29T00:45:00"]
    assert floors(windows, instants, lead=900) == [0, 8]


def test_t13_a_lead_longer_than_the_period_never_reaches_past_the_start_before() -> None:
    """``auto`` cannot be refused: the lead is cut to the period, the window is simply open."""
    windows = [window("0 * * * *", "10 * * * *")]
    view = evaluate(windows, 7200, at("2026-03-02T10:30:00"))

    assert (view.floor, view.opened_at) == (8, at("2026-03-02T11:00:00"))
    assert view.next_opening is None  # it never closes


def test_t14_est_has_no_daylight_saving() -> None:
    windows = [window("10 7 * * *", "0 9 * * *", timezone="EST")]

    assert floors(windows, ["2026-07-01T11:10:00", "2026-07-01T12:10:00"]) == [0, 8]


@pytest.mark.parametrize("step", [timedelta(minutes=-10), timedelta(hours=2)], ids=str)
def test_t15_a_kept_view_is_not_believed_after_the_wall_clock_steps(step: timedelta) -> None:
    windows = [window("0 9 * * *", "0 10 * * *")]
    now = at("2026-03-02T09:05:00")
    view = evaluate(windows, 0, now)

    assert view.holds_at(now)
    assert not view.holds_at(now + step)
    assert evaluate(windows, 0, now + step).floor == 0


def test_t17_every_minute_starts_and_ends_follow_the_look_back_rule() -> None:
    windows = [window("* * * * 1-5", "* * * * 6")]

    assert floors(
        windows, ["2026-03-04T12:00:30", "2026-03-07T12:00:00", "2026-03-08T12:00:00"]
    ) == [
        8,
        0,
        0,
    ]


def test_t17_repeated_starts_do_not_reopen_a_window() -> None:
    """Otherwise the spike that does not come would be waited for anew every minute."""
    view = evaluate([window("* * * * 1-5", "* * * * 6")], 0, at("2026-03-04T12:00:30"))

    assert view.opened_at == at("2026-03-02T00:00:00")


def test_f02_a_schedule_is_a_floor_and_says_nothing_before_it_opens() -> None:
    windows = [window("45 8 * * *", "0 10 * * *")]

    assert floors(windows, ["2026-03-02T08:20:00", "2026-03-02T08:45:00"]) == [0, 8]


def test_f10_overlapping_windows_take_the_highest_and_never_add_up() -> None:
    windows = [
        window("0 8 * * *", "0 12 * * *", 4, name="low"),
        window("0 9 * * *", "0 11 * * *", 6, name="high"),
        window("0 9 * * *", "0 11 * * *", 6, name="twice"),
    ]

    assert floors(windows, [f"2026-03-02T{hour}:00:00" for hour in ("08", "09", "11", "12")]) == [
        4,
        6,
        4,
        0,
    ]
    view = evaluate(windows, 0, at("2026-03-02T09:30:00"))
    assert [span.window.name for span in view.open] == ["high", "twice", "low"]


def test_a_start_on_an_excluded_local_date_does_not_open() -> None:
    """23:30 in UTC on the 24th is the 25th in Berlin: the window's own date counts."""
    closed = frozenset({date(2026, 12, 25)})
    windows = [
        window("30 0 * * *", "0 6 * * *", timezone="Europe/Berlin", excluded=closed),
    ]

    assert floors(
        windows, ["2026-12-24T02:00:00", "2026-12-24T23:30:00", "2026-12-25T23:30:00"], lead=60
    ) == [8, 0, 8]


def test_a_window_that_began_before_an_excluded_date_runs_to_its_end() -> None:
    windows = [window("0 22 * * *", "0 6 * * *", excluded=frozenset({date(2026, 12, 25)}))]

    assert floors(windows, ["2026-12-25T05:59:00", "2026-12-25T22:00:00"]) == [8, 0]


def test_a_window_whose_every_start_is_excluded_never_opens() -> None:
    class EveryDay:
        def __contains__(self, day: object) -> bool:
            return True

    view = evaluate(
        [window("0 9 * * *", "0 17 * * *", excluded=EveryDay())], 60, at("2026-03-02T10:00:00")
    )

    assert (view.floor, view.next_opening) == (0, None)


def test_a_leap_day_window_is_found_years_away() -> None:
    windows = [window("0 9 29 2 *", "0 17 29 2 *")]

    assert floors(
        windows, ["2028-02-29T09:00:00", "2028-02-29T17:00:00", "2030-06-01T00:00:00"]
    ) == [
        8,
        0,
        0,
    ]
    # 2100 is no leap year: eight years lie between two leap days.
    assert evaluate(windows, 0, at("2097-01-01")).next_opening == at("2104-02-29T09:00:00")
    assert evaluate(windows, 0, at("2097-01-01")).valid_from == at("2096-02-29T17:00:00")


def test_starts_that_are_ends_too_open_nothing_not_even_their_lead() -> None:
    windows = [window("0,30 9 * * *", "0 9,17 * * *")]

    assert floors(
        windows,
        ["2026-03-02T08:50:00", "2026-03-02T09:00:00", "2026-03-02T09:29:00"],
        lead=0,
    ) == [0, 0, 0]
    view = evaluate(windows, 120, at("2026-03-02T08:59:00"))
    assert (view.floor, view.next_opening) == (0, at("2026-03-02T09:28:00"))


def test_the_search_behind_starts_that_are_ends_too_gives_up() -> None:
    """Only a window that can hardly have been meant has a hundred such starts in a row."""
    windows = [window("* 0-5 * * *", "* 0-4 * * *")]

    view = evaluate(windows, 0, at("2026-03-02T00:00:00"))

    assert (view.floor, view.next_opening, view.valid_until) == (
        0,
        None,
        at("2026-03-02T00:01:00"),
    )
    assert floors(windows, ["2026-03-02T05:00:00"]) == [8]


def test_far_from_any_end_a_window_stays_open() -> None:
    """Near the last year a calendar knows there may be no next end; that is no error."""
    view = evaluate([window("0 9 1 1 *", "0 9 1 3 *")], 0, at("9990-02-01"))
    assert view.floor == 8
