"""GitHub annotations: workflow commands that put a message at a line of a pull request."""

from __future__ import annotations

from fxscope.diagnosis.budget import Violation
from fxscope.diagnosis.findings import Finding
from fxscope.report.safe import plain
from fxscope.report.sarif import relative

_COMMANDS = {"high": "error", "medium": "warning", "low": "notice", "info": "notice"}


def annotation(finding: Finding, root: str = "") -> str:
    """One workflow command.

    Args:
        finding: What to say.
        root: Folder that the path is made relative to (the checkout), "" for none.
    """
    text = f"{finding.title}. {finding.fix}"
    return _command(_COMMANDS[finding.severity], finding.file, finding.line, finding.ids[0], text, root)


def failure(violation: Violation, root: str = "") -> str:
    """One workflow command for what failed the check: always an error, whatever its findings are.

    Args:
        violation: The budget, or the part of the baseline, that the run is beyond.
        root: As for ``annotation``.
    """
    text = "\n".join([violation.message, *(detail for detail in violation.details if detail)])
    return _command("error", violation.file, violation.line, violation.rule, text, root)


def _command(command: str, file: str, line: int, title: str, text: str, root: str) -> str:
    properties = {"file": relative(file, root), "line": str(line) if line else "", "title": f"fxscope: {title}"}
    written = ",".join(f"{name}={_property(plain(value))}" for name, value in properties.items() if value)
    return f"::{command} {written}::{_data(plain(text))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
