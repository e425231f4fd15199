"""Hooks that run right after somebody else's import."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fxscope.capture import imports


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    name = "fxscope_test_package"
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").write_text("seen = []\nfrom . import inner\n")
    (tmp_path / name / "inner.py").write_text("value = 1\n")
    (tmp_path / name / "broken.py").write_text("raise ValueError('broken')\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(imports, "_finder", imports.PostImportFinder())
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    yield name
    for loaded in [module for module in sys.modules if module.startswith(name)]:
        del sys.modules[loaded]


def test_a_hook_runs_once_after_the_module_and_leaves_no_trace(package: str) -> None:
    calls = []
    imports.after_import(package, lambda module: calls.append(("outer", module.seen, module.inner.value)))
    imports.after_import(f"{package}.inner", lambda module: calls.append(("inner", module.value)))
    assert calls == []
    module = importlib.import_module(package)
    assert calls == [("inner", 1), ("outer", [], 1)]
    importlib.reload(module)
    assert len(calls) == 2
    assert "exec_module" not in vars(module.__loader__)
    assert type(module.__spec__.loader).__name__ == "SourceFileLoader"


def test_a_module_that_is_there_is_hooked_at_once(package: str) -> None:
    module = importlib.import_module(package)
    calls = []
    imports.after_import(package, calls.append)
    assert calls == [module]


def test_a_hook_may_add_another_for_its_own_module(package: str) -> None:
    calls = []
    imports.after_import(package, lambda _: imports.after_import(package, lambda _: calls.append("second")))
    importlib.import_module(package)
    assert calls == ["second"]


def test_a_module_that_fails_keeps_its_hook_for_the_next_try(package: str, tmp_path: Path) -> None:
    calls = []
    imports.after_import(f"{package}.broken", calls.append)
    with pytest.raises(ValueError, match="broken"):
        importlib.import_module(f"{package}.broken")
    assert calls == []
    (tmp_path / package / "broken.py").write_text("fine = True\n")
    importlib.invalidate_caches()
    assert importlib.import_module(f"{package}.broken").fine
    assert len(calls) == 1


def test_absent_modules_stay_absent(package: str) -> None:
    imports.after_import(f"{package}.absent", lambda _: None)
    with pytest.raises(ModuleNotFoundError):
        importlib.import_module(f"{package}.absent")


def test_a_hook_that_fails_costs_one_line_and_not_the_import(package: str, capsys: pytest.CaptureFixture[str]) -> None:
    calls = []
    imports.after_import(package, lambda module: module.no_such_name)
    imports.after_import(package, calls.append)
    module = importlib.import_module(package)
    assert calls == [module]
    imports.after_import(package, lambda module: module.no_such_name)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith(f"fxscope: hooking {package} failed (AttributeError: ") for line in lines)
