"""The cause family of a graph break: its registry entry, sharpened by what the break names and by where it lies."""

from __future__ import annotations

import re
import sys
from typing import NamedTuple

import msgspec

from fxscope.diagnosis.callee import Callee, callee_of
from fxscope.diagnosis.registry import lookup
from fxscope.recording.records import GraphBreak


class BreakCause(msgspec.Struct, frozen=True, kw_only=True):
    """Why a break happened.

    Attributes:
        ids: Finding ids, the cause first, then what it did.
        advice: Key of the advice table.
        callee: What was called.
    """

    ids: tuple[str, ...]
    advice: str
    callee: Callee


class _Rule(NamedTuple):
    """Applies where ``pattern`` matches the callee's module and name, joined by a blank."""

    pattern: re.Pattern[str]
    ids: tuple[str, ...]
    advice: str


def _rule(pattern: str, ids: str, advice: str) -> _Rule:
    return _Rule(re.compile(pattern), tuple(ids.split()), advice)


# In order; the first match wins. They sharpen the ids that stand for "some function that Dynamo does not trace".
_RULES = (
    _rule(r"(^| )(print|pprint\S*|sys\.std\w+\.\w+|tqdm\S*|rich\.\S+|click\.echo)$", "print", "print"),
    _rule(r"^(tqdm|rich|pprint|progressbar|alive_progress)\b", "print", "print"),
    _rule(r"(TextIOWrapper|StringIO|EncodedFile)\.(write|writelines|flush)$", "print", "print"),
    _rule(r"^(logging|loguru|structlog|absl\.logging)\b| (logging|loguru)\.|\w*[Ll]ogger\w*\.", "logging", "logging"),
    _rule(r"\bcatch_warnings$", "warnings context-manager", "context-unsupported"),
    _rule(r"\b_?warnings\b", "warnings", "warnings"),
    _rule(
        r"^(time|datetime)\b|\btime\.(time|perf_counter|monotonic|process_time|sleep)\w*$|datetime\.\w*now",
        "clock",
        "clock",
    ),
    _rule(r"\bEvent\.(record|elapsed_time|synchronize)$", "clock", "clock"),
    _rule(
        r"manual_seed|\bfork_rng\b|\brandom\.(seed|setstate|getstate)$|\b(get|set)_rng_state|\binitial_seed$|Generator\.(seed|set_state|get_state|clone_state)|Random\.(seed|setstate|getstate)|^torch\.random\b",
        "random-seed",
        "seed",
    ),
    _rule(r"^(uuid|secrets)\b|\burandom$", "random", "skipped-function"),
    _rule(
        r"^(random)\b|\bRandom\.\w+$|\brandom\.(random|gauss|choice|sample|shuffle|randint|uniform|normalvariate)\b",
        "random",
        "python-random",
    ),
    _rule(
        r"\bnumpy\.random\b|\bdefault_rng\b|\bRandomState\b|\bmtrand\b|Generator\.(random|normal|integers|standard_normal|uniform|choice|permutation|shuffle)",
        "random",
        "python-random",
    ),
    _rule(r"^(numpy|scipy)\b|\bndarray\b", "numpy", "numpy"),
    _rule(r"\b(register\w*_hook|RemovableHandle)\b", "hook", "hook"),
    _rule(r"Optimizer\.zero_grad|\boptim\.\S*zero_grad", "train-step library-code", "optimizer"),
    _rule(r"\bLBFGS\.step$", "library-code train-step", "lbfgs"),
    _rule(
        r"^torch\.optim\b|\w*(Adam|SGD|Optimizer|RMSprop|Adagrad|LBFGS|Muon)\w*\.step$",
        "library-code",
        "optimizer-step",
    ),
    _rule(r"\btorch\.autograd\.(grad|backward)$|Tensor\.backward$", "train-step", "backward"),
    _rule(r"sparse_\w+_tensor|to_sparse", "unsupported-tensor", "sparse"),
    _rule(r"\bcopy\.(deep)?copy$|^(copy) ", "unsupported-builtin", "deepcopy"),
    _rule(r"^torch\.(distributed|nn\.parallel)\b", "library-code distributed", "distributed"),
    _rule(r"^torch\.jit\b|\b_CachedForward\b|\bScript(Module|Function|Method)\b", "torchscript", "torchscript"),
    _rule(r"\b_?ctypes\b|\b_?C?FuncPtr\b|\b(CDLL|PyDLL)\b|\bcffi\b|CompiledFFI", "c-extension", "c-function"),
    _rule(
        r"^torch\.(cuda|mps|xpu|accelerator)\b.*\b(synchronize|empty_cache|mem_get_info|memory_allocated)",
        "library-code",
        "device-query",
    ),
)
# Registry advice keys that say nothing of the kind of function; only these are sharpened by the rules above.
_GENERAL = frozenset(
    {
        "builtin",
        "skipped-function",
        "unsupported",
        "c-function",
        "no-proxy",
        "context-unsupported",
        "disabled",
        "numpy",
        "logging",
        "user-object",
        "internal",
        "explicit-break",
        "inplace-random",
        "operator-slot",
        "c-slot",
        "profiler",
    }
)
_LOGGED = re.compile(r"\s*logging\.(debug|info|warning|warn|error|critical|exception|log)\(")
_NUMPY_CALL = re.compile(r"\b(?:np|numpy)\.([\w.]+)\(")
_CONVERTS = re.compile(r"\.(item|tolist)\(|\b(int|float|bool)\(")
_SEED = re.compile(r"fork_rng|_seed\(|rng_state")
_STDLIB: frozenset[str] = frozenset(getattr(sys, "stdlib_module_names", ()))
# Torch's stand-ins for a call that the user's own line makes.
_WRAPPERS = r"(?!nn/modules/module\.py|_dynamo/polyfills/|_dynamo/external_utils\.py)"
_PACKAGE = re.compile(
    rf"/(?:site|dist)-packages/(?!torch/)|/(?:site|dist)-packages/torch/{_WRAPPERS}|/pytorch/torch/{_WRAPPERS}"
)
# A text made of a tensor, or of a size that is dynamic, as torch 2.11 to 2.15 tell it; each was tried there.
_TEXTS = tuple(
    (re.compile(pattern), told, advice)
    for pattern, told, advice in (
        # "a" * n, and n items of a list, to 2.12
        (r"^example_value type: str; .*target: <built-in function (mul|getitem)>", "unsupported-builtin", "size-long"),
        # "%d" % n to 2.12, "%s" % x always
        (r"^example_value type: str; .*target: <built-in function mod>", "data-dependent-value", "percent"),
        (
            r"^raised exception TypeError\(.unsupported operand type\(s\) for %: 'str' and",
            "unsupported-builtin",
            "size-text",
        ),
        (r"^builtin (str|repr) \[[^,\]]*\bSymNodeVariable\b", "unsupported-builtin", "size-text"),
        (r"^SymNodeVariable has tp_repr slot", "unsupported-builtin", "size-text"),
        (r"^example_value type: str\b", "data-dependent-value", "tensor-repr"),
        (r"^builtin (str|repr) \[[^,\]]*\bTensorVariable\b", "print", "tensor-repr"),
    )
)
# Causes whose place says enough already: a break of these kinds in a library keeps its own name only.
_PLACELESS = frozenset(
    {"hook", "rnn-module", "higher-order-op", "train-step", "missing-fake-kernel", "context-manager"}
)


def cause_of(found: GraphBreak) -> BreakCause:
    """The cause of one break record."""
    entry = lookup(found.gb_id, found.kind)
    callee = callee_of(found)
    ids: list[str] = [entry.cause]
    key = entry.advice
    if "_GeneratorContextManager" in found.context:
        ids, key = ["context-manager"], "context-unsupported"
    if "does not support RNN" in found.explanation:  # torch 2.15 breaks at the call, under a general id
        ids, key = ["rnn-module"], "rnn"
    if key in _GENERAL:
        sharpened = _sharpen(callee, found)
        if sharpened is not None:
            ids, key = list(sharpened[0]), sharpened[1]
    if re.search(r"/torch/(nn/parallel|distributed)/", found.file.replace("\\", "/")) and key in _GENERAL:
        ids, key = ["library-code", "distributed"], "distributed"
    elif key == "explicit-break" and in_library(found):
        ids, key = ["library-code"], "library-break"
    elif in_library(found) and ids[0] not in _PLACELESS and "library-code" not in ids:
        ids.append("library-code")
    if key == "distributed" and _of_wrapper(found):
        key = "wrapper"
    ids, key, callee = _by_its_line(ids, key, callee, found)
    if key == "context-unsupported" and _SEED.search(found.code + found.user_code):
        ids, key = ["random-seed", *ids], "seed"
    ids += _effects(ids, found)
    return BreakCause(ids=tuple(dict.fromkeys(ids)), advice=key, callee=callee)


def _of_wrapper(found: GraphBreak) -> bool:
    """Whether the break is one of DDP's or FSDP's own steps around the model, and not of what these call."""
    places = [line.file.replace("\\", "/") for line in found.stack] or [found.file.replace("\\", "/")]
    while places and re.search(r"/(contextlib|torch/_dynamo/polyfills/\w+)\.py$", places[-1]):
        places.pop()
    return (
        bool(places) and re.search(r"/torch/(nn/parallel/distributed\.py$|distributed/fsdp/)", places[-1]) is not None
    )


def _by_its_line(ids: list[str], key: str, callee: Callee, found: GraphBreak) -> tuple[list[str], str, Callee]:
    """What the line itself says better than the break, which may lie deep in what it calls."""
    if (
        key == "scalar"
        and (called := _NUMPY_CALL.search(found.user_code or found.code))
        and not _CONVERTS.search(found.code)
    ):
        # A numpy function that is traced and asks a tensor for its number on the way (np.pad).
        ids, key, callee = ["numpy", *ids], "numpy-scalar", Callee(module="numpy", name=f"numpy.{called[1]}")
    if (
        (logged := _LOGGED.match(found.user_code or found.code))
        and ids[0] != "logging"
        and not ids[0].startswith("data-dependent")
    ):
        # logging.info(...): what breaks lies deep in the standard library, whatever it is this time.
        ids, key, callee = ["logging"], "logging-root", Callee(module="logging", name=f"logging.{logged[1]}")
    if found.kind.startswith("Could not guard on data-dependent expression"):
        ids, key = ["data-dependent-branch"], "unbacked-guard"
    texts = next(((told, by) for pattern, told, by in _TEXTS if pattern.search(found.context)), None)
    if texts is not None:
        ids, key = [texts[0]], texts[1]
    if key == "fake-kernel" and callee.name.startswith(("aten.", "prims.")):
        # Torch's own operator: nobody can be asked to register a kernel for it.
        fast = callee.name.startswith("aten._transformer_encoder_layer_fwd")  # torch before 2.13, a size being dynamic
        key = "nested" if "nested" in callee.name else "fast-path" if fast else "no-fake-of-torch"
        ids = ["unsupported-tensor"]
    if callee.name.startswith("aten.equal"):
        ids, key = ["data-dependent-branch", *ids[1:]], "equal"
    if key == "sort-key" and re.search(r"\bsorted\([^=]*\.items\(\)\)", found.code):
        ids, key = ["unsupported-builtin", *ids[1:]], "sort-items"  # of pairs; no value of a tensor decides
    if ids[0] == "unreconstructable" and re.match(r"\s*ctx\.", found.code):
        ids, key = ["autograd-function"], "autograd-function"
    if key == "id" and "deepcopy(" in found.user_code:
        key = "deepcopy"
    return ids, key, callee


def _effects(causes: list[str], found: GraphBreak) -> list[str]:
    """Ids of what the break lies in, and of what it did."""
    ids = []
    if "Higher Order Operator: autograd" in found.reason:
        ids.append("autograd-function")
    elif "Higher Order Operator:" in found.reason or any("/torch/_functorch/" in line.file for line in found.stack):
        ids.append("higher-order-op")
    if causes[0] == "exception" and found.function == "backward":
        ids.append("backward-failed")
    second = found.reason.partition("another graph break occurred")[2]
    if "GenericContextWrapping" in second:
        ids.append("context-manager")
    if found.skipped_frame or "that we cannot resume from" in found.reason:
        ids.append("frame-skipped")
    return ids


def in_library(found: GraphBreak) -> bool:
    """Whether the breaking line lies in an installed package (torch's module wrapper excepted)."""
    return bool(_PACKAGE.search(found.file.replace("\\", "/")))


def _sharpen(callee: Callee, found: GraphBreak) -> tuple[tuple[str, ...], str] | None:
    text = f"{callee.module} {callee.name}".strip()
    if "(Generator)" in found.context and not re.search(
        r"Generator\) (random|normal|integers|standard_normal|uniform|choice)\b", found.context
    ):
        return ("random-seed", "random"), "generator-object"
    for rule in _RULES:
        if text and rule.pattern.search(text):
            return rule.ids, rule.advice
    if callee.native:
        root = callee.module.split(".")[0]
        if root in ("builtins", "None", ""):
            return ("unsupported-builtin",), "builtin"
        if root in _STDLIB:
            return ("c-extension", "unsupported-builtin"), "c-function"
        if root != "torch":
            return ("c-extension",), "c-function"
        return ("unsupported-builtin",), "skipped-function"
    if callee.file and _PACKAGE.search(callee.file.replace("\\", "/")) and callee.name:
        return ("library-code",), "skipped-function"
    return None
