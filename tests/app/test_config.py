"""Settings come from the environment and say where things lie."""

import stat
from pathlib import Path

import pytest
from pydantic import ValidationError

from app.config import SOCKET_PATH_LIMIT, Settings


def test_every_setting_has_a_description() -> None:
    assert [name for name, field in Settings.model_fields.items() if not field.description] == []


def test_settings_are_read_from_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("FEDARENA_HOME", str(tmp_path))
    monkeypatch.setenv("FEDARENA_PORT", "9000")
    monkeypatch.setenv("FEDARENA_LOG_LEVEL", "WARNING")
    monkeypatch.setenv("FEDARENA_DATA", "")
    settings = Settings()
    assert (settings.home, settings.port, settings.log_level) == (tmp_path, 9000, "warning")
    assert settings.data_root == tmp_path / "data"


def test_a_child_process_sees_the_same_settings(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    original = Settings(
        home=tmp_path, lease_seconds=2, heartbeat_seconds=0.5, starter=False, device="cuda:1", data=tmp_path / "sets"
    )
    for name, value in original.environment().items():
        monkeypatch.setenv(name, value)
    assert Settings() == original


def test_paths_do_not_change_with_the_working_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    settings = Settings(home=Path("state"))
    monkeypatch.chdir(tmp_path)
    assert settings.home.is_absolute()
    assert settings.home != Path("state").absolute()


def test_nobody_else_may_look_into_the_home(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / "new")
    settings.prepare_home()
    assert stat.S_IMODE(settings.home.stat().st_mode) == 0o700


def test_the_default_database_and_broker_lie_in_the_home(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path)
    assert settings.database == f"sqlite:///{tmp_path}/fedarena.db"
    assert settings.broker.startswith("redis+socket:///")


def test_a_home_with_a_long_path_gets_its_socket_elsewhere(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path / ("x" * 120))
    assert len(str(settings.broker_socket)) < SOCKET_PATH_LIMIT
    assert settings.broker_socket == Settings(home=settings.home).broker_socket
    assert settings.broker_socket != Settings(home=tmp_path / ("y" * 120)).broker_socket


@pytest.mark.parametrize(("name", "value"), [("port", 70_000), ("device", "tpu"), ("lease_seconds", 0)])
def test_a_setting_out_of_bounds_is_refused(name: str, value: object) -> None:
    with pytest.raises(ValidationError):
        Settings.model_validate({name: value})


def test_a_lease_shorter_than_three_heartbeats_is_refused() -> None:
    with pytest.raises(ValidationError, match=r"LEASE_SECONDS must be at least 3 times .* but got 10 and 15"):
        Settings(lease_seconds=10, heartbeat_seconds=15)
    assert Settings(lease_seconds=45, heartbeat_seconds=15).lease_seconds == 45
