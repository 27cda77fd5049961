"""The command line. Commands are imported when they are called, so that each starts fast."""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

    import click

# As process 1 of a container the kernel drops a signal that nobody handles: until the server's own
# handler is there, a SIGTERM must still end the process (case P03).
TERMINATED = 128 + signal.SIGTERM


def _terminate(_signal: int, _frame: FrameType | None) -> None:
    sys.exit(TERMINATED)


COMMANDS = {
    "serve": "Serve KEDA's external scaler contract, metrics and the page.",
    "demo": "Show the scaler at work on a recorded fleet, or on your own vLLM.",
    "check": "Check ScaledObject manifests.",
    "explain": "Print the current decision of a running scaler, and why.",
    "record": "Record /metrics of vLLM servers.",
}


def main() -> None:
    """Run the command line."""
    signal.signal(signal.SIGTERM, _terminate)
    # gRPC's core writes lines of its own to stderr, one for each failed handshake, into our log.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    command_line()()


def command_line() -> click.Group:
    """Return the group of all commands."""
    import click  # noqa: PLC0415 - after the signal handler

    import scaler  # noqa: PLC0415

    class Commands(click.Group):
        """Imports a command when it is asked for."""

        def list_commands(self, ctx: click.Context) -> list[str]:
            return list(COMMANDS)

        def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
            if cmd_name not in COMMANDS:
                return None
            command = getattr(import_module(f"scaler.commands.{cmd_name}"), cmd_name)
            assert isinstance(command, click.Command)  # noqa: S101 - our own modules
            return command

        def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
            with formatter.section("Commands"):
                formatter.write_dl(list(COMMANDS.items()))

    return click.version_option(scaler.__version__, prog_name="vllm-scaler")(
        Commands(
            name="vllm-scaler",
            help="A KEDA external scaler and Prometheus exporter for fleets of vLLM servers.",
            context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
        )
    )


if __name__ == "__main__":
    main()
