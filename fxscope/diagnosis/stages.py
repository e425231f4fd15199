"""At which stage of the compiler the results of a program change: eager, Dynamo, AOTAutograd, decompositions, the backend."""

from __future__ import annotations

from shlex import quote
from typing import Literal

import msgspec

from fxscope.diagnosis.trial import Outcome, output_difference

Result = Literal["reference", "same", "changed", "fails"]
REFERENCE = "disable"
AS_IT_IS = "as it is"


class Rung(msgspec.Struct, frozen=True, kw_only=True):
    """One way to run the program, with one more stage of the compiler than the rung before.

    Attributes:
        change: What ``fxscope try --what`` calls it; ``as it is`` for the program's own backend.
        adds: The stage that comes in here.
        means: What it says of a program whose results change here.
    """

    change: str
    adds: str
    means: str


# The ladder of PyTorch's own minifier and of "Ablation" in its troubleshooting guide.
LADDER = (
    Rung(change=REFERENCE, adds="eager, without torch.compile", means=""),
    Rung(
        change="backend:eager",
        adds="Dynamo captures graphs",
        means="The graphs run op by op, so the capture itself differs: a guard that misses a change, Python state that is read "
        "or written while tracing (a counter, a global, a random number), or code that asks torch.compiler.is_compiling().",
    ),
    Rung(
        change="backend:aot_eager",
        adds="AOTAutograd: functional graphs, backward traced ahead",
        means="Functionalization or the traced backward differs: a custom operator that writes to an input without mutates_args, "
        "one whose fake kernel gives other strides or aliases, an autograd.Function with side effects, hooks.",
    ),
    Rung(
        change="backend:aot_eager_decomp_partition",
        adds="decompositions and the forward/backward partition",
        means="A decomposition rounds or behaves otherwise than the kernel, or recomputation in backward repeats something that "
        "is not pure. fxscope passes steps the decompositions one by one with a numeric check.",
    ),
    Rung(
        change=AS_IT_IS,
        adds="the program's own backend (Inductor)",
        means="The backend's generated code differs, and neither eager's random numbers nor eager's rounding explains it. fxscope bench "
        "on the graphs of the recording names the one whose outputs differ from float64. A custom operator that writes to an input without "
        "mutates_args shows here too: the backend fuses and reorders around it.",
    ),
)
# Differences of Inductor that are by design, and the setting that takes each away.
BY_DESIGN = (
    Rung(
        change="config:fallback_random=True",
        adds="as it is, with eager's random numbers",
        means="Inductor draws random numbers with a generator of its own, so the same seed gives other dropout masks and noise; nothing "
        "is computed wrong. torch._inductor.config.fallback_random = True draws eager's numbers, for comparing.",
    ),
    Rung(
        change="config:emulate_precision_casts=True",
        adds="as it is, rounding as eager does",
        means="Fused kernels keep float32 between operators where eager rounds to bf16 or fp16; Inductor's result is the more precise one. "
        "torch._inductor.config.emulate_precision_casts = True rounds as eager does, for comparing.",
    ),
)


class Step(msgspec.Struct, kw_only=True):
    """One rung with what it gave.

    Attributes:
        result: Against the reference: ``same``, ``changed`` or ``fails``.
        detail: The first difference, or how it failed; "" for the same.
    """

    adds: str
    result: Result
    detail: str
    outcome: Outcome


class Conclusion(msgspec.Struct, kw_only=True):
    """Where the results change.

    Attributes:
        change: The rung that changes them, as in ``Step.outcome.change``; None where none does, or it cannot be known.
        sentence: What was found.
        advice: What it means and what to do next, "" where there is nothing to do.
    """

    change: str | None
    sentence: str
    advice: str = ""


def compare(rung: Rung, reference: Outcome, found: Outcome) -> Step:
    """One rung against the eager run."""
    if found.exit_code != reference.exit_code:
        detail = f"exit code {found.exit_code}" + (f": {found.problem}" if found.problem else "")
        return Step(adds=rung.adds, result="fails", detail=detail, outcome=found)
    difference = output_difference(reference.output, found.output)
    return Step(adds=rung.adds, result="changed" if difference else "same", detail=difference or "", outcome=found)


def conclude(steps: list[Step], by_design: list[Step], *, reproducible: bool) -> Conclusion:
    """What the rungs say together.

    Args:
        steps: One per rung of ``LADDER`` behind the reference, in its order; only the last where that one is the same.
        by_design: Those of ``BY_DESIGN`` that were run.
        reproducible: Two eager runs print the same.
    """
    if not reproducible:
        return Conclusion(
            change=None,
            sentence="Two runs without torch.compile print different numbers, so nothing can be compared.",
            advice="Seed the program (torch.manual_seed, random.seed, numpy.random.seed) and print what matters.",
        )
    if steps[-1].result == "same":
        code = steps[-1].outcome.exit_code
        failed = f", but fails both times (exit code {code}): what it did not reach was not compared" if code else ""
        return Conclusion(change=None, sentence=f"The program prints the same with torch.compile as without{failed}.")
    explained = next((each for each in by_design if each.result == "same"), None)
    # The last rung that still agrees is the last stage that can be trusted; what changes above it and is right again
    # further on (a backend that decomposes otherwise) is no longer in the program's own way of running.
    trusted = max((number for number, each in enumerate(steps) if each.result == "same"), default=-1)
    first = steps[trusted + 1]
    if explained is not None and first is steps[-1]:
        rung = next(each for each in BY_DESIGN if each.change == explained.outcome.change)
        return Conclusion(
            change=explained.outcome.change,
            sentence=f"The results change with the backend, and agree {explained.adds.partition(', ')[2]}.",
            advice=rung.means,
        )
    rung = next(each for each in LADDER if each.change == first.outcome.change)
    if first.result == "fails":
        verb, advice = "fails", f"fxscope diagnose {quote(first.outcome.recording)} says why."
    else:
        verb, advice = "prints something else", rung.means
    return Conclusion(
        change=rung.change, sentence=f"The program {verb} from this stage on: {rung.adds}.", advice=advice
    )
