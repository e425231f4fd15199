"""What several diagnoses need to know of a recording, computed once."""

from __future__ import annotations

import json
import os
import shlex
from collections import defaultdict
from functools import cached_property
from typing import TYPE_CHECKING, Any

import msgspec

from fxscope.names import EVENT_EAGER, EVENT_LIMIT, NOTEBOOK_KERNEL
from fxscope.recording.records import Artifact, Compile, ShapeEvent
from fxscope.recording.state import split_number
from fxscope.recording.userline import is_user_file

if TYPE_CHECKING:
    from fxscope.recording.recording import Recording


class EagerCalls(msgspec.Struct, kw_only=True):
    """Calls of one function around the recompile limit.

    Attributes:
        before: Calls that compiled entries took before it; None where nobody counted.
        eager: Calls that ran eager since; None where nobody counted.
        counting: The recorder could count them.
    """

    before: int | None = None
    eager: int | None = None
    counting: bool = False


def _place(row: dict[str, Any]) -> tuple[str, int]:
    line = row.get("line")
    return str(row.get("file") or ""), line if isinstance(line, int) else 0


class Context:
    """A recording and indexes over it.

    Attributes:
        recording: The recording.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording

    @cached_property
    def by_key(self) -> dict[str, Compile]:
        """Last attempt of every compile key."""
        return {compile_.key: compile_ for compile_ in self.recording.compiles}

    @cached_property
    def shapes(self) -> dict[str, list[ShapeEvent]]:
        """Symbolic-shape events by compile key."""
        found: dict[str, list[ShapeEvent]] = defaultdict(list)
        for event in getattr(self.recording, "shape_events", []):
            found[event.compile_key].append(event)
        return found

    def dynamo_config(self, compile_: Compile | None) -> dict[str, Any]:
        """Dynamo's settings in force at one compile, {} where the log has none."""
        if compile_ is None:
            return {}
        metrics = compile_.metrics if "dynamo_config" in compile_.metrics else self.recording.metrics(compile_)
        raw = metrics.get("dynamo_config")
        if isinstance(raw, str):
            try:
                raw = json.loads(raw)
            except ValueError:
                return {}  # an older or torn record: the diagnosis does without
        return raw if isinstance(raw, dict) else {}

    def payloads(self, name: str) -> list[tuple[Artifact, dict[str, Any]]]:
        """Artifacts of one name with their JSON objects, in order; a torn one (the last line of a killed run) is left out."""
        found = []
        for artifact in self.recording.artifacts:
            if artifact.name == name:
                try:
                    value = json.loads(self.recording.text(artifact.event))
                except ValueError:
                    continue
                found.append((artifact, value if isinstance(value, dict) else {}))
        return found

    def log_of(self, artifact: Artifact) -> int:
        """Number of the log that an artifact lies in: one per process."""
        return split_number(artifact.event)[0]

    @cached_property
    def eager_calls(self) -> dict[tuple[str, int], EagerCalls]:
        """What is known of calls behind the recompile limit, by file and line of the function."""
        found: dict[tuple[str, int], EagerCalls] = {}
        for _, hit in self.payloads(EVENT_LIMIT):
            known = found.setdefault(_place(hit), EagerCalls())
            if isinstance(hit.get("calls"), int):
                known.before = hit["calls"]
            known.counting = known.counting or bool(hit.get("counting"))
        eager: dict[tuple[str, int], dict[int, int]] = defaultdict(dict)
        for artifact, flush in self.payloads(EVENT_EAGER):
            for row in flush.get("entries") or []:
                if isinstance(row, dict) and isinstance(row.get("calls"), int):
                    # A running total of its process: the last one holds.
                    eager[_place(row)][self.log_of(artifact)] = row["calls"]
        for place, calls in eager.items():
            found.setdefault(place, EagerCalls(counting=True)).eager = sum(calls.values())
        return found

    @cached_property
    def behind_the_host(self) -> bool:
        """Some graph takes tensors on a device that runs behind the host (a GPU)."""
        devices = {str(item.get("device") or "") for each in self.recording.compiles for item in each.inputs}
        return any(device.startswith(("cuda", "xpu", "hip")) for device in devices)

    @cached_property
    def training(self) -> bool:
        """Some graph has a backward."""
        return any("joint" in each.stages or "backward" in each.stages for each in self.recording.compiles)

    @cached_property
    def script(self) -> str:
        """How to name the program in a command, behind ``fxscope run`` or ``fxscope try``: as recorded, or by the stacks of a bare log.

        ``SCRIPT`` where nothing says it.
        """
        session = self.recording.session
        if session.argv:
            first = session.argv[0]
            if first == "-" or self.of_notebook:  # standard input, which is gone; cells
                return "SCRIPT"
            launched = (
                first != "-m"
                and not first.endswith(".py")
                and not os.path.isfile(os.path.join(session.cwd or "", first))
            )
            return ("-- " if launched else "") + shlex.join(session.argv)
        for compile_ in self.recording.compiles[:50]:
            outer = next(
                (line for line in compile_.stack if line.function == "<module>" and is_user_file(line.file)), None
            )
            if outer is not None and not outer.file.startswith("<"):
                return shlex.quote(outer.file)
        return "SCRIPT"

    @property
    def of_notebook(self) -> bool:
        """The program was a notebook's kernel."""
        return os.path.basename((self.recording.session.argv or [""])[0]) == NOTEBOOK_KERNEL

    @cached_property
    def options(self) -> str:
        """The options of ``fxscope run`` that decide what is compiled, each with a blank behind it: a run that is compared has the same."""
        options = self.recording.session.options
        words = [
            word for name in ("backend", "mode") if options.get(name) for word in (f"--{name}", str(options[name]))
        ]
        if isinstance(options.get("dynamic"), bool):
            words.append("--dynamic" if options["dynamic"] else "--no-dynamic")
        config = options.get("config")
        for name, value in config.items() if isinstance(config, dict) else ():
            words += ["--config", f"{name}={value}"]
        return "".join(f"{shlex.quote(word)} " for word in words)

    def try_command(self, change: str) -> str:
        """The command that tries one change."""
        return f"fxscope try --what {shlex.quote(change)} {self.options}{self.script}"

    def _run_again(self, then: str) -> str:
        if self.of_notebook:  # whose cells record again: with fxscope.record(): ...
            return f"fxscope {then}"
        # Without names: `run` takes a new folder each time, and what comes behind it reads the newest one.
        return f"fxscope run --headless {self.options}{self.script} && fxscope {then}"

    def report_command(self) -> str:
        """The command that shows what an edit changed."""
        return self._run_again("report")

    def check_command(self, budget: str) -> str:
        """The command that holds a budget after an edit."""
        return self._run_again(f"check {budget}")

    def diff_command(self) -> str:
        """The command that shows what an edit took away and what it brought: one of several findings fits no budget."""
        return self._run_again(f"diff {self.path}")

    def measure_command(self) -> str:
        """The command that measures whether compiling pays."""
        return f"fxscope diagnose --measure {self.path}"

    @property
    def path(self) -> str:
        """The recording's path, as a command takes it."""
        return shlex.quote(self.recording.session.path)


def user_place(compile_: Compile) -> tuple[str, int]:
    """The line of a compile that its user can change: the function itself, or the user's line that called into a library."""
    if compile_.user_line:
        if is_user_file(compile_.file) and compile_.line:
            return compile_.file, compile_.line
        return compile_.user_file, compile_.user_line
    return compile_.file, compile_.line


def short_seconds(seconds: float) -> str:
    """``0.3 s``, ``12 s``, ``3 min``."""
    if seconds >= 120:
        return f"{seconds / 60:.0f} min"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
