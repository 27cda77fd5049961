"""What survives a restart."""

from __future__ import annotations

import json
import os
import stat
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest
from fakes import REFUSED, START, Fleet, ManualClock, sample

from scaler.core.decide import initial_state
from scaler.core.memory import dump, load
from scaler.core.model import Count, Reason
from scaler.core.policy import TriggerPolicy, Window
from scaler.errors import InvalidSettings
from scaler.keepsake import FILE_NAME, Keepsake

if TYPE_CHECKING:
    from pathlib import Path

POLICY = TriggerPolicy(
    windows=(Window("UTC", "0 9 * * *", "0 12 * * *", 5),), lead_time=0.0, hold_seconds=60
)


@dataclass
class Troubles:
    told: list[str] = field(default_factory=list)

    def keepsake_trouble(self, path: str, text: str) -> None:
        del path
        self.told.append(text)


def busy_fleet() -> Fleet:
    """A fleet at 09:30 whose spike has come, and which decided on 6 replicas."""
    fleet = Fleet(POLICY, start=START + timedelta(minutes=90))
    fleet.tick({"a": sample(3, 30, counts={Count.FINISHED: 1})})
    return fleet


def restarted(fleet: Fleet, *, seconds: float, monotonic: float = 7.0) -> Fleet:
    """The same fleet seen by a new process, ``seconds`` later, whose clock starts elsewhere."""
    kept = json.loads(json.dumps(dump(fleet.state, fleet.now)))
    newer = Fleet(POLICY, start=fleet.wall + timedelta(seconds=seconds))
    newer.monotonic = monotonic
    newer.state = load(kept, POLICY, newer.now)
    return newer


def test_a_restart_holds_what_was_answered() -> None:
    fleet = restarted(busy_fleet(), seconds=20)

    held = fleet.tick({"a": REFUSED})
    later = fleet.tick({"a": REFUSED}, seconds=60)

    assert (held.valid, held.desired, held.reason) == (True, 6, Reason.HOLD)
    assert not (later.valid and later.reason is Reason.HOLD)


def test_a_restart_does_not_forget_that_the_fleet_was_busy() -> None:
    fleet = busy_fleet()
    fleet.wall += timedelta(hours=4)  # the window is over
    fleet.tick({"a": sample(1)})
    idle = {"a": sample(0, 0)}

    assert restarted(fleet, seconds=30).tick(idle).active
    assert not restarted(fleet, seconds=400).tick(idle).active


def test_a_restart_at_noon_does_not_release_the_window() -> None:
    fleet = restarted(busy_fleet(), seconds=30)

    decisions = [fleet.tick({"a": sample(0, 0)}, seconds=60) for _ in range(40)]

    assert {d.floors.schedule for d in decisions} == {5}


def test_a_wall_clock_set_back_does_not_put_the_past_ahead() -> None:
    fleet = restarted(busy_fleet(), seconds=-3600)

    assert fleet.state.busy_at is not None
    assert fleet.state.busy_at <= fleet.monotonic


def test_an_empty_memory_survives_too() -> None:
    fleet = Fleet(POLICY)

    assert load(dump(fleet.state, fleet.now), POLICY, fleet.now) == initial_state(POLICY)


def kept_entry(**changes: object) -> dict[str, object]:
    """An entry of the file at 08:00:00, with what a test spoils."""
    kept = dump(Fleet(POLICY).state, ManualClock(START).now())
    return kept | {"at": 1764489600.0} | changes


class TestFile:
    def test_written_and_read(self, tmp_path: Path) -> None:
        fleet, clock = busy_fleet(), ManualClock(START + timedelta(minutes=91))
        Keepsake(tmp_path / "deep", Troubles()).write({}, clock.now())  # no directory yet
        keepsake = Keepsake(tmp_path / "deep", Troubles())
        keepsake.read()
        keepsake.write({"team/llama/1": fleet.state}, fleet.now)

        again = Keepsake(tmp_path / "deep", troubles := Troubles())
        again.read()
        state = again.recall("team/llama/1", POLICY, clock.now())

        assert (state.desired, state.active) == (6, True)
        assert again.recall("team/other/1", POLICY, clock.now()) == initial_state(POLICY)
        assert troubles.told == []
        assert [path.name for path in (tmp_path / "deep").iterdir()] == [FILE_NAME]

    def test_yesterday_is_another_day(self, tmp_path: Path) -> None:
        fleet = busy_fleet()
        keepsake = Keepsake(tmp_path, Troubles())
        keepsake.write({"k": fleet.state}, fleet.now)
        fleet.sleep(25 * 3600)

        assert keepsake.recall("k", POLICY, fleet.now) == initial_state(POLICY)

    @pytest.mark.parametrize(
        "content",
        [
            pytest.param(b"", id="empty"),
            pytest.param(b'{"version": 1, "trig', id="cut short"),
            pytest.param(b"\xff\xfe", id="not text"),
            pytest.param(b"[]", id="another shape"),
            pytest.param(b'{"version": 99, "triggers": {}}', id="another version"),
            pytest.param(b'{"version": 1, "triggers": []}', id="no object"),
            pytest.param(b'{"version": 1}', id="no triggers"),
        ],
    )
    def test_a_broken_file_is_set_aside(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / FILE_NAME).write_bytes(content)
        keepsake = Keepsake(tmp_path, troubles := Troubles())

        keepsake.read()

        assert (tmp_path / "triggers.broken").read_bytes() == content
        assert "set aside as triggers.broken" in troubles.told[0]

    def test_a_file_that_is_far_too_large_is_not_read(self, tmp_path: Path) -> None:
        with (tmp_path / FILE_NAME).open("wb") as file:
            file.truncate(17 * 1024 * 1024)
        keepsake = Keepsake(tmp_path, troubles := Troubles())

        keepsake.read()

        assert "larger than" in troubles.told[0]

    def test_what_keda_has_not_asked_about_yet_is_kept(self, tmp_path: Path) -> None:
        """A quick second restart, or a poll that is a minute away, loses nothing."""
        fleet = busy_fleet()
        Keepsake(tmp_path, Troubles()).write({"a": fleet.state, "b": fleet.state}, fleet.now)
        again = Keepsake(tmp_path, Troubles())
        again.read()
        again.write({"a": fleet.state}, fleet.now)
        third = Keepsake(tmp_path, Troubles())
        third.read()

        assert third.recall("b", POLICY, fleet.now).desired == 6
        fleet.sleep(25 * 3600)
        third.write({}, fleet.now)
        assert json.loads((tmp_path / FILE_NAME).read_text())["triggers"] == {}

    def test_nesting_without_end_is_a_broken_file(self, tmp_path: Path) -> None:
        (tmp_path / FILE_NAME).write_text("[" * 100_000)
        keepsake = Keepsake(tmp_path, troubles := Troubles())

        keepsake.read()

        assert "set aside" in troubles.told[0]

    @pytest.mark.parametrize(
        "entry",
        [
            pytest.param({}, id="empty"),
            pytest.param({"at": "soon"}, id="text"),
            pytest.param(3, id="int"),
            pytest.param({"at": 1764489600.0}, id="part"),
            pytest.param(kept_entry(desired=1e999), id="infinite replicas"),
            pytest.param(kept_entry(busy_ago=1e999), id="infinite age"),
        ],
    )
    def test_a_broken_entry_costs_only_itself(self, tmp_path: Path, entry: Any) -> None:
        (tmp_path / FILE_NAME).write_text(json.dumps({"version": 1, "triggers": {"k": entry}}))
        keepsake = Keepsake(tmp_path, troubles := Troubles())
        keepsake.read()

        now = ManualClock(START.fromtimestamp(1764489601, tz=START.tzinfo)).now()

        assert keepsake.recall("k", POLICY, now) == initial_state(POLICY)
        assert "entry of k ignored" in troubles.told[0]
        keepsake.write({}, now)  # which is not stopped by it either

    def test_what_cannot_be_written_is_told_once(self, tmp_path: Path) -> None:
        keepsake = Keepsake(tmp_path / "gone", troubles := Troubles())
        clock = ManualClock()
        for _ in range(3):
            keepsake.write({}, clock.now())
        (tmp_path / "gone").mkdir()
        keepsake.write({}, clock.now())

        assert troubles.told == ["not written: No such file or directory"]
        assert (tmp_path / "gone" / FILE_NAME).exists()

    def test_a_directory_that_cannot_be_used_is_a_setting_to_mend(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("")

        with pytest.raises(InvalidSettings, match=r"--state-dir=.*: must be a directory"):
            Keepsake(tmp_path / "file" / "below", Troubles()).read()

    @pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
    def test_a_directory_that_is_read_only_is_a_setting_to_mend(self, tmp_path: Path) -> None:
        tmp_path.chmod(stat.S_IRUSR | stat.S_IXUSR)

        with pytest.raises(InvalidSettings, match="must be writable"):
            Keepsake(tmp_path, Troubles()).read()
