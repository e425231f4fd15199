"""What a pass is, and the record of what it did: each match, applied or with the reason why not."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from fxscope.passes.fx_records import source_site

if TYPE_CHECKING:
    from torch.fx import GraphModule, Node

# Stable ids of reasons why a match was not applied: those of fxscope's passes (`partition` adds the codes of a target's clauses).
REASONS = {
    "training": "batch norm uses the statistics of the batch: the fold would freeze them",
    "no-stats": "batch norm has no running statistics",
    "no-conv": "what feeds the batch norm is no convolution or linear layer",
    "users": "the output of the convolution is used elsewhere too",
    "linear-rank": "the channel axis of batch norm is not the last axis of the linear layer's output",
    "channels": "batch norm normalises another axis than the output channels",
    "unbatched": "the input has no batch dimension, so batch norm normalises another axis",
    "subclass": "a subclass overrides forward: what it does is not known",
    "parametrized": "the weight is computed by a parametrisation",
    "hook": "the module has hooks, which would see the folded output",
    "output-size": "a transposed convolution with output_size",
    "mutation": "something between the two writes in place",
    "dtype": "the dtype changes on the way",
    "no-meta": "shapes are not known; give inputs",
    "stats-used": "the saved statistics are used elsewhere",
    "alpha": "an argument (alpha, beta, rounding) that does not commute with the convolution",
    "not-constant": "the factor is no per-channel constant",
    "grad": "a gradient is needed; the constant would be cut off from its parameter",
    "random": "random numbers differ on every call",
    "mutated": "it is written to in place",
    "too-large": "the constant would be larger than what it is made of",
    "shared": "module shared by several call sites",
    "effect": "it does more than make a value",
    "returned": "both are returned; the caller would get one tensor twice",
    "cycle": "replacing it would make a cycle",
    "overlap": "it shares nodes with a match before it",
    "limit": "left out: the limit of applications is reached",
    "benefit": "the island costs more than it saves (modelled), or holds nothing to compute",
    "no-fake": "it cannot run on fake tensors, so its shape is not known",
    "fake-mismatch": "the fake kernel says something else than the real one",
}


class Match(msgspec.Struct, kw_only=True):
    """One place where a pass could apply.

    Attributes:
        nodes: Names, in program order.
        reason: Id of the reason why it was not applied (REASONS), None where it was.
        text: One sentence with the particulars: axis, dtype, names.
        source: The user's line, ``model.py:12``, None where unknown.
        compared: The node whose value the match makes anew, before and after; None where the pass names none.
        max_abs_diff: How far the two lie apart on the probe inputs, what earlier matches changed included; null where nobody looked.
        max_rel_diff: The same relative to the largest magnitude.
    """

    nodes: list[str]
    applied: bool
    reason: str | None = None
    text: str = ""
    source: str | None = None
    compared: tuple[str, str] | None = None
    max_abs_diff: float | None = None
    max_rel_diff: float | None = None


@dataclass(kw_only=True)
class Context:
    """What a pass is told, and where it writes what it did.

    Attributes:
        inputs: Probe inputs in placeholder order, None where there are none.
        limit: Apply at most this many matches; None for all.
        inference: Whether the caller promises that no gradient is needed.
        options: Of the pass, by name.
    """

    inputs: Sequence[Any] | None = None
    limit: int | None = None
    inference: bool = False
    options: dict[str, Any] = field(default_factory=dict)
    matches: list[Match] = field(default_factory=list)

    @property
    def applied(self) -> int:
        """How many matches were applied so far."""
        return sum(match.applied for match in self.matches)

    def apply(self, nodes: Sequence[Node], text: str = "") -> bool:
        """Record a match that is right; False where the limit says to leave it."""
        allowed = self.limit is None or self.applied < self.limit
        self._add(nodes, allowed, None if allowed else "limit", text if allowed else REASONS["limit"])
        return allowed

    def compare(self, before: str, after: str) -> None:
        """Name the node whose value the last applied match makes anew, so that its difference can be told."""
        self.matches[-1].compared = (before, after)

    def skip(self, nodes: Sequence[Node], reason: str, text: str = "") -> None:
        """Record a match that must not be applied."""
        self._add(nodes, False, reason, text or REASONS.get(reason, reason))

    def _add(self, nodes: Sequence[Node], applied: bool, reason: str | None, text: str) -> None:
        source = next((site for node in reversed(nodes) if (site := source_site(node))), None)
        names = [node.name for node in nodes]
        self.matches.append(Match(nodes=names, applied=applied, reason=reason, text=text, source=source))


@dataclass(frozen=True, kw_only=True)
class Pass:
    """GraphModule to GraphModule.

    Attributes:
        name: What ``--pipeline`` calls it.
        function: ``(gm, context) -> gm`` or ``(gm) -> gm``; may change the graph it is given (it is a copy).
        requires: What the graph must be: ``aten`` (functional overloads), ``shapes`` (``meta["val"]``).
        exact: The result must have the same bits, not only the same values within tolerance.
        check: Raises UsageError at an argument that the pass does not take, before anything runs.
    """

    name: str
    function: Callable[..., Any]
    requires: tuple[str, ...] = ()
    exact: bool = False
    check: Callable[[str], object] | None = None

    @property
    def doc(self) -> str:
        """The docstring that teaches the pass."""
        return inspect.getdoc(self.function) or ""

    def __call__(self, gm: GraphModule, context: Context | None = None) -> Any:
        """Run it, with a context where it takes one."""
        context = context if context is not None else Context()
        if self.takes_context:
            return self.function(gm, context)
        return self.function(gm)

    @property
    def takes_context(self) -> bool:
        """Whether the function has a second parameter."""
        try:
            parameters = list(inspect.signature(self.function).parameters.values())
        except (TypeError, ValueError):  # a builtin without a signature takes the graph alone
            return False
        positional = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
        return len(positional) >= 2 and positional[1].default is inspect.Parameter.empty
