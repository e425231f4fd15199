"""Record two NCCL ranks in every parallel mode, and measure what recording costs, in interleaved pairs.

Run on a machine with two GPUs, from the root of the checkout:

    python tests/benchmarks/gpu/two_gpus.py OUT [PAIRS]

OUT gets recordings.tar.xz (one recording folder per mode) and overhead.json.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import statistics
import subprocess
import sys
import tarfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
SAMPLE = str(ROOT / "samples" / "parallel_transformer.py")
RUNS = {
    "ddp-uneven": ("--parallel", "ddp", "--uneven"),
    "fsdp2-uneven": ("--parallel", "fsdp2", "--uneven"),
    "ddp-watch": ("--parallel", "ddp", "--watch"),
    "functional": ("--parallel", "functional"),
}
_STEP = re.compile(r"step (\d+): loss [\d.]+, ([\d.]+) s")


def launch(sample: tuple[str, ...], recording: Path | None, *options: str) -> tuple[float, str]:
    """Run the sample on two ranks with caches off; wall seconds and its output."""
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "29511"]
    command = [*torchrun, SAMPLE, *sample]
    if recording is not None:
        command = [
            sys.executable,
            "-m",
            "fxscope",
            "run",
            "--headless",
            "--quiet",
            "-o",
            str(recording),
            *options,
            "--",
            *command,
        ]
    cache = Path("/tmp/two_gpus_cache")
    shutil.rmtree(cache, ignore_errors=True)
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
        "TORCHINDUCTOR_CACHE_DIR": str(cache),
        "TRITON_CACHE_DIR": str(cache / "triton"),
        "OMP_NUM_THREADS": "4",
    }
    began = time.perf_counter()
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240, check=False)
    seconds = time.perf_counter() - began
    if done.returncode:
        print(done.stdout[-1500:], done.stderr[-3000:], flush=True)
        raise SystemExit(f"{sample}: exit {done.returncode}")
    return seconds, done.stdout


def main() -> None:
    """Recordings first, then the pairs."""
    out = Path(sys.argv[1])
    pairs = int(sys.argv[2]) if len(sys.argv) > 2 else 3
    import torch

    recordings = Path("/tmp/two_gpus")
    shutil.rmtree(recordings, ignore_errors=True)
    recordings.mkdir()
    for name, sample in RUNS.items():
        seconds, text = launch(sample, recordings / f"{name}.fxscope", "--time-launches")
        print(f"{name}: {seconds:.1f} s\n{text}", flush=True)
        with tarfile.open(out / "recordings.tar.xz", "w:xz") as tar:
            tar.add(recordings, arcname=".")
    rows = []
    for number in range(pairs):
        order = (None, recordings / f"pair{number}.fxscope")
        row = {}
        for recording in order if number % 2 else order[::-1]:
            seconds, text = launch(RUNS["ddp-uneven"], recording)
            warm = [float(value) for step, value in _STEP.findall(text) if step in ("1", "4")]
            row["recorded" if recording else "bare"] = {"seconds": seconds, "steps": warm}
        rows.append(row)
        print(row, flush=True)
        facts = {
            "torch": torch.__version__,
            "python": platform.python_version(),
            "gpus": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())],
            "pairs": rows,
            "median_ratio": statistics.median(r["recorded"]["seconds"] / r["bare"]["seconds"] for r in rows),
        }
        (out / "overhead.json").write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
