"""pytest plugin: the marker and the fixture ``fxscope``, budgets for what torch.compile does in a test.

Every pytest run loads this module, so it imports nothing but pytest until a test asks for it.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from fxscope.diagnosis.findings import Finding
    from fxscope.recording.recording import Recording

_BUDGETS = ("max_graph_breaks", "max_recompiles", "max_compile_seconds", "fail_on")
_WATCH = pytest.StashKey["Watch"]()


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        "fxscope(max_graph_breaks=None, max_recompiles=None, max_compile_seconds=None, fail_on=None, reset=True, allow_nothing=False): record what "
        "torch.compile does in the test and fail when it exceeds a budget; fail_on names a severity of findings "
        "(high, medium, low); reset=False keeps what earlier tests compiled; allow_nothing=True where the test may compile nothing",
    )


class Watch:
    """What torch.compile does in one test. The value of the fixture ``fxscope``.

    Attributes:
        path: Folder of the recording, which is made when the test runs.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def recording(self) -> Recording:
        """The recording up to now."""
        from fxscope.recording.recording import open_recording

        return open_recording(self.path)

    def diagnose(self) -> list[Finding]:
        """The findings up to now, worst first."""
        from fxscope.diagnosis.diagnose import diagnose

        return diagnose(self.recording)

    def check(self, **budgets: Any) -> None:
        """Fail here when a budget is exceeded up to now.

        Args:
            budgets: As for the marker.

        Raises:
            AssertionError: With the sites and their fixes.
        """
        message = failure_message(self.recording, budgets)
        if message:
            raise AssertionError(message)


def failure_message(recording: Recording, budgets: Mapping[str, Any]) -> str:
    """What exceeds the budgets, with sites and fixes; "" where nothing does.

    Raises:
        TypeError: An unknown budget.
    """
    from fxscope.diagnosis.budget import Budget, violations

    unknown = sorted(set(budgets) - set(_BUDGETS))
    if unknown:
        raise TypeError(
            f"fxscope: unknown budget {', '.join(unknown)}; there are {', '.join(_BUDGETS)}, and reset and allow_nothing for the marker"
        )
    lines = []
    for violation in violations(recording, Budget(**budgets)):
        lines.append(f"fxscope: {violation.message}")
        lines.extend(f"    {detail}" for detail in violation.details if detail)
    return "\n".join(lines)


@pytest.fixture
def fxscope(request: pytest.FixtureRequest) -> Watch:
    """Records the test; ``fxscope.recording``, ``fxscope.diagnose()``, ``fxscope.check(max_graph_breaks=0)``."""
    return _watch_of(request.node)


def _watch_of(item: pytest.Item) -> Watch:
    if _WATCH not in item.stash:
        factory: pytest.TempPathFactory = item.session.config._tmp_path_factory  # type: ignore[attr-defined]
        item.stash[_WATCH] = Watch(factory.mktemp("fxscope") / "test.fxscope")
    return item.stash[_WATCH]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Record the call of a test that asks for it, then hold it to its budgets."""
    marker = item.get_closest_marker("fxscope")
    if marker is None and "fxscope" not in getattr(item, "fixturenames", ()):
        return (yield)
    watch = _watch_of(item)
    budgets = dict(marker.kwargs) if marker is not None else {}
    afresh = budgets.pop("reset", True)
    # With reset=False an earlier test may have compiled it all.
    must_compile = not budgets.pop("allow_nothing", not afresh) and bool(budgets)
    if afresh and "torch" in sys.modules:
        # What an earlier test compiled would not be compiled again, and its breaks would not be seen here.
        importlib.import_module("torch._dynamo").reset()
    record = importlib.import_module("fxscope.capture.api").record
    with record(watch.path):
        result = yield
    if marker is not None:
        message = failure_message(watch.recording, budgets)
        if not message and must_compile and not watch.recording.totals.graphs:
            message = "fxscope: no graph was compiled in this test, so every budget holds (allow_nothing=True where that is meant)"
        if message:
            pytest.fail(message, pytrace=False)
    return result
