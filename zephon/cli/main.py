"""The command line: `zephon index | pack | run | verify | state`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, NoReturn

import typer

from zephon import __version__
from zephon.cli import index, pack, run, state, verify
from zephon.cli.terminal import note
from zephon.errors import ZephonError

EXIT_ERROR = 2

app = typer.Typer(
    name="zephon",
    help="Streams, tokenizes, mixes and packs training data in an order that no topology, backend or restart changes.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _version(asked: bool) -> None:
    if asked:
        sys.stdout.write(f"zephon {__version__}\n")
        raise typer.Exit


class _Notes(logging.Handler):
    """Prints what the library has to say, each line once: a command may make many loaders."""

    def __init__(self) -> None:
        super().__init__()
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        line = record.getMessage()
        if line not in self._said:
            self._said.add(line)
            # A command's results don't depend on somebody's reading this.
            with suppress(OSError, AttributeError):
                note(line)


@app.callback()
def root(
    *,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Take the options that stand before a command."""


app.command("index")(index.command)
app.command("pack")(pack.command)
app.command("run")(run.command)
app.command("verify")(verify.command)
app.add_typer(state.app, name="state")


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit: 0 done, 1 a difference was found, 2 an error, 130 interrupted."""
    notes = _Notes()
    logging.getLogger("zephon").addHandler(notes)
    try:
        sys.exit(app(arguments))
    except ZephonError as error:
        sys.stderr.write(f"zephon: {error}\n")
        sys.exit(EXIT_ERROR)
    except KeyboardInterrupt:
        sys.exit(130)
    finally:
        logging.getLogger("zephon").removeHandler(notes)


if __name__ == "__main__":
    main()
