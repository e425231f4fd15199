"""Writes a matrix product and what follows it as one kernel."""

from __future__ import annotations

import torch

from fxscope.targets.triton.lines import Part
from fxscope.targets.triton.matmul import MatmulNest, Operand
from fxscope.targets.triton.values import Values

GROUP = 8  # rows of tiles that run together, so that the columns of b that they share stay in the cache


class Products(Values):
    """Writes tiles of a product: programs run over them in groups, the sum is kept in registers, the tail follows in place."""

    def _matmul(self) -> tuple[int, ...]:
        nest, s = self.nest, self.schedule
        assert isinstance(nest, MatmulNest)
        down, across = -(-nest.row_count // s.tile), -(-nest.col_count // s.block)
        self.sizes |= {"K": nest.depth, "DEPTH": s.depth, "DOWN": down, "ACROSS": across, "GROUP": GROUP}
        self.two_d = True
        self.comment("tiles in groups of a few rows, so that what they share stays in the cache")
        self.put("pid = tl.program_id(0)")
        self.put("top_tile = pid // (GROUP * ACROSS) * GROUP")
        self.put("height = tl.minimum(DOWN - top_tile, GROUP)")
        self.put("row = (top_tile + pid % (GROUP * ACROSS) % height) * TILE + tl.arange(0, TILE)[:, None]")
        self.put("cols = pid % (GROUP * ACROSS) // height * BLOCK + tl.arange(0, BLOCK)[None, :]")
        short_rows, short_cols = nest.row_count % s.tile, nest.col_count % s.block
        self.row_mask = "row < ROWS" if short_rows else None
        col_mask = "cols < N" if short_cols else None
        self._product(nest, self.row_mask, col_mask)
        terms = [f"({term})" for term in (self.row_mask, col_mask) if term]
        if terms:
            self.put(f"mask = {' & '.join(terms)}")
        part = Part(mask="mask" if terms else None, col_mask=col_mask)
        for value in nest.product:
            self.env[self._key(value, part)] = "acc"
        self._row_names("row")
        self._column_names(part)
        for position in range(len(nest.kernel.stores)):
            self.store(position, part)
        return (down * across,)

    def _product(self, nest: MatmulNest, row_mask: str | None, col_mask: str | None) -> None:
        """The sum over the depth, in ``acc``; float32 is multiplied as PyTorch is set to multiply it."""
        precision = ""
        if nest.dtype == torch.float32:
            kind = "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"
            precision = f', input_precision="{kind}"'
        self._say(nest.node)
        self.put("acc = tl.zeros([TILE, BLOCK], tl.float32)", nest.node)
        ragged = nest.depth % self.schedule.depth
        with self.block("for done in tl.range(0, K, DEPTH):"):
            self.put("depth = done + tl.arange(0, DEPTH)")
            along, down = "depth[None, :]", "depth[:, None]"
            for name, operand, place, masks in (
                ("a_tile", nest.a, ("row", along), [row_mask, f"{along} < K" if ragged else None]),
                ("b_tile", nest.b, (down, "cols"), [f"{down} < K" if ragged else None, col_mask]),
            ):
                self.put(f"{name} = {self._tile(operand, place, masks)}", nest.node)
            self.put(f"acc = tl.dot(a_tile, b_tile, acc{precision})", nest.node)
        if nest.bias is not None:
            masks = [row_mask if nest.bias.rows else None, col_mask if nest.bias.cols else None]
            self.put(f"acc += {self._tile(nest.bias, ('row', 'cols'), masks)}.to(tl.float32)", nest.node)

    def _tile(self, operand: Operand, place: tuple[str, str], masks: list[str | None]) -> str:
        terms = [self.argument(operand.memory)]
        for name, stride in zip(place, (operand.rows, operand.cols), strict=True):
            if stride:
                terms.append(name if stride == 1 else f"{name} * {stride}")
        if operand.offset:
            terms.append(str(operand.offset))
        held = " & ".join(f"({mask})" for mask in masks if mask)
        return f"tl.load({' + '.join(terms)}{f', mask={held}, other=0.0' if held else ''})"
