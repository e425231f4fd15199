"""Of a log that was read, few pages stay in this process: its memory does not grow with the log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

READ = """
import sys
from fxscope.trace import index
from fxscope.trace.bytesource import ByteSource
index._HELD = 1 << 20
log = index.LogIndex(ByteSource(sys.argv[1]))
log.scan(index.Nobody(), final=True)
def held():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("RssFile"))
before = held()
texts = [log.text(number) for number in range(len(log))]
print(before, held(), len(texts), set(map(len, texts)))
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="no such account of memory on this system")
def test_reading_a_log_holds_few_of_its_pages(tmp_path: Path) -> None:
    event = (
        b'V1129 11:59:38.304000 440 x.py:1] {"artifact": {"name": "a", "encoding": "string"}, "has_payload": "0"}\n\t'
    )
    log = tmp_path / "big.log"
    log.write_bytes((event + b"x" * 60_000 + b"\n") * 1000)  # 60 MB
    done = subprocess.run([sys.executable, "-c", READ, str(log)], capture_output=True, text=True, check=True)
    scanned, read, events, lengths = done.stdout.split()
    assert (events, lengths) == ("1000", "{60000}")
    assert int(scanned) < 40_000  # KiB; the interpreter's own libraries are among them
    assert int(read) < 40_000
