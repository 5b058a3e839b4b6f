"""docker-compose.yml held against the code: no Docker engine is needed to see that it says something that exists."""

import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import typer
import yaml
from fastapi.testclient import TestClient

from app.cli import app as command_line
from app.config import Settings
from app.main import create_app
from tests.source import ROOT

EXAMPLE = (ROOT / ".env.example").read_text(encoding="utf-8")
VARIABLE = re.compile(r"(?<!\$)\$\{(\w+)(?::([-?])([^}]*))?\}")


def _load() -> dict[str, Any]:
    """The file as compose reads it with .env.example, both passwords given."""
    values = dict(line.split("=", 1) for line in EXAMPLE.splitlines() if "=" in line and not line.startswith("#"))
    values |= {"POSTGRES_PASSWORD": "p0stgres", "REDIS_PASSWORD": "r3dis"}

    def fill(match: re.Match[str]) -> str:
        name, sign, rest = match.groups()
        return values.get(name) or (rest if sign == "-" else "")

    text = (ROOT / "docker-compose.yml").read_text(encoding="utf-8")
    loaded: dict[str, Any] = yaml.safe_load(VARIABLE.sub(fill, text))
    return loaded


COMPOSE = _load()
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if service["image"].startswith("fedarena")}
THEIRS = {name: service for name, service in SERVICES.items() if name not in OURS}


def settings_of(service: dict[str, Any]) -> dict[str, str]:
    return {key.removeprefix("FEDARENA_").lower(): str(value) for key, value in service["environment"].items()}


def test_there_is_a_web_server_a_worker_for_each_device_a_broker_and_a_database() -> None:
    assert set(OURS) == {"web", "worker-cpu", "worker-gpu-0"}
    assert set(THEIRS) == {"redis", "postgres"}
    assert OURS["worker-gpu-0"]["profiles"] == ["gpu"]


@pytest.mark.parametrize("name", OURS)
def test_every_variable_is_a_setting_and_has_a_value_it_accepts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = settings_of(OURS[name])
    assert [key for key in given if key not in Settings.model_fields] == []
    for key, value in given.items():
        monkeypatch.setenv(f"FEDARENA_{key.upper()}", value)
    settings = Settings()
    assert settings.database.startswith("postgresql+psycopg://")
    assert settings.broker.startswith("redis://")


@pytest.mark.parametrize("name", OURS)
def test_every_command_is_a_fedarena_command_that_parses(name: str) -> None:
    program, command, *arguments = OURS[name]["command"]
    assert program == "fedarena"
    group: Any = typer.main.get_command(command_line)
    assert command in group.commands
    group.commands[command].make_context(command, list(arguments))


def test_the_health_check_asks_a_route_and_the_port_that_the_web_server_serves(tmp_path: Path) -> None:
    address = urlsplit(re.findall(r"http://[^']+", " ".join(OURS["web"]["healthcheck"]["test"]))[0])
    given = settings_of(OURS["web"])
    assert (address.hostname, address.port) == (given["host"], int(given["port"]))
    client = TestClient(create_app(Settings(home=tmp_path)), base_url=f"http://{address.netloc}")
    assert client.get(address.path).headers["content-type"] == "application/json"
    assert client.get(address.path).status_code != 404


def test_the_images_own_health_check_is_that_of_the_web_server() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert OURS["web"]["healthcheck"]["test"][-1] in text


def test_the_two_servers_are_where_the_settings_look_for_them() -> None:
    for name, variable, inside in (("redis", "broker_url", 6379), ("postgres", "database_url", 5432)):
        host, published, container = THEIRS[name]["ports"][0].split(":")
        for service in OURS.values():
            address = urlsplit(settings_of(service)[variable])
            assert (address.hostname, address.port) == (host, int(published))
        assert int(container) == inside


def test_the_credentials_of_the_urls_are_those_of_the_servers() -> None:
    database, broker = (urlsplit(settings_of(OURS["web"])[name]) for name in ("database_url", "broker_url"))
    postgres = THEIRS["postgres"]["environment"]
    assert (database.username, database.password) == (postgres["POSTGRES_USER"], postgres["POSTGRES_PASSWORD"])
    assert database.path == f"/{postgres['POSTGRES_DB']}"
    assert broker.password == THEIRS["redis"]["environment"]["REDIS_PASSWORD"]


def test_no_port_is_published_beyond_this_machine() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert [port for port in published if not port.startswith("127.0.0.1:")] == []


def test_all_our_services_run_the_same_image_on_the_hosts_network() -> None:
    assert len({service["image"] for service in OURS.values()}) == 1
    assert {service["network_mode"] for service in OURS.values()} == {"host"}


def test_every_service_of_ours_has_a_host_name_of_its_own() -> None:
    """On the host's network all would have the host's, and workers are told apart by host and process number."""
    assert len({service["hostname"] for service in OURS.values()}) == len(OURS)


@pytest.mark.parametrize("name", SERVICES)
def test_no_service_may_write_its_root_or_has_capabilities(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]


@pytest.mark.parametrize("name", OURS)
def test_docker_waits_longer_than_a_stopping_service_needs(name: str) -> None:
    grace = float(settings_of(OURS[name]).get("grace_seconds", Settings.model_fields["grace_seconds"].default))
    assert int(OURS[name]["stop_grace_period"].removesuffix("s")) >= grace + 10


def test_volumes_are_declared() -> None:
    used = {volume.split(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])}
    assert {name for name in used if not name.startswith((".", os.sep))} == set(COMPOSE["volumes"])


def test_every_variable_of_the_file_is_in_the_example_of_env() -> None:
    used = {match[1] for match in VARIABLE.finditer((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))}
    assert used == set(re.findall(r"^(\w+)=", EXAMPLE, re.MULTILINE))


def test_the_image_runs_as_a_user_without_rights_and_as_a_command_that_exists() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert re.findall(r"^USER (\w+)$", text, re.MULTILINE) == ["fedarena"]
    command = re.findall(r'^CMD \["fedarena", "(\w+)"\]$', text, re.MULTILINE)
    group: Any = typer.main.get_command(command_line)
    assert [name for name in command if name in group.commands] == command == ["serve"]
