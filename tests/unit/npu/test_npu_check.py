"""Illegal programs are refused with their diagnosis; legal ones give the same under any interleaving of the queues."""

import copy

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fxscope.errors import CheckFailed
from fxscope.targets.npu import machine as machines
from fxscope.targets.npu.assembly import assemble
from fxscope.targets.npu.check import verify
from fxscope.targets.npu.execute import Executor, Memories
from fxscope.targets.npu.loops import roll, unroll
from fxscope.targets.npu.program import Debug, Program, from_code
from fxscope.targets.npu.queues import Queues, pops, pushes

GEMMINI = machines.load("gemmini-16x16")
REGIONS = {"w": 4096, "i": 4096, "o": 4096, "a": 4096}
# relu(x @ w) for x [8, 16], w [16, 16]
GOOD = """
ld region=w dtype=f32 addr=0 row=0 rows=16 cols=16 space=s stride=16
ld region=i dtype=f32 addr=0 row=16 rows=8 cols=16 space=s stride=16 !push.x @1
gemm dtype=f32 a=16 t=8 b=0 k=16 c=0 n=16 !pop.l @2
ewu fn=relu dst=0 rows=8 src=0 cols=16 !push.s @3
st region=o dtype=f32 addr=0 row=0 rows=8 cols=16 space=a stride=16 !pop.x
"""


def program(text):
    made = from_code(assemble(text), "gemmini-16x16", REGIONS)
    made.debug = [
        Debug(),
        Debug(node="x", role="load x", source="net.py:4"),
        Debug(node="mm", source="net.py:5"),
        Debug(node="relu"),
    ]
    return made


def run(made, seed=None, w=None, x=None):
    memories = Memories(GEMMINI, made.regions)
    memories.strided("w", "f32", (16, 16), (16, 1), 0).copy_(w)
    memories.strided("i", "f32", (8, 16), (16, 1), 0).copy_(x)
    executor = Executor(made.instructions, GEMMINI, memories)
    executor.run() if seed is None else executor.run_interleaved(seed)
    return memories.strided("o", "f32", (8, 16), (16, 1), 0).clone()


def test_good_program_runs():
    made = program(GOOD)
    verify(made, GEMMINI)
    w, x = torch.randn(16, 16), torch.randn(8, 16)
    assert torch.equal(run(made, w=w, x=x), torch.relu(x @ w))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (" !push.s", "", r"deadlock: queue l: empty; queue x: empty; queue s: instruction 4 `st` \[st .* !pop.x\] waits for a token x->s; tokens held: none"),
        (" !pop.l", "", r"race \(read after write\): instruction 2 `gemm` \(mm, net.py:5\) on queue x and instruction 1 `ld` \(x, load x, net.py:4\) on queue l touch the same part of spad"),
        (" !pop.x", "", r"race \(read after write\): instruction 4 `st` on queue s and instruction 3 `ewu` \(relu\) on queue x"),
        ("row=16 rows=8", "row=4090 rows=8", r"out of range: instruction 1 `ld` \(x, load x, net.py:4\) touches bytes 0x3fe80 to 0x40080 of spad, which has 0x40000 bytes"),
        ("region=o dtype=f32 addr=0", "region=o dtype=f32 addr=0xff0", "out of range: instruction 4 `st` touches bytes 0xff0 to 0x11f0 of o, which has 0x1000"),
        ("region=o dtype=f32 addr=0", "region=o dtype=f32 addr=2", "unaligned: instruction 4 `st` reads f32 at byte 0x2 of o"),
        ("t=8 b=0 k=16", "t=9 b=0 k=16", r"uninitialised: instruction 2 `gemm` \(mm, net.py:5\) reads row 8 of its 9x16 operand in spad"),
        ("gemm dtype=f32 a=16", "gemm acc dtype=f32 a=16", "uninitialised: instruction 2 `gemm`.* reads row 0 of its 8x16 operand in acc"),
        ("gemm dtype=f32 a=16 t=8 b=0 k=16 c=0 n=16", "mm flip dtype=f32 a=16 t=8 c=0 k=16 a_stride=1 c_stride=1", "no weights: instruction 2 `mm`"),
        ("gemm dtype=f32 a=16", "ldw dtype=f32 b=0 k=8 n=16 stride=1\nmm flip dtype=f32 a=0 t=8 c=0 k=16 a_stride=1 c_stride=1\ngemm dtype=f32 a=16", "wrong weights: instruction 3 `mm` multiplies 16 columns by weights of 8 rows"),
        ("gemm dtype=f32 a=16", "ldw dtype=f32 b=0 k=16 n=16 stride=1\nmm dtype=f32 a=0 t=8 c=0 k=16 a_stride=1 c_stride=1\ngemm dtype=f32 a=16", "no weights: instruction 3 `mm` multiplies before any ldw whose weights were flipped in"),
        ("ewu fn=relu dst=0 rows=8 src=0 cols=16", "red fn=mean dst=0 rows=8 src=0 cols=16 axis=cols acc", "impossible reduction: instruction 3 `red`.* adds a mean to a mean"),
        ("gemm dtype=f32 a=16 t=8 b=0 k=16 c=0 n=16", "ldw dtype=f32 b=0 k=17 n=16 stride=1", "out of range: instruction 2 `ldw`.* loads 17x16 weights into a 16x16 array"),
    ],
)  # fmt: skip
def test_diagnoses(old, new, message):
    assert old in GOOD
    with pytest.raises(CheckFailed, match=message) as caught:
        verify(program(GOOD.replace(old, new, 1)), GEMMINI)
    assert "\n" not in str(caught.value)


def test_write_after_read_and_write_after_write():
    again = GOOD + "ld region=i dtype=f32 addr=0 row=16 rows=8 cols=16 space=s stride=16\n"
    with pytest.raises(
        CheckFailed, match=r"race \(write after read\): instruction 5 `ld` on queue l and instruction 2 `gemm`"
    ):
        verify(program(again), GEMMINI)
    both = "ld region=i dtype=f32 addr=0 row=0 rows=8 cols=16 space=a stride=16\newu fn=relu dst=0 rows=8 src=8 cols=16"
    with pytest.raises(CheckFailed, match=r"race|uninitialised"):
        verify(program(both), GEMMINI)


def test_memory_written_by_the_store_queue_needs_a_token_too():
    text = GOOD + "ld region=o dtype=f32 addr=0 row=64 rows=8 cols=16 space=s stride=16{}\n"
    with pytest.raises(
        CheckFailed, match=r"race \(read after write\): instruction 5 `ld` on queue l and instruction 4 `st`"
    ):
        verify(program(text.format("")), GEMMINI)
    verify(program(text.format(" !pop.s").replace("stride=16 !pop.x", "stride=16 !pop.x !push.l")), GEMMINI)


def test_wait_orders_like_a_token():
    text = (
        GOOD.replace(" !push.x @1", "")
        .replace("gemm", "wait queue=x on=l outstanding=0\ngemm")
        .replace(" !pop.l @2", "")
    )
    verify(program(text), GEMMINI)
    with pytest.raises(CheckFailed, match="race"):
        verify(program(text.replace("outstanding=0", "outstanding=1")), GEMMINI)


def test_nothing_comes_after_halt():
    verify(program(GOOD + "halt status=0\n"), GEMMINI)
    with pytest.raises(CheckFailed, match="unreachable: instruction 6 `nop` comes after halt"):
        verify(program(GOOD + "halt status=0\nnop queue=x\n"), GEMMINI)


def test_several_problems_are_collected():
    text = GOOD.replace("row=16 rows=8", "row=4090 rows=8").replace(
        "region=o dtype=f32 addr=0", "region=o dtype=f32 addr=0xff0"
    )
    with pytest.raises(CheckFailed) as caught:
        verify(program(text), GEMMINI, limit=5)
    assert str(caught.value).count("out of range") == 2


def tiny_program():
    """A compiled two-layer program with a softmax, on a machine with few lines."""
    from torch.fx.experimental.proxy_tensor import make_fx

    from fxscope.targets.npu.compile import compile_island

    tiny = machines.with_values(GEMMINI, {"local.scratchpad": 4096, "local.accumulator": 8192})
    inputs = (torch.randn(20, 24), torch.randn(24, 40), torch.randn(40, 12))
    gm = make_fx(lambda x, w, v: torch.softmax(torch.relu(x @ w) @ v, -1), tracing_mode="fake")(*inputs)
    return compile_island(gm, tiny), gm, tiny, inputs


def test_any_interleaving_gives_the_same():
    made, _, machine, inputs = tiny_program()
    memories = Memories(machine, made.program.regions)
    executor = Executor(made.program.instructions, machine, memories)
    results = []
    for seed in (None, *range(8)):
        for memory in memories.bytes.values():
            memory.fill_(0x5A)  # what a missing token would let through
        for view, value in zip(made.inputs, inputs, strict=True):
            memories.strided(view.buffer.region, "f32", view.shape, view.strides, view.buffer.offset).copy_(value)
        executor.run() if seed is None else executor.run_interleaved(seed)
        view = made.outputs[0]
        results.append(
            memories.strided(view.buffer.region, "f32", view.shape, view.strides, view.buffer.offset).clone()
        )
    x, w, v = inputs
    torch.testing.assert_close(results[0], torch.softmax(torch.relu(x @ w) @ v, -1))
    assert all(torch.equal(results[0], other) for other in results[1:])


def edges(instructions):
    """(giver, taker) of every token."""
    sent, out = {}, []
    for index, instruction in enumerate(instructions):
        for channel in pops(instruction, instruction.queue):
            out.append((sent[channel].pop(0), index, channel))
        for channel in pushes(instruction, instruction.queue):
            sent.setdefault(channel, []).append(index)
    return out


def test_tokens_of_the_compiler_are_needed():
    """Taking one token out of a compiled program is found. (A few order areas of which an edge tile uses only a part.)"""
    made, _, machine, _ = tiny_program()
    verify(made.program, machine)
    tokens = edges(made.program.instructions)
    assert len(tokens) > 30
    found = 0
    for giver, taker, (producer, consumer) in tokens:
        broken = copy.deepcopy(made.program)
        after = (("lxs".index(producer) + 1) % 3) == "lxs".index(consumer)
        setattr(broken.instructions[giver], "push_next" if after else "push_prev", False)
        setattr(broken.instructions[taker], "pop_prev" if after else "pop_next", False)
        try:
            verify(broken, machine)
        except CheckFailed:
            found += 1
    assert found >= 0.8 * len(tokens)


def test_bit_exact_against_a_reference_in_tile_order():
    """C starts as the first k slice's product and takes the others one after the other, as the reference does."""
    made, gm, _, inputs = tiny_program()
    from fxscope.targets.npu.executable import NpuExecutable

    result = NpuExecutable(made, gm, mode="instructions")(*inputs)[0]

    def product(a, b, tile):
        tm, tn, tk = (int(part) for part in tile.split("x"))
        out = torch.empty(a.shape[0], b.shape[1])
        for m in range(0, a.shape[0], tm):
            for n in range(0, b.shape[1], tn):
                c = torch.mm(a[m : m + tm, :tk], b[:tk, n : n + tn])
                for k in range(tk, a.shape[1], tk):
                    c.addmm_(a[m : m + tm, k : k + tk], b[k : k + tk, n : n + tn])
                out[m : m + tm, n : n + tn] = c
        return out

    x, w, v = inputs
    tiles = [group.note["tile"] for group in made.groups if group.kind == "matrix"]
    assert len(tiles) == 2
    hidden = torch.relu(product(x, w, tiles[0]))
    scores = product(hidden, v, tiles[1])
    powers = torch.exp(scores - scores.amax(1, keepdim=True))
    assert torch.equal(result, powers / powers.sum(1, keepdim=True))


def test_gemm_equals_its_folds():
    """The macro instruction against the ldw and mm instructions it stands for, exactly for int8."""
    t, k, n = 20, 40, 24
    left = torch.randint(-128, 128, (t, k), dtype=torch.int8)
    right = torch.randint(-128, 128, (k, n), dtype=torch.int8)
    loads = f"""
    ld region=i dtype=i8 addr=0 row=0 rows={t} cols={k} space=s stride={k}
    ld region=w dtype=i8 addr=0 row=100 rows={k} cols={n} space=s stride={n} !push.x
    """
    whole = f"gemm dtype=i8 a=0 t={t} b=100 k={k} c=0 n={n} !pop.l !push.s\n"
    folds = []
    for n0 in range(0, n, 8):
        for k0 in range(0, k, 16):
            kk = min(16, k - k0)
            # One line holds 64 bytes: columns inside a line are reached by loading slices to lines of their own.
            folds.append((n0, k0, kk))
    text = []
    for index, (n0, k0, kk) in enumerate(folds):
        text.append(
            f"ld region=w dtype=i8 addr={k0 * n + n0} row={200 + index * 20} rows={kk} cols=8 space=s stride={n}"
        )
        text.append(f"ld region=i dtype=i8 addr={k0} row={1000 + index * 20} rows={t} cols={kk} space=s stride={k}")
    text[-1] += " !push.x"
    first = True
    for index, (n0, k0, kk) in enumerate(folds):
        pop = " !pop.l" if first else ""
        first = False
        text.append(f"ldw dtype=i8 b={200 + index * 20} k={kk} n=8 stride=1{pop}")
        text.append(
            f"mm flip {'acc' if k0 else ''} dtype=i8 a={1000 + index * 20} t={t} c={n0 // 8 * t} k={kk} a_stride=1 c_stride=1"
        )
    text[-1] += " !push.s"
    store = "st region=o dtype=i32 addr={} row={} rows=20 cols={} space=a stride=24{}\n"
    parts = (
        "\n".join(text)
        + "\n"
        + "".join(store.format(n0 * 4, n0 // 8 * t, 8, " !pop.x" if not n0 else "") for n0 in range(0, n, 8))
    )
    results = []
    for source in (loads + whole + store.format(0, 0, n, " !pop.x"), parts):
        made = from_code(assemble(source), "gemmini-16x16", REGIONS)
        verify(made, GEMMINI)
        memories = Memories(GEMMINI, made.regions)
        memories.strided("i", "i8", (t, k), (k, 1), 0).copy_(left)
        memories.strided("w", "i8", (k, n), (n, 1), 0).copy_(right)
        Executor(made.instructions, GEMMINI, memories).run()
        results.append(memories.strided("o", "i32", (t, n), (n, 1), 0).clone())
    assert torch.equal(results[0], left.int() @ right.int())
    assert torch.equal(results[0], results[1])


def test_loops_unroll_to_what_they_stand_for():
    looped = assemble(
        """
        loop count=3 body=2
        step w1=64 w2=16 w3=0
        step w1=0 w2=0 w3=0
          ld region=w dtype=f32 addr=0 row=0 rows=16 cols=16 space=s stride=16
          nop queue=x
        """
    )
    flat = unroll(looped)
    assert [i.args.get("addr") for i in flat] == [0, None, 64, None, 128, None]
    assert [i.args.get("row") for i in flat] == [0, None, 16, None, 32, None]


def test_compiled_programs_roll_and_unroll_to_themselves():
    from torch.fx.experimental.proxy_tensor import make_fx

    from fxscope.targets.npu.compile import compile_island

    inputs = (torch.randn(512, 64), torch.randn(64, 256))
    gm = make_fx(lambda x, w: torch.relu(x @ w), tracing_mode="fake")(*inputs)
    flat = compile_island(gm, GEMMINI, tried=1).program.instructions
    rolled = roll(flat)
    assert unroll(rolled) == flat
    assert len(rolled) < 0.8 * len(flat)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 900)), max_size=40))
@settings(max_examples=60)
def test_roll_is_the_inverse_of_unroll(rows):
    flat = assemble(
        "\n".join(
            f"ld region=w dtype=f32 addr={a * 4} row={a % 7} rows={k + 1} cols=16 space=s stride=16" for k, a in rows
        )
    )
    assert unroll(roll(flat)) == flat


@given(st.integers(1, 30), st.integers(-64, 64), st.integers(1, 4))
@settings(max_examples=40)
def test_affine_runs_become_one_loop(count, step, body):
    flat = assemble("\n".join(
        f"ld region=w dtype=f32 addr={10000 + n * step + b * 7} row={b} rows=1 cols={b + 1} space=s stride=0"
        for n in range(count) for b in range(body)
    ))  # fmt: skip
    assert unroll(roll(flat)) == flat
    if count * body > 2 * body + 2 and body > 1 and step:
        assert len(roll(flat)) <= 1 + 2 * body + 1


def test_queue_state_is_reported():
    queues = Queues(assemble("nop queue=x !push.s\nnop queue=l !pop.s\nnop queue=x !push.s"), GEMMINI)
    while ready := queues.ready():
        queues.issue(ready[0])
    with pytest.raises(
        CheckFailed,
        match=r"queue l: instruction 1 \[nop queue=l !pop.s\] waits for a token s->l; .* tokens held: x->s 2",
    ):
        queues.require_finished()


def test_full_channel_is_named():
    queues = Queues(assemble("nop queue=x !push.s\n" * 9), GEMMINI)
    while ready := queues.ready():
        queues.issue(ready[0])
    with pytest.raises(CheckFailed, match=r"channel x->s is full \(8\)"):
        queues.require_finished()


def test_empty_program():
    verify(Program(machine="gemmini-16x16"), GEMMINI)
