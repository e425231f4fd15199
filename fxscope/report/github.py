"""GitHub annotations: workflow commands that put a message at a line of a pull request."""

from __future__ import annotations

from fxscope.diagnosis.findings import Finding
from fxscope.report.safe import plain

_COMMANDS = {"high": "error", "medium": "warning", "low": "notice", "info": "notice"}


def annotation(finding: Finding, root: str = "") -> str:
    """One workflow command.

    Args:
        finding: What to say.
        root: Folder that the path is made relative to (the checkout), "" for none.
    """
    base = root.replace("\\", "/").rstrip("/")
    path = finding.file.replace("\\", "/")
    if base and path.startswith(base + "/"):
        path = path[len(base) + 1 :]
    properties = {
        "file": path,
        "line": str(finding.line) if finding.line else "",
        "title": f"fxscope: {finding.ids[0]}",
    }
    written = ",".join(f"{name}={_property(value)}" for name, value in properties.items() if value)
    return f"::{_COMMANDS[finding.severity]} {written}::{_data(plain(f'{finding.title}. {finding.fix}'))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
