"""The pytest plugin, through pytester: budgets fail with the site and the fix."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

SUITE = """
import pytest, torch

def f(x):
    y = x * 2
    print("sum", y.sum())
    return y + 1

@pytest.mark.fxscope(max_graph_breaks=0)
def test_over():
    torch.compile(f, backend="eager")(torch.ones(3))

@pytest.mark.fxscope(max_graph_breaks=1, max_recompiles=0)
def test_within():
    torch.compile(f, backend="eager")(torch.ones(3))

@pytest.mark.fxscope(max_recompiles=0)
def test_recompiles():
    g = torch.compile(lambda x: x + 1, backend="eager")
    g(torch.ones(3)), g(torch.ones(4))

def test_fixture(fxscope):
    torch.compile(f, backend="eager")(torch.ones(3))
    assert "print" in fxscope.diagnose()[0].ids
    with pytest.raises(AssertionError, match="1 graph break at 1 site, allowed 0"):
        fxscope.check(max_graph_breaks=0)
    fxscope.check(max_graph_breaks=1)

@pytest.mark.fxscope(max_breaks=0)
def test_unknown_budget():
    pass

@pytest.mark.fxscope(max_graph_breaks=0)
def test_own_failure():
    assert 1 == 2

@pytest.mark.fxscope(max_graph_breaks=0)
def test_nothing():
    f(torch.ones(3))

@pytest.mark.fxscope(max_graph_breaks=0, allow_nothing=True)
def test_nothing_is_meant():
    pass

def test_plain():
    pass
"""


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, int]:
    """One run of the suite in a process of its own, for all tests here."""
    import subprocess
    import sys

    folder = tmp_path_factory.mktemp("suite")
    (folder / "test_suite.py").write_text(SUITE)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-rA", "--strict-markers", "test_suite.py"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    return done.stdout + done.stderr, done.returncode


def test_verdicts(outcome: tuple[str, int]) -> None:
    text, code = outcome
    assert code == 1
    for name in ("test_within", "test_fixture", "test_nothing_is_meant", "test_plain"):
        assert f"PASSED test_suite.py::{name}" in text
    for name in ("test_over", "test_recompiles", "test_unknown_budget", "test_own_failure", "test_nothing"):
        assert f"FAILED test_suite.py::{name}" in text


def test_message_names_the_site_and_the_fix(outcome: tuple[str, int]) -> None:
    text, _ = outcome
    assert "fxscope: 1 graph break at 1 site, allowed 0" in text
    assert 'test_suite.py:6: print("sum", y.sum()) [print] x1. Guard the line while compiling' in text
    assert "fxscope: 1 recompile, allowed 0" in text
    assert "tensor 'x' size mismatch at index 0. expected 3, actual 4 [dynamic-size]" in text


def test_other_errors_are_told(outcome: tuple[str, int]) -> None:
    text, _ = outcome
    assert "unknown budget max_breaks" in text
    assert "assert 1 == 2" in text
    assert "no graph was compiled in this test, so every budget holds" in text


def test_a_run_without_marks_loads_nothing_heavy(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        """
        import sys
        def test_nothing_heavy():
            assert "torch" not in sys.modules
            assert not [name for name in sys.modules if name.startswith("fxscope.") and name != "fxscope.pytest_plugin"]
        """
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)
