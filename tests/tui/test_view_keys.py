"""The keys of single views, on real recordings: jumps, stages, comparison, findings, guards, ranks."""

from __future__ import annotations

import pytest
from fxscope_tui.graph_rows import ModuleRows
from fxscope_tui.screens.pick import PickScreen
from fxscope_tui.screens.view import View
from fxscope_tui.widgets.diff_view import DiffView
from textual.geometry import Offset
from textual.selection import Selection

from fxscope.graph.records import Graph

pytestmark = pytest.mark.shared


async def test_def_use_jumps(gpt2, opened):
    async with opened(gpt2) as driver:
        await driver.press("2")
        view = driver.app.view
        view.to_node("inputs_embeds")
        await driver.settle()
        await driver.press("u")
        user = view.node()
        assert "inputs_embeds" in _inputs(user)
        view.to_node("inputs_embeds")
        await driver.press("i")
        assert "inputs_embeds" in view.node().users
        view.to_node("inputs_embeds")
        await driver.press("enter")
        assert "input" in driver.frame()
        await driver.press("enter")
        assert "inputs_embeds" in view.node().users


def _inputs(node):
    from fxscope_tui.graph_rows import inputs_of

    return inputs_of(node)


async def test_stage_switch_goes_through_the_stack(gpt2, opened):
    async with opened(gpt2) as driver:
        await driver.press("2")
        seen = []
        for _ in range(7):
            seen.append(driver.app.view.stage[0])
            await driver.press("s")
        assert seen[0] == "dynamo"
        assert {"joint", "forward", "backward", "forward.post_grad"} <= set(seen)
        assert driver.app.view.stage[0] == "dynamo"
        await driver.press("S")
        assert driver.app.view.stage[0] == seen[-1]


async def test_aot_inputs_carry_the_names_of_the_program(gpt2, opened):
    async with opened(gpt2) as driver:
        await driver.press("2", "s", "s", "g")
        assert "transformer.wte.weight" in driver.frame()


async def test_compare_shows_what_a_recompile_changed(gpt2, opened, golden):
    async with opened(gpt2, size=(160, 30)) as driver:
        driver.app.select_compile("1/0_1")
        await driver.press("2", "d")
        await driver.type("1/1_1 dynamo")
        await driver.press("enter")
        diff = driver.app.view.query_one(DiffView)
        assert diff.display
        assert any(row.sign == "~" and "s70" in (row.right or "") for row in diff.rows)
        golden("graph-compare", driver.frame())
        await driver.press("escape")
        assert driver.app.focused is driver.app.view.table


async def test_histogram_filters_by_the_chosen_op(gpt2, opened):
    async with opened(gpt2) as driver:
        await driver.press("2", "b")
        await driver.type("layer_norm")
        await driver.press("enter")
        table = driver.app.view.table
        assert 0 < table.count() < 20
        assert all("layer_norm" in table.provider.text(table.real(row)) for row in range(table.count()))


async def test_from_a_kernel_to_its_node_and_back(shared, opened):
    async with opened(shared / "traces" / "tlparse" / "inductor_provenance_jit_cuda_log.txt") as driver:
        await driver.press("8")
        code = driver.app.view.code
        line = next(n for n in range(code.count()) if code.line_text(n).startswith("triton_poi_fused_mul_1 ="))
        code.move_to(line)
        await driver.press("enter")
        assert driver.app.active == "graph"
        assert driver.app.view.node().name == "mul"
        await driver.press("K")
        assert driver.app.active == "code"
        assert "triton_poi_fused_mul_1" in driver.app.view.code.line_text(driver.app.view.code.cursor)


async def test_a_finding_leads_to_its_record(gpt2, opened):
    async with opened(gpt2) as driver:
        await driver.press("1")
        driver.app.view.document.to_key(("finding", 0))
        await driver.press("enter")
        assert driver.app.active == "breaks"
        assert driver.app.view.here().count == 5


async def test_a_recompile_leads_to_the_guard_that_failed(gpt2, opened):
    async with opened(gpt2) as driver:
        await driver.press("5")
        row = next(n for n, item in enumerate(driver.app.view._rows) if item.record.key == "1/1")
        driver.app.view.table.select(row)
        await driver.press("enter")
        assert driver.app.active == "guards"
        guards = driver.app.view
        assert guards.compile_key.startswith("1/0")
        guard, _ = guards._all.guards[guards.table.selected]
        assert guard.type == "TENSOR_MATCH"
        assert "had 64, got 96" in driver.frame()


async def test_a_break_leads_to_its_graph(gpt2, opened):
    async with opened(gpt2) as driver:
        await driver.press("4")
        expected = driver.app.view.here().compile_keys[0]
        await driver.press("enter")
        assert driver.app.active == "graph"
        assert driver.app.compile_key == expected


async def test_ranks_are_switched(ranks, opened):
    async with opened(ranks) as driver:
        assert "RANKS" in driver.app.view.document.page_text()
        everything = len(driver.app.shown.compiles)
        await driver.press("R")
        assert "rank 0/2" in driver.frame()
        one = len(driver.app.shown.compiles)
        assert 0 < one < everything
        assert all(compile_.rank == 0 for compile_ in driver.app.shown.compiles)
        await driver.press("R", "R")
        assert "rank all/2" in driver.frame()
        assert len(driver.app.shown.compiles) == everything


async def test_folding_and_selecting_in_the_tree(gpt2, opened):
    async with opened(gpt2) as driver:
        tree = driver.app.tree_view
        tree.focus()
        await driver.press("g")
        rows = tree.count()
        await driver.press("h")
        assert tree.count() < rows
        await driver.press("l")
        assert tree.count() == rows
        tree.select_key("1/0_1")
        await driver.press("l")
        assert "dynamo" in driver.frame()
        await driver.press("j", "enter")
        assert driver.app.active == "graph"


async def test_braces_step_through_compiles(gpt2, opened):
    async with opened(gpt2) as driver:
        keys = [compile_.key for compile_ in driver.app.shown.compiles]
        at = keys.index(driver.app.compile_key)
        await driver.press("right_curly_bracket")
        assert driver.app.compile_key == keys[at + 1]
        await driver.press("left_curly_bracket")
        assert driver.app.compile_key == keys[at]


async def test_guards_are_filtered_by_type_source_and_line(gpt2, opened):
    async with opened(gpt2) as driver:
        await driver.press("3")
        table = driver.app.view.table
        guards = [guard for guard, _ in table.provider.guards]
        for query, holds in (
            ("type:tensor_match", lambda guard: guard.type == "TENSOR_MATCH"),
            ("src:input_ids", lambda guard: "input_ids" in guard.source),
            ("type:tensor src:input_ids", lambda guard: "TENSOR" in guard.type and "input_ids" in guard.source),
            ("line:229", lambda guard: guard.asked is not None and guard.asked.line == 229),
        ):
            table.filter(query)
            await driver.settle()
            wanted = [number for number, guard in enumerate(guards) if holds(guard)]
            assert wanted, query
            assert [table.real(row) for row in range(table.count())] == wanted, query
        await driver.press("b", "enter")
        assert table.filter_text.startswith("type:")
        assert 0 < table.count() < len(guards)


async def test_the_source_follows_without_being_read_again(gpt2, opened, monkeypatch):
    async with opened(gpt2, size=(200, 40)) as driver:
        await driver.press("2")
        view = driver.app.view
        assert view.has_class("-source")
        monkeypatch.setattr(type(view), "_read_source", None)
        before = view.source_pane.line_number
        for _ in range(6):
            await driver.press("j")
        node = view.node()
        assert view.source_pane.line_number == node.source.line != before
        assert list(view.source_pane.marks) == [node.source.line]


async def test_marks_show_inputs_and_users_of_the_node_under_the_cursor(gpt2, opened):
    async with opened(gpt2) as driver:
        await driver.press("2")
        driver.app.view.to_node("inputs_embeds")
        await driver.settle()
        assert driver.line("hidden_states").split("│", 1)[1].startswith(" →")
        assert driver.line("input_ids").split("│", 1)[1].startswith(" ←")
        await driver.press("G")
        await driver.press("g")
        assert "→" not in driver.line("transformer.wte.weight")


async def test_a_hidden_list_does_not_spin(gpt2, opened):
    """A list that must show its cursor waits for a place to show it in, instead of asking again and again."""
    async with opened(gpt2, size=(80, 24)) as driver:
        tree = driver.app.tree_view
        assert not tree.size.height
        driver.app.action_step_compile(1)
        await driver.settle()
        calls = []
        tree.reveal = lambda *args, **kwargs: calls.append(args)
        for _ in range(20):  # a late reading may ask once; one that spins is never quiet
            calls.clear()
            await driver.pilot.pause(0.2)
            if not calls:
                break
        assert not calls
        del tree.reveal
        await driver.press("t")
        assert tree.here().compile_key == driver.app.compile_key
        assert tree.scroll_offset.y <= tree.cursor < tree.scroll_offset.y + tree.page


async def test_collapsing_keeps_the_cursor_on_its_node_and_the_last_key_wins(gpt2, opened):
    async with opened(gpt2) as driver:
        await driver.press("2")
        view = driver.app.view
        view.to_node("hidden_states_1")
        await driver.press("c")
        assert "by module, depth 1" in driver.frame()
        assert view.table.count() < len(view.graph.nodes)
        run = view.table.provider.at(view.table.selected)
        assert "hidden_states_1" in [node.name for node in view.graph.nodes[run.start : run.stop]]
        await driver.press("enter")  # unfolds; the cursor is on the first node of the run
        assert view.node().name == view.graph.nodes[run.start].name
        for _ in range(view._deepest):  # in one go: no answer of a worker comes in between
            view.do_collapse()
        await driver.settle()
        assert view.table.count() == len(view.graph.nodes)
        assert "by module" not in driver.frame()


async def test_a_mouse_selection_is_copied_as_it_is_drawn(gpt2, opened):
    async with opened(gpt2) as driver:
        await driver.press("8")
        code = driver.app.view.code
        whole = ["".join(text for text, _ in code.spans(line)) for line in (4, 5, 6)]
        chosen, _ = code.get_selection(Selection(Offset(3, 4), Offset(9, 6)))
        assert chosen == "\n".join([whole[0][3:], whole[1], whole[2][:9]])


async def test_texts_of_two_compiles_are_compared(gpt2, opened):
    async with opened(gpt2, size=(160, 30)) as driver:
        await driver.press("8", "d")
        await driver.type("1/1_1 forward.code")
        await driver.press("enter")
        view = driver.app.view
        diff = view.query_one(DiffView)
        assert driver.app.focused is diff
        assert "1/0_1 forward.code ↔ 1/1_1 forward.code" in driver.frame()
        assert (diff.rows[0].left, diff.rows[0].right) == ("# AOT ID: ['0_forward']", "# AOT ID: ['2_forward']")
        await driver.press("escape")
        assert driver.app.focused is view.code
        assert "text ‹forward.code›" in driver.frame()


async def test_a_text_compared_with_itself_has_no_difference_even_while_it_loads(gpt2, opened):
    async with opened(gpt2) as driver:
        await driver.press("8")
        view = driver.app.view
        shown, chosen = view.current, next(text for text in view.texts if text.label == "backward.code")
        view._show(chosen)
        view._compare(view.compile_key, chosen)  # no answer of a worker came in between
        await driver.settle()
        assert view.has_class("-diff")
        assert not [row for row in view.query_one(DiffView).rows if row.sign in "+-~"]
        view._compare(view.compile_key, shown)
        view._show(shown)
        await driver.settle()
        assert not view.has_class("-diff")  # it was about a text that is no longer shown


async def test_keys_while_a_subgraph_loads(gpt2, opened, monkeypatch):
    async with opened(gpt2) as driver:
        await driver.press("2")
        view = driver.app.view
        whole = view.graph
        view.to_node("inputs_embeds")
        body = Graph(name="body_0", nodes=whole.nodes[-9:])
        monkeypatch.setitem(whole.subgraphs, "body_0", body)
        view.enter("body_0")
        view.list_neighbours()  # of the node that is still shown
        view.do_collapse()
        assert view.table.provider.graph is whole
        await driver.settle()
        assert isinstance(driver.app.screen, PickScreen)
        await driver.press("escape")
        assert isinstance(view.table.provider, ModuleRows)
        assert view.table.provider.graph is view.graph is body


async def test_a_view_that_was_empty_takes_the_focus_when_it_fills(gpt2, opened, monkeypatch):
    async with opened(gpt2) as driver:
        emptied = []
        monkeypatch.setattr(View, "empty", lambda self, why="": emptied.append(why))
        await driver.press("2")
        assert not emptied  # it is never empty on the way to its graph
        monkeypatch.undo()
        view = driver.app.view
        assert driver.app.focused is view.table
        view.empty("nothing yet")
        driver.app.set_focus(None)
        await driver.settle()
        view.take_focus()
        assert driver.app.focused is None
        view.filled()
        await driver.settle()
        assert driver.app.focused is view.table
