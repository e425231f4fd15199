"""What users' programs meet inside of installed packages: the library's functions, its lines and its sizes are not theirs to change."""

import torch
from harness import problem, x0


def installed(text, package="acme/parts/inner.py"):
    """Functions as an installed package would have them: Dynamo goes by the file that their code names."""
    place = f"/opt/python/site-packages/{package}"
    names = {"torch": torch}
    exec(compile(text, place, "exec"), names)
    return names


@problem("dynamic-size", "container-size")
def two_kinds_of_calls_of_two_sizes(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x, **extra):
        return sum((x * value for value in extra.values()), x.relu())

    out = []
    for n in (4, 6, 8):
        for extra in ({}, {"mask": torch.ones(())}):
            x = x0(n, 3)
            if fixed:
                torch._dynamo.mark_dynamic(x, 0)
                extra = {"mask": torch.zeros(()), **extra}
            out.append(f(x, **extra).sum())
    return tuple(out)


@problem("data-dependent-value", "dynamic-size")
def two_breaks_of_one_line(fixed):
    @torch.compile(backend="eager")
    def f(x, y):
        a, b = (x.sum(), y.sum()) if fixed else (x.sum().item(), y.sum().item())  # HERE
        return x * a + y * b

    out = []
    for n in (4, 6, 8):
        x, y = x0(n), x0(n) + 1
        if fixed:
            torch._dynamo.mark_dynamic(x, 0)
            torch._dynamo.mark_dynamic(y, 0)
        out.append(f(x, y).sum())
    return tuple(out)


@problem("dynamic-output-shape", "library-code", "dynamic-size", "break-value")
def library_behind_a_break(fixed):
    library = installed("""
def outer(x, static):
    return inner(x, static).sum()

def inner(x, static):
    return keep(x, static) * 2

def keep(x, static):
    if static:
        return x * (x > 0)
    return x[x > 0]
""")

    @torch.compile(backend="eager", dynamic=True if fixed else None)
    def f(x):
        return library["outer"](x.relu(), fixed)  # HERE

    return tuple(f(x0(n) + 0.5) for n in (4, 6, 9))


@problem(
    "shape-expression", "dynamic-size", until=("2.12", "unsupported-builtin", "frame-skipped", "dynamic-size")
)  # which gave up at a text repeated by a size
def a_size_fixed_while_another_changes(fixed):
    @torch.compile(backend="eager")  # HERE
    def f(x, y):
        times = x.shape[0] if fixed else len("a" * x.shape[0])  # ASKED  # OLDER HERE
        return x.sum() * times + y.sum()

    out = []
    for n, m in ((3, 10), (4, 10), (5, 11)):
        x, y = x0(n), x0(m)
        if fixed:
            torch._dynamo.mark_dynamic(x, 0)
            torch._dynamo.mark_dynamic(y, 0)
        out.append(f(x, y))
    return tuple(out)
