"""Facts about the process that is recorded, for ``fxscope.session``."""

from __future__ import annotations

import os
import platform
import socket
import sys
from typing import TYPE_CHECKING, Any

from fxscope.capture.launchers import launched_as

if TYPE_CHECKING:
    from fxscope.capture.recorder import Recorder

UNAVAILABLE: list[dict[str, str]] = []  # hooks that this torch lacks, for the session's facts


def unavailable(feature: str, reason: str) -> None:
    """Note that one feature cannot work on this torch; everything else does."""
    entry = {"feature": feature, "reason": reason}
    if entry not in UNAVAILABLE:
        UNAVAILABLE.append(entry)


def session_facts(recorder: Recorder) -> dict[str, Any]:
    """Payload of ``fxscope.session`` (fields in fxscope/capture/events.py)."""
    from fxscope import __version__

    rank, world_size = launched_as()
    torch: Any = sys.modules.get("torch")
    triton = sys.modules.get("triton")
    return {
        "fxscope": __version__,
        "argv": list(getattr(sys, "argv", [])),
        "executable": sys.executable,
        "python": platform.python_version(),
        "torch": str(getattr(torch, "__version__", "")) or None,
        "triton": str(getattr(triton, "__version__", "")) or None,
        "platform": platform.platform(),
        "host": socket.gethostname(),
        "cwd": _cwd(),
        "pid": os.getpid(),
        "ppid": os.getppid(),
        "rank": rank,
        "world_size": world_size,
        "forked_from": recorder.forked_from,
        "started": recorder.started,
        "devices": _devices(torch),
        "threads": torch.get_num_threads() if hasattr(torch, "get_num_threads") else None,
        "options": recorder.options.changed(),
        "unavailable": list(UNAVAILABLE),
    }


def torch_folder() -> str:
    """Where torch lies, with a separator behind it; asked anew, for a program may import it after recording began."""
    return os.path.dirname(getattr(sys.modules.get("torch"), "__file__", None) or "torch/") + os.sep


def _cwd() -> str | None:
    try:
        return os.getcwd()
    except OSError:
        return None  # the program stands in a folder that was deleted


def _devices(torch: Any) -> list[dict[str, Any]]:
    devices: list[dict[str, Any]] = [{"type": "cpu", "name": platform.machine(), "count": os.cpu_count()}]
    cuda = getattr(torch, "cuda", None)
    # Only where the program has initialised CUDA itself: doing it here would break a later fork.
    if cuda is not None and cuda.is_initialized():
        devices.append({"type": "cuda", "name": cuda.get_device_name(), "count": cuda.device_count()})
    return devices
