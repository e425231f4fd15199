"""SARIF 2.1.0 of findings, for code-scanning views. Format: OASIS Static Analysis Results Interchange Format 2.1.0."""

from __future__ import annotations

import json
from pathlib import PurePosixPath
from typing import Any

from fxscope import __version__
from fxscope.diagnosis.findings import Finding, kinds
from fxscope.report.safe import plain

_LEVELS = {"high": "error", "medium": "warning", "low": "note", "info": "note"}
_SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def sarif(findings: list[Finding], root: str = "") -> str:
    """The document.

    Args:
        findings: What to report.
        root: Folder that paths are made relative to (the checkout), "" for none.
    """
    used = list(dict.fromkeys(id_ for finding in findings for id_ in finding.ids))
    rules = [_rule(id_) for id_ in used]
    document = {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "fxscope", "version": __version__, "rules": rules}},
                "columnKind": "unicodeCodePoints",
                "results": [_result(finding, used, root) for finding in findings],
            }
        ],
    }
    return json.dumps(document, indent=1, ensure_ascii=True) + "\n"


def _rule(id_: str) -> dict[str, Any]:
    kind = kinds()[id_]
    return {
        "id": id_,
        "name": "".join(part.capitalize() for part in id_.split("-")),
        "shortDescription": {"text": kind.meaning},
        "defaultConfiguration": {"level": _LEVELS[kind.severity]},
        "properties": {"category": kind.category},
    }


def _result(finding: Finding, used: list[str], root: str) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": finding.ids[0],
        "ruleIndex": used.index(finding.ids[0]),
        "level": _LEVELS[finding.severity],
        "message": {"text": plain(f"{finding.title}\n{finding.cause}\n{finding.fix}")},
        "properties": {"ids": finding.ids, "severity": finding.severity},
        # Line numbers move; the same cause in the same function is the same result.
        "partialFingerprints": {
            "fxscope/v1": f"{finding.ids[0]}:{relative(finding.file, root)}:{finding.function}:{finding.code}"
        },
    }
    if finding.file:
        region: dict[str, Any] = {"startLine": max(1, finding.line)}
        if finding.code:
            region["snippet"] = {"text": plain(finding.code)}
        result["locations"] = [
            {
                "physicalLocation": {
                    "artifactLocation": {"uri": _uri(relative(finding.file, root))},
                    "region": region,
                },
                "logicalLocations": [{"name": finding.function, "kind": "function"}] if finding.function else [],
            }
        ]
    return result


def relative(path: str, root: str) -> str:
    """A path below ``root`` as seen from there, any other as it is; with slashes, whichever system wrote it."""
    clean = path.replace("\\", "/")
    base = root.replace("\\", "/").rstrip("/")
    if base and PurePosixPath(clean).is_relative_to(base):
        return str(PurePosixPath(clean).relative_to(base))
    return clean


def _uri(path: str) -> str:
    from urllib.parse import quote

    quoted = quote(path, safe="/:")
    if path[1:2] == ":":  # a drive, not a scheme
        return f"file:///{quoted}"
    return f"file://{quoted}" if path.startswith("/") else quoted
