"""Flags and environment into settings; the process itself, from start to SIGTERM."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
from click.testing import CliRunner

import scaler.commands.serve as module
from scaler.__main__ import COMMANDS, command_line
from scaler.config.settings import Address, ScrapeSettings, Settings, TlsFiles

if TYPE_CHECKING:
    from collections.abc import Iterator


def settings_of(*arguments: str, env: dict[str, str] | None = None) -> Settings:
    """The settings that ``serve`` would run with."""
    found: list[Settings] = []

    async def stop_here(settings: Settings) -> None:
        found.append(settings)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "serve_until_signal", stop_here)
        patch.setattr(module, "configure_logging", lambda *_: None)
        result = CliRunner().invoke(module.serve, arguments, env=env, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return found[0]


def refusal_of(*arguments: str) -> str:
    """What ``serve`` says instead of serving."""
    result = CliRunner().invoke(module.serve, arguments)
    assert result.exit_code == 2
    return result.output


def test_defaults_are_those_of_the_settings() -> None:
    assert settings_of() == Settings()


def test_every_flag_is_a_setting(tmp_path: Path) -> None:
    for name in ("cert", "key", "ca", "token"):
        (tmp_path / name).write_text(name)
    cert, key, ca, token = (tmp_path / name for name in ("cert", "key", "ca", "token"))

    settings = settings_of(
        "--grpc-address=[::1]:1", "--http-address=:2", "--page-address=0.0.0.0:3",
        "--scrape-interval=500ms", "--scrape-timeout=250ms", "--scrape-concurrency=3",
        f"--scrape-ca-file={ca}", "--scrape-server-name=vllm", "--scrape-insecure-skip-verify",
        f"--scrape-token-file={token}", "--allow-endpoints=10.*", "--allow-endpoints=*.svc",
        f"--tls-cert={cert}", f"--tls-key={key}", f"--tls-client-ca={ca}",
        f"--state-dir={tmp_path}", "--max-triggers=7", "--registration-ttl=1m",
        "--log-format=console", "--log-level=debug", "--pod-metrics",
    )  # fmt: skip

    assert settings == Settings(
        grpc_address=Address("::1", 1),
        http_address=Address("0.0.0.0", 2),
        page_address=Address("0.0.0.0", 3),
        scrape=ScrapeSettings(
            interval=0.5,
            timeout=0.25,
            concurrency=3,
            ca_file=ca,
            server_name="vllm",
            insecure_skip_verify=True,
            token_file=token,
        ),
        allow_endpoints=("10.*", "*.svc"),
        tls=TlsFiles(cert, key, ca),
        state_dir=tmp_path,
        log_format="console",
        log_level="debug",
        max_triggers=7,
        registration_ttl=60.0,
        pod_metrics=True,
    )


def test_every_flag_has_its_variable() -> None:
    settings = settings_of(
        env={
            "VLLM_SCALER_GRPC_ADDRESS": "127.0.0.1:9",
            "VLLM_SCALER_SCRAPE_INTERVAL": "2s",
            "VLLM_SCALER_ALLOW_ENDPOINTS": "10.* *.svc",
            "VLLM_SCALER_LOG_LEVEL": "error",
        }
    )
    named = [option.envvar for option in module.serve.params if isinstance(option, click.Option)]

    assert settings.grpc_address == Address("127.0.0.1", 9)
    assert settings.scrape.interval == 2.0
    assert settings.allow_endpoints == ("10.*", "*.svc")
    assert settings.log_level == "error"
    assert all(str(name).startswith("VLLM_SCALER_") for name in named)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--grpc-address=6000x", "'6000x' must be HOST:PORT with a port from 0 to 65535"),
        ("--grpc-address=a:70000", "'a:70000' must be HOST:PORT with a port from 0 to 65535"),
        ("--http-address=::1:80", "'::1:80': write an IPv6 host in brackets, as [::1]:6000"),
        ("--scrape-interval=soon", "'soon' must be a duration such as 90s, 4m, 1h30m, 250ms"),
        ("--scrape-interval=1ms", "'1ms' must be at least 50ms"),
        ("--tls-cert=/etc/hostname", "--tls-cert and --tls-key come together"),
        ("--tls-client-ca=/etc/hostname", "--tls-client-ca needs --tls-cert and --tls-key"),
        ("--tls-key=/nowhere", "File '/nowhere' does not exist"),
        ("--log-level=loud", "'loud' is not one of"),
    ],
)
def test_a_bad_flag_is_named_with_what_is_allowed(argument: str, message: str) -> None:
    assert message in " ".join(refusal_of(argument).split())


def test_the_command_line_lists_its_commands_without_importing_them() -> None:
    result = CliRunner().invoke(command_line(), ["--help"])

    assert result.exit_code == 0
    assert all(name in result.output for name in COMMANDS)


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_help(name: str) -> None:
    result = CliRunner().invoke(command_line(), [name, "--help"])

    assert result.exit_code == 0
    assert f"Usage: vllm-scaler {name} [OPTIONS]" in result.output


def test_an_unknown_command_is_named() -> None:
    result = CliRunner().invoke(command_line(), ["sevre"])

    assert result.exit_code == 2
    assert "sevre" in result.output


# --- the process ----------------------------------------------------------------------------------


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture
def serving() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A running ``vllm-scaler serve`` and its HTTP port."""
    port = free_port()
    flags = ["--grpc-address=127.0.0.1:0", f"--http-address=127.0.0.1:{port}"]
    flags += ["--page-address=127.0.0.1:0"]
    process = subprocess.Popen(
        [sys.executable, "-m", "scaler", "serve", *flags],
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": os.environ["PATH"]},
        cwd=Path(__file__).parents[2],
    )
    try:
        yield process, port
    finally:
        process.kill()
        process.communicate(timeout=10)


def first_event(process: subprocess.Popen[str]) -> dict[str, Any]:
    """The first log line."""
    assert process.stderr is not None
    event: dict[str, Any] = json.loads(process.stderr.readline())
    return event


def test_p03_sigterm_ends_it_cleanly(serving: tuple[subprocess.Popen[str], int]) -> None:
    process, port = serving
    event = first_event(process)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
        ready = answer.status
    process.send_signal(signal.SIGTERM)

    assert event["event"] == "gRPC serving"
    assert ready == 200
    assert process.wait(5) == 0


def test_p03_a_sigterm_before_it_serves_ends_it_too() -> None:
    process = subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "scaler", "serve", "--grpc-address=127.0.0.1:0"],
        stderr=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
    )
    assert process.stderr is not None
    for line in process.stderr:  # the moment click is there the handler is, and nothing else yet
        if line.rstrip().endswith("click.exceptions"):
            break
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=10)

    assert process.returncode == 143


def test_p09_a_second_instance_fails_and_names_the_port(
    serving: tuple[subprocess.Popen[str], int],
) -> None:
    process, port = serving
    first_event(process)
    second = subprocess.run(
        [
            *(sys.executable, "-m", "scaler", "serve", "--grpc-address=127.0.0.1:0"),
            *(f"--http-address=127.0.0.1:{port}", "--page-address=127.0.0.1:0"),
        ],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
        cwd=Path(__file__).parents[2],
    )

    assert second.returncode == 1
    assert f"127.0.0.1:{port}" in second.stderr
    assert "Traceback" not in second.stderr
