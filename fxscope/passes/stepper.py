"""Apply passes one by one and keep what each did: the graph before and after, the matches, the time and the numbers."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from fxscope.errors import described
from fxscope.passes import numeric
from fxscope.passes.application import Context, Match, Pass
from fxscope.passes.module import clone, is_aten, state_keys, value
from fxscope.passes.numeric import Difference
from fxscope.passes.order import is_compute
from fxscope.passes.pipeline import parse

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from fxscope.graph.diff import GraphDiff

Status = Literal["applied", "unchanged", "failed", "numbers"]
MOST = 10_000  # single applications of one pass


@dataclass(kw_only=True, eq=False)
class Step:
    """One pass, or one application of it.

    Attributes:
        status: ``applied``, ``unchanged``, ``failed`` (it raised, returned no graph or broke lint; ``error`` says which), or
            ``numbers`` (the result differs beyond rounding).
        application: Number of the application within its pass, from 1; None for the whole pass.
        to_previous: Difference to the step before on the probe inputs; None without inputs.
        to_start: Difference to the graph that the pipeline began with.
    """

    name: str
    status: Status
    before: GraphModule
    after: GraphModule
    matches: list[Match] = field(default_factory=list)
    application: int | None = None
    error: str | None = None
    seconds: float = 0.0
    to_previous: Difference | None = None
    to_start: Difference | None = None
    doc: str = ""

    @property
    def state_removed(self) -> list[str]:
        """Keys of the ``state_dict`` that the graph needed before and needs no more; ``before`` still has them."""
        return sorted(state_keys(self.before) - state_keys(self.after))

    @property
    def state_added(self) -> list[str]:
        """Keys of the ``state_dict`` that are new."""
        return sorted(state_keys(self.after) - state_keys(self.before))

    @property
    def nodes_before(self) -> int:
        """Nodes of the graph before."""
        return len(self.before.graph.nodes)

    @property
    def nodes_after(self) -> int:
        """Nodes of the graph after."""
        return len(self.after.graph.nodes)

    def diff(self) -> GraphDiff:
        """The structural difference, computed now."""
        from fxscope.graph.diff import diff_graphs
        from fxscope.passes.fx_records import records

        return diff_graphs(records(self.before), records(self.after))


class Stepper:
    """Runs a pipeline over a graph.

    Attributes:
        steps: What was done so far.
        notes: What could not be checked, one line each.
    """

    def __init__(
        self,
        gm: GraphModule,
        pipeline: str | Sequence[str | Pass | Callable[..., Any]] | None = None,
        inputs: Sequence[Any] | None = None,
        *,
        single: bool = False,
        inference: bool = False,
        numbers: bool = True,
        tolerances: dict[str, float] | None = None,
    ) -> None:
        """Prepare; nothing runs yet.

        Args:
            gm: The graph; it is left as it is.
            pipeline: See ``pipeline.parse``.
            inputs: Probe inputs in placeholder order; without them shapes and numbers are not checked.
            single: One step per application instead of one per pass.
            inference: Promise that no gradient is needed.
            numbers: Run the graphs on the inputs and compare; without it inputs give shapes only.
            tolerances: Relative to the output's scale, by dtype (``{"float32": 1e-4}``), over numeric.TOLERANCES.
        """
        self.passes = parse(pipeline)
        self.inputs = None if inputs is None else list(inputs)
        self.single = single
        self.inference = inference
        self.numbers = numbers
        self.tolerances = tolerances
        self.steps: list[Step] = []
        self.notes: list[str] = []
        self.start = clone(gm)
        self._outputs: list[Any] | None = None
        self._start_outputs: list[Any] | None = None
        self._exact: list[Any] | None = None
        self._exact_tried = False

    @property
    def current(self) -> GraphModule:
        """The graph after the last step that did not fail."""
        good = [step.after for step in self.steps if step.status != "failed"]
        return good[-1] if good else self.start

    def run(self, progress: Callable[[Step], None] | None = None) -> list[Step]:
        """Run the passes in order; a failed one ends the pipeline, and the steps before it remain.

        Args:
            progress: Called after each step.
        """
        if self.inputs is not None and self._start_outputs is None:
            self._describe(self.start)
            self._run_start()
        for item in self.passes:
            for step in self._apply(item):
                self.steps.append(step)
                if progress is not None:
                    progress(step)
                if step.status == "failed":
                    return self.steps
        return self.steps

    def measure_matches(self, step: Step) -> None:
        """Fill in how far each applied match of a step moved the value that it makes anew; runs both graphs once more."""
        pairs = {match.compared: match for match in step.matches if match.applied and match.compared is not None}
        if not pairs or self._start_outputs is None or self.inputs is None or step.status == "failed":
            return
        before = numeric.values_at(step.before, self.inputs, {old for old, _ in pairs})
        after = numeric.values_at(step.after, self.inputs, {new for _, new in pairs})
        for (old, new), match in pairs.items():
            if old in before and new in after:  # else a later match folded it on
                found = numeric.difference([after[new]], [before[old]])
                match.max_abs_diff, match.max_rel_diff = found.max_abs, found.max_rel

    def _run_start(self) -> None:
        if not self.numbers or self.inputs is None:
            return
        try:
            self._start_outputs = self._outputs = numeric.run(self.start, self.inputs)
        except Exception as error:  # noqa: BLE001 - reported as a note; passes still step without numbers
            self.notes.append(
                f"the graph does not run on the probe inputs, so numbers are not checked: {described(error)}"
            )

    def _apply(self, item: Pass) -> list[Step]:
        missing = self._missing(item)
        if missing:
            graph = self.current
            return [Step(name=item.name, status="failed", before=graph, after=graph, error=missing, doc=item.doc)]
        if not self.single:
            return [self._once(item, self.current, None, None)]
        steps: list[Step] = []
        while len(steps) < MOST:
            before = steps[-1].after if steps else self.current
            step = self._once(item, before, 1, len(steps) + 1)
            done = step.status == "failed" or not any(match.applied for match in step.matches)
            if done and steps and step.status == "unchanged":
                steps[-1].matches += [match for match in step.matches if match.reason not in (None, "limit")]
                break
            step.matches = [match for match in step.matches if match.applied or (done and match.reason != "limit")]
            steps.append(step)
            if done:
                break
        return steps

    def _once(self, item: Pass, before: GraphModule, limit: int | None, application: int | None) -> Step:
        context = Context(inputs=self.inputs, limit=limit, inference=self.inference)
        step = Step(
            name=item.name, status="applied", before=before, after=before, application=application, doc=item.doc
        )
        begun = time.perf_counter()
        try:
            after = item(clone(before), context)
            step.seconds = time.perf_counter() - begun
            step.matches = context.matches
            step.error = _lint(after)
        except Exception as error:  # noqa: BLE001 - a pass may be anybody's: the step says what it raised
            step.seconds = time.perf_counter() - begun
            step.matches = context.matches
            step.error = f"{item.name} raised {described(error)}"
        if step.error is not None:
            step.status = "failed"
            return step
        step.after = after
        same = after.code == before.code and not any(match.applied for match in context.matches)
        step.status = "unchanged" if same else "applied"
        if self.inputs is not None:
            self._describe(after)
        if self._start_outputs is not None:
            self._check(step)
        return step

    def _check(self, step: Step) -> None:
        """Run the new graph and compare it with the step before and with the start."""
        assert self.inputs is not None
        if step.status == "unchanged":
            got = self._outputs
        else:
            try:
                got = numeric.run(step.after, self.inputs)
            except Exception as error:  # noqa: BLE001 - the step says what running its graph raised
                step.status, step.error = "failed", f"the graph that {step.name} made does not run: {described(error)}"
                step.after = step.before
                return
        assert got is not None
        assert self._outputs is not None
        assert self._start_outputs is not None
        step.to_previous = numeric.difference(got, self._outputs, tolerances=self.tolerances)
        step.to_start = numeric.difference(got, self._start_outputs, tolerances=self.tolerances)
        if not step.to_previous.within and not self._fair(step.to_previous, got):
            step.status = "numbers"
        self._outputs = got

    def _fair(self, found: Difference, got: list[Any]) -> bool:
        """Whether fp64 says that the new result is no further from the truth than the old one."""
        if found.text or not self._exact_outputs():
            return False
        assert self._exact is not None
        assert self._outputs is not None
        now = numeric.difference(got, self._exact, tolerances=self.tolerances)
        was = numeric.difference(self._outputs, self._exact, tolerances=self.tolerances)
        if now.text or was.text or not math.isfinite(was.max_rel):
            return False  # in fp64 the graph computes something else (an index flips): no judge
        found.text = f"against fp64: {now.max_rel:.1e} now, {was.max_rel:.1e} before"
        return now.max_rel <= 1.5 * was.max_rel

    def _exact_outputs(self) -> bool:
        if not self._exact_tried:
            self._exact_tried = True
            assert self.inputs is not None
            try:
                self._exact = numeric.run(*numeric.in_double(self.start, self.inputs))
            except Exception as error:  # noqa: BLE001 - reported as a note; the plain difference decides
                self.notes.append(f"no fp64 reference: {described(error)}")
        return self._exact is not None

    def _describe(self, gm: GraphModule) -> None:
        """Shapes for passes that need them, where a pass or the recording left some out."""
        from fxscope.passes.fakes import propagate_named

        assert self.inputs is not None
        if any(is_compute(node) and value(node) is None for node in gm.graph.nodes):
            for problem in propagate_named(gm, self.inputs):
                if problem not in self.notes:
                    self.notes.append(problem)

    def _missing(self, item: Pass) -> str | None:
        """What a pass declares to need and the graph has not."""
        graph = self.current
        for need in item.requires:
            if need == "aten" and not is_aten(graph):
                return f"{item.name} needs functional ATen ops; put decompose before it"
            if need == "shapes" and self.inputs is None:
                nodes = [node for node in graph.graph.nodes if node.op == "call_function" and value(node) is None]
                if nodes:
                    return f"{item.name} needs shapes, and {nodes[0].name} has none; give inputs"
        return None


@dataclass(frozen=True, kw_only=True)
class Culprit:
    """The first application that changes the numbers.

    Attributes:
        match: The application, None where the pass does not record any.
    """

    step: Step
    match: Match | None
    difference: Difference


def bisect(stepper: Stepper) -> Culprit | None:
    """Name the first pass, and within it the first application, that changes the numbers beyond rounding.

    Passes run whole; within the first bad one the number of applications is bisected, so a pass with a thousand
    applications takes ten runs.

    Args:
        stepper: Run already, or it is run now; needs inputs.
    """
    steps = stepper.steps or stepper.run()
    bad = next((step for step in steps if step.status == "numbers"), None)
    if bad is None:
        return None
    assert bad.to_previous is not None
    item = next((item for item in stepper.passes if item.name == bad.name), None)
    applied = [match for match in bad.matches if match.applied]
    if item is None or len(applied) <= 1 or bad.application is not None:
        return Culprit(step=bad, match=applied[0] if applied else None, difference=bad.to_previous)

    def attempt(limit: int) -> Step:
        inner = Stepper(bad.before, [item], stepper.inputs, inference=stepper.inference, tolerances=stepper.tolerances)
        inner._run_start()
        return inner._once(item, inner.start, limit, None)

    low, high, found = 0, len(applied), bad
    while high - low > 1:
        middle = (low + high) // 2
        step = attempt(middle)
        if step.status in ("numbers", "failed"):
            high, found = middle, step
        else:
            low = middle
    shown = found.to_previous or bad.to_previous
    return Culprit(step=bad, match=applied[high - 1], difference=shown)


def _lint(after: Any) -> str | None:
    import torch

    if not isinstance(after, torch.fx.GraphModule):
        what = "nothing" if after is None else f"a {type(after).__name__}"
        return f"the pass returned {what}; it must return the GraphModule"
    try:
        after.graph.lint()
        after.recompile()
    except Exception as error:  # noqa: BLE001 - lint raises whatever it finds
        return f"the graph is broken: {described(error)}"
    return None
