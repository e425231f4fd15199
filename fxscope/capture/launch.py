"""Start the program that is recorded, stand aside while it runs, and end as it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

from fxscope.capture.options import Options
from fxscope.names import ENV_DIR, ENV_OPTIONS

BOOTSTRAP = os.path.join(os.path.dirname(os.path.abspath(__file__)), "bootstrap")

# Signals that we pass on. Stopping and continuing (Ctrl-Z, fg) act on us as on the program, by the terminal.
_FORWARDED = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGWINCH")


def recording_environment(folder: str, options: Options) -> dict[str, str]:
    """The environment that makes a Python process, and all its children, record into ``folder``."""
    env = dict(os.environ)
    env[ENV_DIR] = folder
    env[ENV_OPTIONS] = options.to_json()
    before = env.get("PYTHONPATH")
    # Without a value there must be no trailing separator: Python would read it as the current directory.
    env["PYTHONPATH"] = BOOTSTRAP + os.pathsep + before if before else BOOTSTRAP
    return env


def run_program(command: list[str], env: dict[str, str]) -> int:
    """Run with our own standard streams; returns the exit code, 128+n where signal n ended it.

    A signal that the terminal sends (Ctrl-C) reaches the program by itself, as it is in the same process group; one that
    somebody sends to us alone is passed on.

    Raises:
        OSError: The program cannot be started.
    """
    wanted = {getattr(signal, name) for name in _FORWARDED if hasattr(signal, name)}
    if not hasattr(signal, "sigwaitinfo"):
        return _run_plainly(command, env)
    waited = wanted | {signal.SIGCHLD}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, waited)
    # Where whoever started us ignores SIGCHLD, none would come and the exit code would be lost; the program ignores it still.
    ignored = signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN
    if ignored:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)

    def restore() -> None:
        """In the child; subprocess itself undoes Python's own SIGPIPE and SIGXFSZ."""
        if ignored:
            signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)

    try:
        child = subprocess.Popen(command, env=env, preexec_fn=restore)
        while child.poll() is None:
            info = signal.sigwaitinfo(waited)
            if info.si_signo != signal.SIGCHLD and info.si_code <= 0:  # <= 0: from a process, > 0: from the kernel
                child.send_signal(info.si_signo)
    finally:
        # A Ctrl-C meant for the program is still pending here; it must not kill the summary.
        while signal.sigtimedwait(wanted, 0) is not None:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return exit_status(child.returncode)


def _run_plainly(command: list[str], env: dict[str, str]) -> int:
    """The same where the system cannot say who sent a signal: SIGINT is left to the terminal, SIGTERM passed on."""
    child = subprocess.Popen(command, env=env)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda number, _frame: child.send_signal(number))
    return exit_status(child.wait())


def exit_status(returncode: int) -> int:
    """A shell's exit code: 128+n for signal n."""
    return 128 - returncode if returncode < 0 else returncode


def ignores_environment(command: list[str]) -> str | None:
    """The flag by which a Python command line ignores PYTHONPATH or sitecustomize, so that nothing can be recorded; else None."""
    if not os.path.basename(command[0]).startswith("python"):
        return None
    arguments = iter(command[1:])
    for argument in arguments:
        if not argument.startswith("-") or argument == "-":
            return None
        if argument.startswith("--"):
            continue
        for place, letter in enumerate(argument[1:], start=2):
            if letter in "IES":
                return f"-{letter}"
            if letter in "mc":
                return None
            if letter in "WX":  # with a value, in the same argument or in the next
                if place == len(argument):
                    next(arguments, None)
                break
    return None


def python_command(target: list[str]) -> list[str]:
    """The command for a script with arguments, or for ``-m module``: this Python, and nothing else."""
    return [sys.executable, *target]
