"""Names that the recorder writes and the reader looks for. This module imports nothing of ours."""

from __future__ import annotations

import re

RECORDING_SUFFIX = ".fxscope"
SESSION_FILE = "session.json"
TASK_FILE = re.compile(
    r"session\.json\.(?P<job>[0-9a-f]{16})\.(?P<life>[0-9a-f]{8})\.(?P<rank>\d+)$"
)  # of a task: who it is, how it ended
OUTPUT_FILE = "output.log"
TENSOR_DIR = "tensors"
NOTEBOOK_KERNEL = "ipykernel_launcher.py"  # what runs in a notebook: a program that nobody can start by hand
LOG_PREFIX = "dedicated_log_torch_trace_"  # PyTorch's own name for a trace log; tlparse looks for it

# `artifact` events that fxscope adds to the trace logs. All carry JSON payloads (encoding "json").
EVENT_SESSION = "fxscope.session"  # argv, versions, devices; once per process, first
EVENT_CONFIG = "fxscope.config"  # torch._dynamo / torch._inductor settings that differ from their defaults, per thread
EVENT_GRAPH = "fxscope.graph"  # per backend call: input descriptions, backend name, mode, node count
EVENT_LAUNCHES = (
    "fxscope.launches"  # per flush: calls (and sampled times) of each compiled entry since the process began
)
EVENT_FAILURE = "fxscope.failure"  # an exception that left Dynamo or a backend, with its stack
EVENT_LIMIT = "fxscope.limit"  # a frame that ran into the recompile limit, by name
EVENT_EAGER = "fxscope.eager"  # calls that ran eager behind the limit, per function (Python 3.12 and later)
EVENT_END = "fxscope.end"  # how the process ended, if it lived to say so
EVENT_FUSION = "fxscope.fusion"  # Inductor's fusion decisions (--fusion-log)

# Environment that `fxscope run` hands to the program and all its children.
ENV_DIR = "FXSCOPE_RECORD_DIR"
ENV_OPTIONS = "FXSCOPE_RECORD_OPTIONS"  # JSON
ENV_DEBUG = "FXSCOPE_DEBUG"
