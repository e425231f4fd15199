"""Reference pages are what the code says, and every verb helps: an example that parses, completion in a real shell."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import click
import pytest

from fxscope.cli.main import VERBS, cli
from fxscope.cli.schema import schema_of

ROOT = Path(__file__).resolve().parents[2]
_EXAMPLE = re.compile(r"(?:^  +|& )(fxscope [^|#&>\n]+)", re.MULTILINE)


def _reference():  # type: ignore[no-untyped-def]
    spec = importlib.util.spec_from_file_location("reference", ROOT / "scripts" / "reference.py")
    module = importlib.util.module_from_spec(spec)  # type: ignore[arg-type]
    spec.loader.exec_module(module)  # type: ignore[union-attr]
    return module


def test_the_pages_are_up_to_date() -> None:
    reference, command = _reference(), "run: python scripts/reference.py"
    assert (ROOT / "docs" / "reference_commands.md").read_text("utf-8") == reference.commands_page(), command
    assert (ROOT / "docs" / "reference_json.md").read_text("utf-8") == reference.json_page(), command


def test_every_verb_that_takes_json_has_a_schema() -> None:
    for verb in VERBS:
        context = click.Context(cli)
        command = cli.get_command(context, verb)
        assert command is not None
        below = command.commands.values() if isinstance(command, click.Group) else [command]
        takes = any("--json" in parameter.opts for part in below for parameter in part.params)
        assert (schema_of(verb) is not None) == (takes or verb == "export"), verb


def test_every_reference_inside_a_schema_leads_somewhere() -> None:
    checked = 0
    for verb in VERBS:
        schema = schema_of(verb)
        for name in re.findall(r'"#/\$defs/(\w+)"', json.dumps(schema)):
            assert name in schema["$defs"], (verb, name)  # type: ignore[index]
            checked += 1
    assert checked > 50


def _commands(
    command: click.Command, name: str, parent: click.Context | None = None
) -> list[tuple[str, click.Command]]:
    context = click.Context(command, info_name=name, parent=parent)
    found = [(context.command_path, command)]
    if isinstance(command, click.Group):
        for verb in command.list_commands(context):
            found += _commands(command.get_command(context, verb), verb, context)  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize(("path", "command"), _commands(cli, "fxscope"), ids=lambda part: str(part)[:30])
def test_the_help_ends_with_examples_that_parse(path: str, command: click.Command) -> None:
    text = command.get_help(click.Context(command, info_name=path, terminal_width=80))
    _, _, tail = text.rpartition("Example")
    examples = [match.strip() for match in _EXAMPLE.findall(tail)]
    assert examples, path
    for example in examples:
        assert example.startswith(path), f"an example of {path}: {example}"
        current, arguments = cli, shlex.split(example)[1:]
        while isinstance(current, click.Group):
            current = current.get_command(click.Context(current), arguments.pop(0))
        current.make_context(example, arguments)  # raises where an option or a value does not exist


def _complete(words: str, shell: str = "bash") -> list[str]:
    env = {
        **os.environ,
        "_FXSCOPE_COMPLETE": f"{shell}_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    done = subprocess.run([_script()], env=env, capture_output=True, text=True, timeout=60, check=True)
    return done.stdout.split("\n")


def _script() -> str:
    return str(Path(sys.executable).parent / "fxscope")


def _source(shell: str) -> str:
    env = {**os.environ, "_FXSCOPE_COMPLETE": f"{shell}_source"}
    return subprocess.run([_script()], env=env, capture_output=True, text=True, timeout=60, check=True).stdout


def test_bash_completes_verbs_options_and_files(tmp_path: Path) -> None:
    """The generated script, sourced by a real bash, whose completion function is called as readline would."""
    (tmp_path / "train.py").touch()
    steps = "\n".join(
        f'COMP_WORDS=({words}); COMP_CWORD={words.count(" ")}; COMPREPLY=(); _fxscope_completion fxscope; echo "${{COMPREPLY[*]}}"'
        for words in ("fxscope di", "fxscope report --js", "fxscope npu s", "fxscope check tr")
    )
    # compopt only works inside a completion that readline started.
    script = f'compopt() {{ echo -n "$@ "; }}\n{_source("bash")}\n{steps}\n'
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["bash", "--norc", "-c", script],
        cwd=tmp_path,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    verbs, option, below, file = done.stdout.splitlines()
    assert verbs.split() == ["diagnose", "diff"]
    assert option == "--json"
    assert below.split() == ["spec", "sweep"]
    assert file == "-o default "  # bash itself then offers the files


def test_zsh_completes_verbs_and_files() -> None:
    assert "compdef _fxscope_completion fxscope" in _source("zsh")
    kinds, names, meanings = (_complete("fxscope re", "zsh")[part] for part in range(3))
    assert (kinds, names) == ("plain", "report")
    assert meanings == VERBS["report"]
    assert _complete("fxscope run tr", "zsh")[0] == "file"
    if zsh := shutil.which("zsh"):
        subprocess.run([zsh, "-n", "-c", _source("zsh")], check=True, timeout=60)


@pytest.mark.skipif(shutil.which("fish") is None, reason="fish is not installed")
def test_fish_completes_verbs_with_their_whole_help(tmp_path: Path) -> None:
    """A real fish is asked what it would offer."""
    (tmp_path / "train.py").touch()
    (tmp_path / "completion.fish").write_text(_source("fish"))
    asked = 'source completion.fish; complete -C "fxscope diag"; complete -C "fxscope run tr"'
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        ["fish", "--no-config", "-c", asked],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines() == [f"diagnose\t{VERBS['diagnose']}", "train.py"]


def test_every_verb_is_offered() -> None:
    offered = {line.partition(",")[2] for line in _complete("fxscope ") if line}
    assert offered == set(VERBS)
