"""The file of what is known: whole or not at all, its mode kept, in folders that cannot be written."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from fxscope.diagnosis.budget import Baseline, load_baseline, save_baseline


def test_a_full_disk_leaves_the_known_baseline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, text: str, **_: str) -> None:
        self.touch()
        raise OSError(errno.ENOSPC, "No space left on device")

    file = tmp_path / "baseline.json"
    save_baseline(file, Baseline(graphs=3))
    monkeypatch.setattr(Path, "write_text", full)
    with pytest.raises(OSError, match="No space"):
        save_baseline(file, Baseline(graphs=4))
    assert load_baseline(file).graphs == 3
    assert list(tmp_path.iterdir()) == [file]


@pytest.mark.parametrize("code", [None, errno.EBUSY, errno.EACCES])
def test_a_known_baseline_keeps_its_mode_and_needs_no_writable_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int | None
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(code, "refused")

    file = tmp_path / "baseline.json"
    save_baseline(file, Baseline(graphs=3))
    file.chmod(0o660)
    if code is not None:
        monkeypatch.setattr("os.replace", refuse)
    save_baseline(file, Baseline(graphs=4))
    assert (load_baseline(file).graphs, file.stat().st_mode & 0o777) == (4, 0o660)
    assert list(tmp_path.iterdir()) == [file]
    if code is not None:
        with pytest.raises(OSError, match="refused"):
            save_baseline(tmp_path / "new.json", Baseline())
