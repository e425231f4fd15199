"""What a break names and where it lies sharpen its cause; texts are those of torch 2.13."""

from __future__ import annotations

from pathlib import Path

import pytest

from fxscope.diagnosis.causes import cause_of
from fxscope.recording.recording import open_recording
from fxscope.recording.records import GraphBreak

SKIPPED = "module: {}, qualname: {}, skip reason: {}"
NATIVE = "cannot determine source file (likely a C extension or builtin)"
SITE = "/venv/lib/python3.11/site-packages/"


def broken(gb_id: str, context: str, **fields: object) -> GraphBreak:
    return GraphBreak(
        **{"site": "a.py:1", "file": "/home/me/a.py", "line": 1, "gb_id": gb_id, "context": context, **fields}
    )  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("found", "ids"),
    [
        (broken("GB0059", "builtin print [<class 'ConstantVariable'>] False"), ("print",)),
        (broken("GB0007", SKIPPED.format("time", "perf_counter", NATIVE)), ("clock",)),
        (broken("GB0156", "call_method UserDefinedClassVariable(<class 'datetime.datetime'>) now [] {}"), ("clock",)),
        (broken("GB0007", SKIPPED.format("_warnings", "warn", NATIVE)), ("warnings",)),
        (broken("GB0007", SKIPPED.format("random", "Random.gauss", "file is under skip directory")), ("random",)),
        (broken("GB0007", SKIPPED.format("<unknown module>", "Random.random", NATIVE)), ("random",)),
        (broken("GB0007", SKIPPED.format("random", "Random.seed", "file is under skip directory")), ("random-seed",)),
        (broken("GB0007", SKIPPED.format("torch.random", "manual_seed", "file matches MOD_SKIPLIST")), ("random-seed",)),
        (broken("GB0294", "numpy function: <cyfunction default_rng at 0x7f>, args: []"), ("random",)),
        (broken("GB0294", "numpy function: <function interp at 0x7f>, args: []"), ("numpy",)),
        (broken("GB0007", SKIPPED.format("zlib", "crc32", NATIVE)), ("c-extension", "unsupported-builtin")),
        (broken("GB0007", SKIPPED.format("sentencepiece._sp", "encode", NATIVE)), ("c-extension",)),
        (broken("GB0007", SKIPPED.format("loguru._logger", "Logger.info", "skip")), ("logging",)),
        (broken("GB0007", SKIPPED.format("tqdm.std", "tqdm.write", "skip")), ("print",)),
        (broken("GB0007", SKIPPED.format("torch.optim.adam", "Adam.step", f"file is force-skipped ({SITE}torch/optim/lr_scheduler.py)")), ("library-code",)),
        (broken("GB0055", "call_function args: ConstantVariable(int: 6) UserDefinedObjectVariable(Generator)"), ("random-seed", "random")),
        (broken("GB0025", "Called `torch._dynamo.graph_break()`", file=f"{SITE}torch/optim/optimizer.py"), ("library-code",)),
        (broken("GB0025", "Called `torch._dynamo.graph_break()`"), ("disabled-function",)),
        (broken("GB0291", "method: <Logger a (INFO)>.warning", file=f"{SITE}transformers/modeling_utils.py"), ("logging", "library-code")),
        (broken("GB0083", "", file=f"{SITE}torch/nn/modules/module.py"), ("hook",)),
        (broken("GB0156", "call_method X(Encoder) encode", file=f"{SITE}torch/_dynamo/polyfills/__init__.py"), ("unsupported-builtin",)),
        (broken("GB0007", SKIPPED.format("torch.nn.parallel.distributed", "x", "skip"), file=f"{SITE}torch/nn/parallel/distributed.py"), ("library-code", "distributed")),
        (broken("GB0124", "call_method TensorVariable() item () {}", skipped_frame=True), ("data-dependent-value", "frame-skipped")),
        (broken("GB0014", "LSTM(8, 8)", reason="Encountered graph break that we cannot resume from."), ("rnn-module", "frame-skipped")),
        (broken("GB0059", "builtin print []", reason="x *** While handling this graph break, another graph break occurred: *** Graph break under GenericContextWrappingVariable"), ("print", "context-manager")),
        (broken("GB0059", "builtin print []", reason="Higher Order Operator: torch.utils.checkpoint.checkpoint"), ("print", "higher-order-op")),
        (broken("GB0208", "example_value type: _GeneratorContextManager", code="with torch.random.fork_rng():"), ("random-seed", "context-manager")),
    ],
)  # fmt: skip
def test_cause(found: GraphBreak, ids: tuple[str, ...]) -> None:
    assert cause_of(found).ids == ids


OF_TEXT = "example_value type: str; op: call_function; target: <built-in function {}>"


@pytest.mark.parametrize(
    ("gb_id", "context", "id_", "advice"),
    [
        # What torch 2.11 to 2.15 say of "a" * n, len(["b"] * n), "%d" % n, str(n), hex(n), and of a tensor.
        ("GB0208", OF_TEXT.format("mul"), "unsupported-builtin", "size-long"),
        ("GB0208", OF_TEXT.format("getitem"), "unsupported-builtin", "size-long"),
        ("GB0208", OF_TEXT.format("mod"), "data-dependent-value", "percent"),
        ("GB0088", "raised exception TypeError(\"unsupported operand type(s) for %: 'str' and 'int'\")", "unsupported-builtin", "size-text"),
        ("GB0059", "builtin str [<class 'torch._dynamo.variables.tensor.SymNodeVariable'>] False", "unsupported-builtin", "size-text"),
        ("GB6053", "SymNodeVariable has tp_repr slot but no tp_repr_impl override", "unsupported-builtin", "size-text"),
        ("GB0059", "builtin str [<class 'torch._dynamo.variables.tensor.TensorVariable'>] False", "print", "tensor-repr"),
        ("GB0569", "repr() on Tensor", "print", "tensor-repr"),
        ("GB0208", "example_value type: str; op: call_method; target: __repr__", "data-dependent-value", "tensor-repr"),
        ("GB0088", "raised exception TypeError(\"unsupported operand type(s) for +: 'str' and 'int'\")", "exception", "exception"),
        ("GB0059", "builtin str [<class 'torch._dynamo.variables.lists.TupleVariable'>] False", "unsupported-builtin", "builtin"),
        ("GB0208", "example_value type: dict; op: call_function; target: <built-in function mul>", "data-dependent-value", "non-tensor-op"),
    ],
)  # fmt: skip
def test_a_text_of_a_size_is_none_of_a_tensor(gb_id: str, context: str, id_: str, advice: str) -> None:
    cause = cause_of(broken(gb_id, context))
    assert (cause.ids[0], cause.advice) == (id_, advice)


def test_names_are_those_that_a_reader_knows() -> None:
    assert cause_of(broken("GB0007", SKIPPED.format("time", "perf_counter", NATIVE))).callee.name == "time.perf_counter"
    assert cause_of(broken("GB0291", "method: <Logger a (INFO)>.warning")).callee.name == "logging.Logger.warning"
    assert cause_of(broken("GB0098", "<function disabled.<locals>.helper at 0x7f>")).callee.name == "helper"
    assert cause_of(broken("GB0036", "aten.nonzero.default")).callee.name == "aten.nonzero.default"


def test_the_fast_path_of_an_encoder_has_a_setting() -> None:
    fast = broken("GB0090", "unsupported operator: aten._transformer_encoder_layer_fwd.default")
    assert (cause_of(fast).ids, cause_of(fast).advice) == (("unsupported-tensor",), "fast-path")
    other = broken("GB0090", "unsupported operator: aten._segment_reduce_backward.default")
    assert (cause_of(other).ids, cause_of(other).advice) == (("unsupported-tensor",), "no-fake-of-torch")


@pytest.mark.parametrize("name", ["ddp-uneven", "fsdp2-uneven"])
def test_the_own_steps_of_ddp_and_fsdp_are_not_the_models_to_mend(name: str) -> None:
    """Real logs: what surrounds the model breaks by design, and no functional collective would help."""
    recording = open_recording(Path(__file__).resolve().parents[2] / "data" / "nccl" / name)
    assert {cause_of(row).advice for row in recording.graph_breaks} == {"wrapper"}
    (text,) = {finding.fix for finding in recording.diagnose() if "distributed" in finding.ids}
    assert text.startswith("Nothing to mend in the model: these are the own steps of ")
