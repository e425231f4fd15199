"""torch.compile calls that come to nothing, by the program's text: thrown away, forgotten, never called, or switched off."""

from __future__ import annotations

import ast
import re

from fxscope.diagnosis.program import is_compile_call, own_expressions, scopes, statements

NEVER_RAN = "torch.compile was called, but what it returned never ran."
UNREACHED = "No compiled function was called."
_SWITCH_ON = (
    'Take that out for the run that shall be compiled: torch.compiler.set_stance("default"), torch._dynamo.config.disable = False, no TORCH_COMPILE_DISABLE '
    "or TORCHDYNAMO_DISABLE in the environment, no disable=True. As a context manager, set_stance ends with its block."
)


def wasted(program: str, tree: ast.Module | None) -> tuple[str, int, str, str]:
    """File, line, cause and fix of the torch.compile call that came to nothing."""
    if tree is not None:
        suspects = list(_suspects(tree))
        if suspects:
            node, why, fix = suspects[0]
            return program, node.lineno, why, fix
    if tree is not None and (other := other_method(tree)) is not None:
        return of_other_method(program, other)
    if tree is not None and (off := switched_off(tree)) is not None:
        return program, off.lineno, f"The program switches torch.compile off: `{ast.unparse(off)[:100]}`.", _SWITCH_ON
    if tree is not None and (passed := original_called(tree)) is not None:
        node, name, target, call = passed
        return (
            program,
            node.lineno,
            f"What torch.compile returned ({name}) is never called: line {call.lineno} uses {target}, the original, which compiling does not change.",
            f"before:\n    {ast.unparse(call).partition(chr(10))[0]}\nafter:\n    {_renamed(call, target, name)}{_in_place(tree, target)}",
        )
    if tree is not None and (way := _roundabout(tree)) is not None:
        return program, way[0].lineno, way[1], way[2]
    if program and tree is not None and (decorated := _compile_calls(tree)):
        return (
            program,
            decorated[0].lineno,
            NEVER_RAN,
            ("Call the compiled function itself (not the original, a bound .forward or a copy made before compiling)."),
        )
    return program, 0, "", ""


def of_other_method(program: str, other: OtherMethod) -> tuple[str, int, str, str]:
    """File, line, cause and fix where only another method than forward of a compiled module is called."""
    node, name, method, target = other
    options = ", ".join(ast.unparse(each) for each in node.value.keywords) if isinstance(node.value, ast.Call) else ""
    place = (
        f"{target}.compile({options})" if target.isidentifier() else f"{name} = {target}\n    {name}.compile({options})"
    )
    owner = target if target.isidentifier() else name
    return (
        program,
        node.lineno,
        f"torch.compile of a module compiles its forward; {name}.{method} is the original's own method and runs eager.",
        (
            f"Where {method} calls the module itself (self(x), as generate does), compile that in place: before:\n    {ast.unparse(node)}\nafter:\n    {place}\n"
            f"else compile the method: {owner}.{method} = torch.compile({owner}.{method}); or call {name}(...), whose forward is compiled."
        ),
    )


def _suspects(tree: ast.Module) -> list[tuple[ast.stmt, str, str]]:
    """torch.compile calls whose result cannot be used: thrown away, or bound to a name that nothing reads."""
    found: list[tuple[ast.stmt, str, str]] = []
    for scope in scopes(tree):
        for node in statements(scope):
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Call)
                and (is_compile_call(node.value) or _makes_decorator(node.value.func))
            ):
                target = _compiled(node.value)
                bound = target if re.fullmatch(r"[\w.]+", target) else "compiled"
                found.append(
                    (
                        node,
                        "The result of torch.compile is thrown away; it does not change its argument.",
                        f"before:\n    {ast.unparse(node)}\nafter:\n    {bound} = {ast.unparse(node)}{_in_place(tree, target)}",
                    )
                )
            elif isinstance(node, ast.Assign) and is_compile_call(node.value) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                if name == "self" or (
                    isinstance(scope, (ast.FunctionDef, ast.AsyncFunctionDef))
                    and name not in _of_others(scope)
                    and not _read_after(scope, name, node)
                ):
                    kept = "eturn what torch.compile returned and use it in the caller."
                    in_place = _compile_in_place(tree, node.value)
                    found.append(
                        (
                            node,
                            f"What torch.compile returned is bound to the local name {name!r} and forgotten when the function returns; the caller still has the original.",
                            f"before:\n    {ast.unparse(node)}\nafter:\n    {in_place}\nor r{kept}"
                            if in_place
                            else f"R{kept}",
                        )
                    )
    return found


def _makes_decorator(node: ast.expr) -> bool:
    """``torch.compile(backend=...)``, whose call with a function compiles that; ``torch.compile(f)(x)`` runs."""
    return is_compile_call(node) and not _given(node)


def _given(node: ast.expr) -> ast.expr | None:
    """What a call is given to compile, None for nothing."""
    if not isinstance(node, ast.Call):
        return None
    return next(iter([*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "model")]), None)


def _compiled(node: ast.expr) -> str:
    given = _given(node)
    return ast.unparse(given) if given is not None else "model"


def _of_others(scope: ast.AST) -> set[str]:
    """Names that a function sets for the module or for the function around it."""
    return {name for node in statements(scope) if isinstance(node, (ast.Global, ast.Nonlocal)) for name in node.names}


def _compile_in_place(tree: ast.Module, node: ast.expr) -> str:
    """``net.compile(dynamic=True)`` for ``torch.compile(net, dynamic=True)``; "" where it compiles no module that has a name."""
    target = _compiled(node).removesuffix(".forward")
    if not isinstance(node, ast.Call) or _given(node) is None or not _in_place(tree, target):
        return ""
    options = ", ".join(ast.unparse(keyword) for keyword in node.keywords if keyword.arg != "model")
    return f"{target}.compile({options})"


# Methods of a module that run no forward, so that nobody expects them compiled.
_KEEPING = re.compile(
    r"^(train|eval|to|cpu|cuda|half|float|double|bfloat16|parameters|named_\w+|buffers|children|modules|state_dict|load_\w+|requires_grad_|zero_grad|apply|"
    r"compile|register_\w+|get_\w+|set_\w+|share_memory|extra_repr|type|save\w*|push_to_hub|tie_weights|summary|reset\w*|clear\w*|print_\w+|num_\w+|"
    r"count_\w+|init_\w+|initialize\w*|(un)?freeze\w*|(en|dis)able_\w+|gradient_checkpointing_\w+|resize_\w+|add_\w+|configure_\w+|log|log_dict|_\w+)$"
)
_PLAIN = frozenset({"device", "dtype", "config", "generation_config", "training"})  # attributes that lead to no forward
OtherMethod = tuple[ast.Assign, str, str, str]


def other_method(tree: ast.Module) -> OtherMethod | None:
    """``fast = torch.compile(net)`` of which only another method than forward is ever called: statement, name, method, target.

    A name that is returned, assigned, put into something or handed on may be called there, and is none.
    """
    nodes = list(ast.walk(tree))
    for node in nodes:
        if not (isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.value, ast.Call)):
            continue
        if not (is_compile_call(node.value) and node.value.args):
            continue
        methods = _methods_called(nodes, node.targets[0], besides={id(each) for each in ast.walk(node)})
        method = next((method for method in methods if not _KEEPING.match(method)), None)
        if method is not None:
            return node, ast.unparse(node.targets[0]), method, ast.unparse(node.value.args[0])
    return None


def _methods_called(nodes: list[ast.AST], target: ast.expr, besides: set[int]) -> list[str]:
    """Methods of what is bound to a name or to ``self.x`` (``engine.x`` elsewhere) that are called; [] where it is used otherwise as well."""

    def bound(node: ast.AST) -> bool:
        if isinstance(target, ast.Name):
            return isinstance(node, ast.Name) and node.id == target.id
        return isinstance(node, ast.Attribute) and isinstance(target, ast.Attribute) and node.attr == target.attr

    if not (
        isinstance(target, ast.Name) or (isinstance(target, ast.Attribute) and ast.unparse(target.value) == "self")
    ):
        return []  # an item of a list, or part of an object: whoever has that may call it
    found = [node.func for node in nodes if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    methods = [node for node in found if bound(node.value)]
    plain = [node for node in nodes if isinstance(node, ast.Attribute) and node.attr in _PLAIN]
    told = besides | {id(node.value) for node in (*methods, *plain)}
    if any(
        bound(node) and id(node) not in told and isinstance(getattr(node, "ctx", None), ast.Load) for node in nodes
    ) or any(method.attr in ("forward", "__call__") for method in methods):
        return []
    return [method.attr for method in methods]


def _compile_calls(tree: ast.Module) -> list[ast.expr]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call) and is_compile_call(node)]


def _read_after(scope: ast.AST, name: str, node: ast.stmt) -> bool:
    return any(
        isinstance(each, ast.Name) and each.id == name and isinstance(each.ctx, ast.Load) and each.lineno > node.lineno
        for each in ast.walk(scope)
    )


def _in_place(tree: ast.Module, target: str) -> str:
    """The other way for a module; "" for a function, which has no ``compile``, and for what has no name."""
    if not re.fullmatch(r"[\w.]+", target):
        return ""
    if target.endswith(".forward"):
        return f"\nor compile in place: {target.removesuffix('.forward')}.compile()"
    functions = {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))}
    if target.rpartition(".")[2] in functions:
        return ""
    return f"\nor compile in place, so that every use of it is compiled: {target}.compile()"


def _roundabout(tree: ast.Module) -> tuple[ast.stmt, str, str] | None:
    """Ways around what was compiled: the loop variable only, ``_orig_mod``, a condition that did not hold. Statement, cause, fix."""
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Assign) and is_compile_call(node.value) and isinstance(node.targets[0], ast.Name)):
            continue
        name = node.targets[0].id
        for outer in ast.walk(tree):
            if isinstance(outer, ast.For) and node in outer.body and ast.unparse(outer.target) == name:
                every = ast.unparse(outer.iter)
                why = f"The loop binds its variable {name} to what torch.compile returned; {every} still holds the originals."
                return node, why, _in_loop(tree, node, outer)
            if isinstance(outer, ast.If) and node in outer.body and "__name__" not in ast.unparse(outer.test):
                return (
                    node,
                    f"{UNREACHED} torch.compile stands under a condition (line {outer.lineno}: `if {ast.unparse(outer.test)}:`), which may not have held in this run.",
                    "Record a run in which the condition holds, or take the call out of it.",
                )
        used = next(
            (each for each in ast.walk(tree) if isinstance(each, ast.Attribute) and each.attr == "_orig_mod"), None
        )
        if used is not None and ast.unparse(used.value) == name:
            return (
                node,
                f"Line {used.lineno} goes around what was compiled: {name}._orig_mod is the original module, and runs eager.",
                f"Call {name}(...) itself; _orig_mod is for saving, copying and unwrapping.",
            )
    return None


def _in_loop(tree: ast.Module, node: ast.Assign, loop: ast.For) -> str:
    """A list of its own name may hold the compiled ones instead; what a module holds is compiled in place."""
    name, every = ast.unparse(node.targets[0]), ast.unparse(loop.iter)
    in_place = _compile_in_place(tree, node.value)
    head = f"before:\n    for {name} in {every}:\n        {ast.unparse(node)}\nafter:\n    "
    if isinstance(loop.iter, ast.Name):
        text = f"{head}{every} = [{ast.unparse(node.value)} for {name} in {every}]"
        return f"{text}\nor, for modules, compile in place: {in_place} in the loop" if in_place else text
    if in_place:
        return f"{head}for {name} in {every}:\n        {in_place}"
    return f"Keep what torch.compile returns where it is called from: {every} is not changed by the loop."


def switched_off(tree: ast.Module) -> ast.stmt | ast.expr | None:
    """The statement that switches torch.compile off: a stance, a setting, a variable of the environment, ``disable=True``."""
    for scope in scopes(tree):
        for node in statements(scope):
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                found = next((each for each in node.decorator_list if _switches_off(ast.Expr(value=each))), None)
                if found is not None:
                    return found
            elif _switches_off(node):
                return node
    return None


def _switches_off(node: ast.stmt) -> bool:
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.value, ast.Constant):
        target = ast.unparse(node.targets[0])
        if re.search(r"dynamo\.config\.disable$", target):
            return node.value.value is True
        return (
            bool(re.search(r"environ\[['\"](TORCH_COMPILE|TORCHDYNAMO)_DISABLE['\"]\]", target))
            and str(node.value.value) == "1"
        )
    heads: list[ast.AST] = [item.context_expr for item in getattr(node, "items", [])]
    if isinstance(node, (ast.Expr, ast.Assign, ast.Return)) and node.value is not None:
        heads.append(node.value)
    for head in heads:
        for call in ast.walk(head):
            if not isinstance(call, ast.Call):
                continue
            if ast.unparse(call.func).endswith("set_stance") and "'force_eager'" in ast.unparse(call):
                return True
            if is_compile_call(call) and any(
                k.arg == "disable" and ast.unparse(k.value) == "True" for k in call.keywords
            ):
                return True
    return False


def original_called(tree: ast.Module) -> tuple[ast.Assign, str, str, ast.stmt] | None:
    """``fast = torch.compile(net)`` of which only ``net`` is called or handed on: statement, both names, and what uses the original."""
    for node in ast.walk(tree):
        if not (
            isinstance(node, ast.Assign)
            and is_compile_call(node.value)
            and isinstance(node.value, ast.Call)
            and node.value.args
        ):
            continue
        name, target = ast.unparse(node.targets[0]), ast.unparse(node.value.args[0])
        if name == target or not re.fullmatch(r"[\w.]+", target):
            continue
        direct: list[ast.stmt] = []
        passed_on: list[ast.stmt] = []
        for scope in scopes(tree):
            for other in statements(scope):
                if other is node or isinstance(other, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                    continue
                called, handed = _called_or_handed(other)
                if name in called | handed:
                    return None
                if other.lineno > node.lineno and target in called | handed:
                    (direct if target in called else passed_on).append(other)
        if uses := direct or passed_on:
            return node, name, target, min(uses, key=lambda each: each.lineno)
    return None


# Being handed to these runs no forward.
_ONLY_READS = re.compile(
    r"^(print|len|type|isinstance|issubclass|hasattr|getattr|setattr|callable|id|repr|str|hash|sum|next|iter|list|dir|vars|torch\.save|copy\.deepcopy|deepcopy|"
    r"(\w+\.)*(optim\.\w+|summary|log\w*|debug|info|warning))$"
)


def _called_or_handed(node: ast.stmt) -> tuple[set[str], set[str]]:
    """What a statement itself calls, and what it passes to functions that may call it."""
    calls = [part for head in own_expressions(node) for part in ast.walk(head) if isinstance(part, ast.Call)]
    called = {ast.unparse(call.func) for call in calls}
    handed = {
        ast.unparse(each)
        for call in calls
        if not _ONLY_READS.match(ast.unparse(call.func))
        for each in (*call.args, *(keyword.value for keyword in call.keywords))
    }
    return called, handed


def _renamed(node: ast.stmt, target: str, name: str) -> str:
    return re.sub(rf"(?<![\w.]){re.escape(target)}(?![\w])", name, ast.unparse(node).split("\n", 1)[0])
