"""``fxscope run``: start a program unchanged and record what torch.compile does to it."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Any

import click
from click.shell_completion import CompletionItem

from fxscope.errors import MissingError, UnreadableError, UsageError

EPILOG = """\b
Examples:
  fxscope run train.py --epochs 3
  fxscope run -o out.fxscope --headless -m mypackage.train
  fxscope run -- torchrun --nproc-per-node 2 train.py
  fxscope run -- pytest -x tests
"""


LAUNCHER = "fxscope.run.launcher"  # in a context's meta: the target came after "--", so it is a command


def complete_file(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Offer files where a program is expected: click would offer nothing for arguments that it leaves alone."""
    return [CompletionItem(incomplete, type="file")]


BACKEND = click.option(
    "--backend", metavar="B", help="Use this backend in every torch.compile, whatever the program chose."
)
MODE = click.option("--mode", metavar="M", help="Use this mode in every torch.compile.")
DYNAMIC = click.option("--dynamic/--no-dynamic", default=None, help="Use this dynamic= in every torch.compile.")
CONFIG = click.option(
    "--config",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="Force a torch._dynamo (or torch._inductor) setting in every thread, e.g. recompile_limit=64. Repeatable.",
)
MODULE = click.option("-m", "module", metavar="MODULE", help="Run a module, as python -m does.")
TARGET = click.argument("target", nargs=-1, type=click.UNPROCESSED, shell_complete=complete_file)


class RunCommand(click.Command):
    """Options of ours end where the program begins: at a script, at ``-m MODULE``, or at ``--``."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Put a ``--`` where the program begins, so that no option of the program's is taken for one of ours."""
        takes_value = {
            name for parameter in self.params if isinstance(parameter, click.Option) for name in parameter.opts
        } - {name for parameter in self.params if getattr(parameter, "is_flag", False) for name in parameter.opts}
        place = 0
        while place < len(args):
            argument = args[place]
            if argument == "--":
                ctx.meta[LAUNCHER] = True
                return super().parse_args(ctx, args)
            if not argument.startswith("-") or argument == "-":
                break
            place += 2 if argument in takes_value else 1
            if argument.startswith("-m"):
                break
        return super().parse_args(ctx, [*args[:place], "--", *args[place:]])


@click.command(
    cls=RunCommand,
    epilog=EPILOG,
    short_help="Run a program unchanged and record it.",
)
@click.option(
    "-o",
    "--output",
    metavar="DIR",
    type=click.Path(),
    help="Folder of the recording; a job that is started again takes DIR-restart1, ... Default: ./<script>-<time>.fxscope",
)
@click.option("--headless", is_flag=True, help="No terminal app: the program owns the terminal. Implied in a pipe.")
@BACKEND
@MODE
@DYNAMIC
@CONFIG
@click.option("--save-tensors", is_flag=True, help="Keep the inputs and constants of every graph (safetensors).")
@click.option("--time-launches", is_flag=True, help="Sample how long compiled forwards and backwards take.")
@click.option("--fusion-log", is_flag=True, help="Keep Inductor's fusion decisions.")
@click.option("--quiet", is_flag=True, help="No summary at the end.")
@MODULE
@TARGET
@click.pass_context
def command(
    ctx: click.Context,
    output: str | None,
    headless: bool,
    backend: str | None,
    mode: str | None,
    dynamic: bool | None,
    settings: tuple[str, ...],
    save_tensors: bool,
    time_launches: bool,
    fusion_log: bool,
    quiet: bool,
    module: str | None,
    target: tuple[str, ...],
) -> None:
    """Run TARGET (a script with its arguments, -m MODULE, or -- LAUNCHER ...) and record what torch.compile does to it.

    The program behaves as without us: same output, exit code, signals and results. fxscope exits with its exit code.
    """
    from fxscope.capture.options import Options
    from fxscope.capture.session import new_session

    options = Options(backend, mode, dynamic, parse_settings(settings), save_tensors, time_launches, fusion_log)
    if save_tensors:
        require_safetensors()
    program, script = program_command(module, target, ctx.meta.get(LAUNCHER, False))
    folder = make_folder(output, script)
    if folder is None:
        ctx.exit(start(program, dict(os.environ)))
    written = [*(() if module is None else ("-m", module)), *target]
    session = new_session(written, program, script, options.changed())
    if headless or not sys.stdout.isatty():
        ctx.exit(record_headless(program, folder, options, session, quiet))
    ctx.exit(record_in_app(program, folder, options, session))


def program_command(module: str | None, target: tuple[str, ...], launcher: bool) -> tuple[list[str], str]:
    """The process to start, and the name of what runs.

    Raises:
        UsageError: Nothing to run.
        UnreadableError: The script or launcher is not there.
    """
    from fxscope.capture.launch import python_command

    if module is not None:
        return python_command(["-m", module, *target]), module
    if not target:
        raise UsageError("nothing to run: give a script, -m MODULE, or -- LAUNCHER ... (fxscope run --help)")
    first = target[0]
    refuse_recording(first)
    # torchrun and its like lie beside this interpreter, also where the environment was not activated.
    found = first if shutil.which(first) else shutil.which(first, path=os.path.dirname(sys.executable))
    if launcher and found is not None:
        return [found, *target[1:]], first
    if not os.path.exists(first) and (first != "-" or launcher):  # "-": Python reads the program from standard input
        hint = "" if launcher or found is None else f"; to run the command write: fxscope run -- {first}"
        raise UnreadableError(f"no such script{' or command' if launcher else ''}: {first}{hint}")
    return python_command(list(target)), first


def refuse_recording(path: str) -> None:
    """Say in one line that a recording or a log is no program.

    Raises:
        UsageError: It is one.
    """
    from fxscope.names import LOG_PREFIX, SESSION_FILE
    from fxscope.trace.folder import holds_trace

    if os.path.isfile(path):
        recorded = os.path.basename(path).startswith(LOG_PREFIX) or holds_trace(path)
    else:
        recorded = os.path.isfile(os.path.join(path, SESSION_FILE))
    if recorded:
        raise UsageError(f"{path} is a recording and no program: name the script that was recorded, with its arguments")


def parse_settings(settings: tuple[str, ...]) -> dict[str, Any]:
    """``NAME=VALUE`` pairs, values as Python literals where they are ones, else as text.

    Raises:
        UsageError: No ``=`` in one, or a value that cannot be handed on (a set, bytes).
    """
    import ast
    import json

    values: dict[str, Any] = {}
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals or not name:
            raise UsageError(f"--config {setting}: write NAME=VALUE, e.g. --config recompile_limit=64")
        try:
            values[name] = ast.literal_eval(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            values[name] = {"true": True, "false": False, "none": None}.get(text.lower(), text)
        try:
            json.dumps(values[name])
        except (TypeError, ValueError):
            raise UsageError(f"--config {setting}: write a number, a text, a list or a dict") from None
    return values


def require_safetensors() -> None:
    """Raises MissingError where --save-tensors cannot work."""
    import importlib.util

    if importlib.util.find_spec("safetensors") is None:
        raise MissingError("--save-tensors needs safetensors: pip install 'fxscope[tensors]'")


def make_folder(output: str | None, script: str) -> str | None:
    """Make the recording's folder, and say where it is not the one that was asked for.

    Returns:
        The folder; None for a task of a job which cannot make it: the job shall not end for that.

    Raises:
        UsageError: It holds something that our job did not begin, or cannot be made.
    """
    from fxscope.capture.launchers import is_unnamed_task, task
    from fxscope.capture.session import new_folder, place_of

    try:
        folder = place_of(output) if output else new_folder(script)
    except OSError as error:
        problem = f"cannot record into {error.filename or output}: {error.strerror}"
        if task() is not None:
            print(
                f"fxscope: {problem}: this task runs unrecorded, and without what the options of run change",
                file=sys.stderr,
            )
            return None
        raise UsageError(f"{problem}; choose another place with -o") from error
    if folder is None:
        hint = (
            "; tasks of one job share a folder only where the launcher names the job (torchrun --standalone or --rdzv-id): else put "
            "the launcher behind `fxscope run --`, or give each task an -o of its own"
        )
        free = "choose another place with -o, or remove it"
        raise UsageError(f"{output} is not empty; {free}{hint if is_unnamed_task() else ''}")
    if output and folder != os.path.abspath(output):
        place = os.path.relpath(folder)
        print(f"fxscope: {output} is of an earlier start of this job: recording to {place}", file=sys.stderr)
    return folder


def start(program: list[str], environment: dict[str, str]) -> int:
    """Run it in our terminal; its exit code.

    Raises:
        UnreadableError: It cannot be started.
    """
    from fxscope.capture.launch import run_program

    try:
        return run_program(program, environment)
    except OSError as error:
        raise UnreadableError(f"cannot run {program[0]}: {error.strerror}") from error


def record_headless(program: list[str], folder: str, options: Any, session: dict[str, Any], quiet: bool) -> int:
    """Run in our terminal and print one summary to standard error."""
    from fxscope.capture.launch import ignores_environment, recording_environment
    from fxscope.capture.session import write_session

    write_or_warn(write_session, folder, session)
    code = start(program, recording_environment(folder, options))
    finish(folder, session, code)
    flag = ignores_environment(program)
    if flag is not None:
        print(
            f"fxscope: not recorded: python {flag} ignores PYTHONPATH or sitecustomize, by which we attach",
            file=sys.stderr,
        )
    elif not quiet:
        print_summary(folder)
    return code


def record_in_app(program: list[str], folder: str, options: Any, session: dict[str, Any]) -> int:
    """Run in a pseudo-terminal inside the terminal app."""
    from fxscope_tui.app import run_live

    from fxscope.capture.launch import recording_environment
    from fxscope.capture.session import write_session

    write_or_warn(write_session, folder, session)
    environment = recording_environment(folder, options)
    return run_live(program, environment, folder, lambda code: finish(folder, session, code))


def finish(folder: str, session: dict[str, Any], code: int) -> None:
    """Rewrite session.json with how the program ended."""
    from fxscope.capture.session import end_session

    write_or_warn(end_session, folder, session, code)


def write_or_warn(write: Any, folder: str, *arguments: Any) -> None:
    """Write to the recording; a folder that is full or gone costs one line, never the program's exit code."""
    try:
        write(folder, *arguments)
    except OSError as error:
        print(f"fxscope: cannot write session.json in {folder}: {error.strerror}", file=sys.stderr)


def print_summary(folder: str) -> None:
    """What cost most, on standard error. Whatever goes wrong here costs one line, never the program's exit code."""
    try:
        from fxscope.recording.recording import open_recording
        from fxscope.report.summary import summary_line

        print(summary_line(open_recording(folder)), file=sys.stderr)
    except Exception as error:  # noqa: BLE001 - the program has ended well or badly by itself; its code is ours
        print(f"fxscope: no summary: {type(error).__name__}: {error}", file=sys.stderr)
    print(f"fxscope: recorded to {os.path.relpath(folder)}", file=sys.stderr)
