"""The ``fxscope`` command: a group whose verbs are imported when they are called."""

from __future__ import annotations

import errno
import importlib
import io
import os
import re
import signal
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import click

from fxscope import __version__
from fxscope.errors import FxscopeError, MissingError, UsageError
from fxscope.names import ENV_DEBUG

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

_FULL = (errno.ENOSPC, errno.EDQUOT)
_JUDGES = frozenset(
    {"check", "diff", "passes", "bench", "stages", "try"}
)  # their exit code is what they are called for

# Verb -> one line of help. The module module_of(verb) owns `command`, and `json_schema` where it prints JSON.
VERBS = {
    "run": "Run a program unchanged and record what torch.compile does to it.",
    "open": "Open the terminal app on a recording, a TORCH_TRACE folder or one log.",
    "report": "What happened: frames, graphs, breaks, recompiles, failures, compile time.",
    "diagnose": "What is wrong, in order of cost, with the fix.",
    "check": "Fail when budgets for breaks, recompiles or compile time are exceeded (for CI).",
    "diff": "Compare two recordings.",
    "try": "Re-run a program with one change at a time and show what it did.",
    "stages": "Say which stage of the compiler changes a program's results.",
    "index": "Keep the index of large logs beside them, so that they open faster.",
    "ranks": "Compare the ranks of a distributed run: who compiled when, and who waited.",
    "export": "Write a graph or timeline as dot, svg, json, fx, repro or perfetto.",
    "passes": "Step passes over a recorded graph, with diffs and numeric checks.",
    "bench": "Run one graph under several executors, side by side.",
    "npu": "Assemble, run, report and sweep NPU programs.",
    "annotate": "The source with breaks, guards and recompiles in its margin.",
    "events": "List the raw events of a log.",
    "artifacts": "Write the artifacts of a log out as files.",
    "bundle": "Pack one graph as a bug report.",
    "scrub": "Copy a log without source text, paths, names or hosts.",
    "schema": "Print the JSON Schema of a verb's --json output.",
}


def module_of(verb: str) -> str:
    """Name of the module that owns a verb; ``try`` is a keyword of Python's."""
    return f"fxscope.cli.{'try_' if verb == 'try' else verb}"


class LazyGroup(click.Group):
    """A click group that knows its verbs' names and help without importing them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The verbs, in the order of VERBS."""
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the verb's module."""
        if cmd_name not in VERBS:
            return None
        command: click.Command = importlib.import_module(module_of(cmd_name)).command
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the verbs without importing any."""
        with formatter.section("Commands"):
            formatter.write_dl(list(VERBS.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Verbs and options for a shell, without importing any verb."""
        from click.shell_completion import CompletionItem

        verbs = [CompletionItem(verb, help=text) for verb, text in VERBS.items() if verb.startswith(incomplete)]
        return verbs + click.Command.shell_complete(self, ctx, incomplete)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the nearest verb when one is misspelt."""
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            import difflib

            near = difflib.get_close_matches(args[0], VERBS, 1)
            if near:
                raise click.UsageError(f"{error.message.rstrip('.')}. Did you mean '{near[0]}'?", ctx) from error
            raise


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="""\b
Examples:
  fxscope run train.py                              # the app opens on the live run
  fxscope run --headless -o run.fxscope train.py    # a summary at the end
  fxscope diagnose run.fxscope                      # what is wrong, and the fix

\b
Exit codes: 0 fine; 1 a check or comparison failed; 2 wrong usage; 3 the input
cannot be read; 4 something needed is missing; 70 a fault of fxscope itself;
130 interrupted (Ctrl-C), so no verdict was reached.
`run` exits with the program's own code (128+n where signal n ended it).""",
)
@click.version_option(__version__, prog_name="fxscope")
def cli() -> None:
    """See what torch.compile did to a program, what is wrong with it, and step through its graphs."""


def _mend_fish() -> None:
    """Click's script for fish ends a verb's help at its first comma."""
    from click.shell_completion import FishComplete

    FishComplete.source_template = FishComplete.source_template.replace('string split ","', 'string split -m 1 ","')


def main() -> NoReturn:
    """Run the command line; a FxscopeError becomes one line on standard error and its exit code."""
    _open_closed()
    try:
        code = _run()
        sys.stdout.flush()  # while it can be told that there is no space
    except FxscopeError as error:
        if os.environ.get(ENV_DEBUG):
            raise
        print(f"fxscope: {error}", file=sys.stderr)
        _drop_output()
        sys.exit(error.exit_code)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        print("fxscope: interrupted", file=sys.stderr)
        _drop_output()
        sys.exit(128 + signal.SIGINT)
    except BrokenPipeError:
        # The reader of a pipe (head, less) went away: not an error of ours.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        if os.environ.get(ENV_DEBUG) or not (error.errno in _FULL or _is_users(error.filename)):
            _internal(error)
        # No space, or a file that the user named: no such folder, no permission.
        where = f"{os.fsdecode(error.filename)}: " if error.filename else ""
        print(f"fxscope: {where}{error.strerror}", file=sys.stderr)
        _drop_output()
        sys.exit(UsageError.exit_code)
    except ModuleNotFoundError as error:
        needed = _not_installed(error.name or "")
        if os.environ.get(ENV_DEBUG) or needed is None:
            _internal(error)
        print(f"fxscope: {error.name} is not installed: pip install '{needed}'", file=sys.stderr)
        _drop_output()
        sys.exit(MissingError.exit_code)
    except Exception as error:  # noqa: BLE001 - DESIGN 6: no traceback at a user, unless FXSCOPE_DEBUG=1
        _internal(error)
    sys.exit(code)


def _run() -> int:
    """Parse and call. Click's own ``main`` would say 1, a failed check, where a reader left or Ctrl-C was pressed."""
    if "_FXSCOPE_COMPLETE" in os.environ:
        _mend_fish()
        cli.main(prog_name="fxscope")
    verb = next((argument for argument in sys.argv[1:] if not argument.startswith("-")), "")
    if verb in _JUDGES and isinstance(sys.stdout.buffer, io.BufferedWriter | io.FileIO):  # not a test's
        outlet = _Outlet(sys.stdout.fileno(), "w", closefd=False)
        unbuffered = bool(getattr(sys.stdout, "write_through", False))  # python -u, PYTHONUNBUFFERED
        sys.stdout = io.TextIOWrapper(
            outlet if unbuffered else io.BufferedWriter(outlet),
            encoding=sys.stdout.encoding,
            errors=sys.stdout.errors,
            line_buffering=sys.stdout.isatty(),
            write_through=unbuffered,
        )
    try:
        with cli.make_context("fxscope", sys.argv[1:]) as context:
            cli.invoke(context)
    except click.exceptions.Exit as left:
        return left.exit_code
    return 0


class _Outlet(io.FileIO):
    """Standard output of a verb whose exit code is a verdict: when its reader leaves, the verdict is still reached."""

    def write(self, data: Any, /) -> int:
        """Write; nowhere, once nobody reads."""
        try:
            return super().write(data)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            return len(data)


def _open_closed() -> None:
    """Where our output or error stream was closed (``>&-``), what we say goes nowhere.

    The file takes the closed number, so that no log that we open gets it; a program that we start has it closed as before.
    """
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:
            nowhere = open(os.devnull, "r" if name == "stdin" else "w")  # noqa: SIM115 - for as long as we run
            setattr(sys, name, nowhere)
            setattr(sys, f"__{name}__", nowhere)


def _is_users(path: object) -> bool:
    """Whether a path is one that a user may have named; a file of fxscope's own that is missing is our fault."""
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
    return isinstance(path, str | bytes) and not os.path.abspath(os.fsdecode(path)).startswith(ours)


def _not_installed(name: str) -> str | None:
    """What pip is asked for where a package that fxscope declares is absent; None where the module is anything else.

    Every declared package is imported by its own name.
    """
    from importlib import metadata, util

    if (
        not name or "." in name or util.find_spec(name) is not None
    ):  # a part of a package that is there: another version's
        return None
    try:
        declared = metadata.requires("fxscope") or []
    except metadata.PackageNotFoundError:  # run from a folder on PYTHONPATH: nothing is declared
        declared = []
    return next((text.partition(";")[0].strip() for text in declared if re.split(r"[^\w-]", text)[0] == name), None)


def _drop_output() -> None:
    """What standard output cannot take any more, Python would try to write once again at its end, and exit with 120."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _internal(error: Exception) -> NoReturn:
    """A fault of ours: one line and exit code 70, or the traceback where that was asked for."""
    if os.environ.get(ENV_DEBUG):
        raise error
    print(
        f"fxscope: internal error: {type(error).__name__}: {error} (set {ENV_DEBUG}=1 for the traceback)",
        file=sys.stderr,
    )
    sys.exit(70)
