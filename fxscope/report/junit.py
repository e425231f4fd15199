"""JUnit XML of a check: one test case per budget, for CI systems that show tests."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from fxscope.diagnosis.budget import Violation
from fxscope.report.safe import plain


def junit(name: str, rules: list[str], violations: list[Violation], seconds: float = 0.0) -> str:
    """The document.

    Args:
        name: Of the suite; the recording's path.
        rules: Every rule that was checked, passed ones included.
        violations: What failed.
        seconds: Compile time, shown as the suite's time.
    """
    failed: dict[str, list[Violation]] = {}
    for violation in violations:
        failed.setdefault(violation.rule, []).append(violation)
    cases = list(dict.fromkeys([*rules, *failed]))
    suites = ET.Element("testsuites", name="fxscope")
    suite = ET.SubElement(
        suites,
        "testsuite",
        name=_xml(name),
        tests=str(len(cases)),
        failures=str(len(failed)),
        errors="0",
        skipped="0",
        time=f"{seconds:.3f}",
    )
    for rule in cases:
        case = ET.SubElement(suite, "testcase", classname="fxscope.check", name=_xml(rule), time="0")
        if rule in failed:
            messages = [violation.message for violation in failed[rule]]
            failure = ET.SubElement(case, "failure", message=_xml("; ".join(messages)), type=_xml(rule))
            lines = [
                line
                for violation in failed[rule]
                for line in (violation.message, *(f"  {detail}" for detail in violation.details))
            ]
            failure.text = _xml("\n".join(lines))
    ET.indent(suites)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(suites, encoding="unicode") + "\n"


def _xml(text: str) -> str:
    """XML 1.0 has no way to write most control characters nor U+FFFE and U+FFFF, so they are spelt out."""
    return plain(text).replace("\ufffe", "\\ufffe").replace("\uffff", "\\uffff")
