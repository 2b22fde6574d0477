"""Mutants: what is changed in a function, one small change each.

A mutant replaces one node of a function's syntax tree: an operator by its neighbour, a condition by True or False, a
constant by another one, a loop by one that never runs, a statement by nothing. Not mutated are definitions (decorators,
default values, annotations, class bodies and modules, which run at import), docstrings, what is logged, assertions and
``zip(strict=True)`` (they check, and decide nothing), and the arguments of errors that are raised (their text).
"""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from types import CodeType

#: The way from one node of a syntax tree to another: a field and, if it holds a list, the index in it.
Step = tuple[str, int | None]

_COMPARISONS: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_OPERATORS: Mapping[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.FloorDiv,
    ast.FloorDiv: ast.Mult,
    ast.Div: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
    ast.BitXor: ast.BitAnd,
    ast.LShift: ast.RShift,
    ast.RShift: ast.LShift,
}
#: Functions that are mistaken for each other.
_FUNCTIONS: Mapping[str, str] = {
    one: other
    for pair in (
        ("min", "max"),
        ("any", "all"),
        ("minimum", "maximum"),
        ("argmin", "argmax"),
        ("floor", "ceil"),
        ("logical_and", "logical_or"),
    )
    for one, other in (pair, pair[::-1])
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one function of a module."""

    module: str
    file: Path
    #: The qualified name of the function, or of the outermost one if functions are nested.
    function: str
    #: The lines whose execution can reach the change: from the first line of its statement to the last line of itself.
    lines: range
    #: The text of the first line that is changed, without indentation.
    source: str
    #: What is changed: ``before → after``.
    change: str
    steps: tuple[Step, ...]
    #: Which of the replacements of the node this is.
    variant: int
    #: How many changes of the function before this one read the same.
    occurrence: int
    #: The first line of the function.
    start: int
    #: A digest of the function's text.
    digest: str
    #: The text of the module, which may be edited while its mutants are run.
    text: str = field(repr=False, compare=False)

    @property
    def name(self) -> str:
        """What identifies the mutant, also when lines and other functions change."""
        return f"{self.module} {self.function}: {self.source} [{self.change}] {self.occurrence}"

    @property
    def line(self) -> int:
        """The line at which the changed statement begins."""
        return self.lines.start

    def __str__(self) -> str:
        return f"{self.module}:{self.line} {self.function}: {self.source}  [{self.change}]"


def mutants(module: str, file: Path) -> Iterator[Mutant]:
    """All mutants of a module's functions, in the order of the source."""
    text = file.read_text(encoding="utf-8")
    lines = text.splitlines()
    for function, way, definition in _functions(ast.parse(text), (), ""):
        digest = _digest(definition, lines)
        seen: Counter[tuple[str, str]] = Counter()
        for steps, node, parent, statement in _places(definition, way):
            reached = range(statement.lineno, (node.end_lineno or node.lineno) + 1)
            for variant, replacement in enumerate(_replacements(node, parent, steps[-1][0], function)):
                source = lines[node.lineno - 1].strip()
                change = f"{ast.unparse(node)} → {ast.unparse(replacement)}"
                occurrence = seen[source, change]
                seen[source, change] += 1
                yield Mutant(
                    *(module, file, function, reached, source, change, steps, variant, occurrence),
                    *(definition.lineno, digest, text),
                )


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a module, with all that is nested in it."""

    name: str
    lines: range
    digest: str


def functions(text: str) -> Iterator[Function]:
    """The functions and methods of a module that can have mutants."""
    lines = text.splitlines()
    for name, _, definition in _functions(ast.parse(text), (), ""):
        extent = range(definition.lineno, (definition.end_lineno or definition.lineno) + 1)
        yield Function(name, extent, _digest(definition, lines))


def mutated(mutant: Mutant) -> CodeType:
    """The code of the mutant's module. Raises SyntaxError if the change makes no sense there."""
    tree = ast.parse(mutant.text)
    parent: ast.AST = tree
    for name, index in mutant.steps[:-1]:
        parent = getattr(parent, name) if index is None else getattr(parent, name)[index]
    name, index = mutant.steps[-1]
    node = getattr(parent, name) if index is None else getattr(parent, name)[index]
    replacement = list(_replacements(node, parent, name, mutant.function))[mutant.variant]
    replacement = ast.copy_location(_keeping_names(node, replacement), node)
    if index is None:
        setattr(parent, name, replacement)
    else:
        getattr(parent, name)[index] = replacement
    return compile(ast.fix_missing_locations(tree), str(mutant.file), "exec", dont_inherit=True)


# -- where a function can change ------------------------------------------------------------------------------------


def _functions(
    node: ast.AST, steps: tuple[Step, ...], prefix: str
) -> Iterator[tuple[str, tuple[Step, ...], ast.FunctionDef | ast.AsyncFunctionDef]]:
    """The functions and methods of a module, with their qualified names, without those within functions."""
    for step, child in _children(node):
        match child:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                if name != "__repr__":  # for debuggers
                    yield prefix + name, (*steps, step), child
            case ast.ClassDef(name=name):
                yield from _functions(child, (*steps, step), f"{prefix}{name}.")
            case ast.stmt() if not isinstance(node, ast.If) or not _is_type_checking(node):
                yield from _functions(child, (*steps, step), prefix)


def _digest(definition: ast.stmt, lines: Sequence[str]) -> str:
    return sha256("\n".join(lines[definition.lineno - 1 : definition.end_lineno]).encode()).hexdigest()[:16]


def _places(
    node: ast.AST, steps: tuple[Step, ...], within: ast.stmt | None = None
) -> Iterator[tuple[tuple[Step, ...], ast.expr | ast.stmt, ast.AST, ast.stmt]]:
    """What can be replaced in a node: the way to it, itself, its parent, its statement. Outer nodes come first."""
    for step, child in _children(node):
        if _decides_nothing(child, node, step):
            continue
        statement = child if isinstance(child, ast.stmt) else within
        if isinstance(child, ast.expr | ast.stmt) and statement is not None:
            yield (*steps, step), child, node, statement
        if not isinstance(child, ast.Raise):
            yield from _places(child, (*steps, step), statement)


def _children(node: ast.AST) -> Iterator[tuple[Step, ast.AST]]:
    for name, value in ast.iter_fields(node):
        if isinstance(value, ast.AST):
            yield (name, None), value
        elif isinstance(value, list):
            yield from (((name, index), one) for index, one in enumerate(value) if isinstance(one, ast.AST))


def _decides_nothing(node: ast.AST, parent: ast.AST, step: Step) -> bool:
    """Whether mutants leave a part of a function as it is: see the docstring of the module."""
    match node:
        case ast.arguments() | ast.Assert() | ast.Import() | ast.ImportFrom():
            return True
        case ast.Expr(value=ast.Constant()):  # a docstring, or `...`
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(value=ast.Name(id="_log")))):
            return True
        case ast.keyword(arg="strict"):
            return True
    match parent:
        case ast.Call(func=ast.Name(id="cast")):
            return step == ("args", 0)
    return step[0] in ("annotation", "returns", "decorator_list", "format_spec")


def _is_type_checking(node: ast.If) -> bool:
    return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


# -- what can stand there instead -----------------------------------------------------------------------------------


def _replacements(node: ast.AST, parent: ast.AST, field: str, function: str) -> Iterator[ast.AST]:
    """What a node can be replaced by, which is in the given field of its parent."""
    if isinstance(node, ast.stmt):
        return _other_statements(node, function)
    assert isinstance(node, ast.expr)
    return _other_expressions(node, parent, field)


def _other_statements(node: ast.stmt, function: str) -> Iterator[ast.stmt]:
    match node:
        case ast.Expr(value=ast.Call() | ast.Await()) | ast.Delete() | ast.Raise():
            yield ast.Pass()
        case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]) | ast.AnnAssign(target=ast.Attribute()):
            if not function.endswith("__init__"):  # then any use of the object fails
                yield ast.Pass()
        case ast.AugAssign(op=operator):
            yield ast.Pass()
            if other := _OPERATORS.get(type(operator)):
                yield ast.AugAssign(target=node.target, op=other(), value=node.value)
        case ast.Return(value=ast.expr() as value) if not _is_empty(value):
            yield ast.Return(value=ast.Constant(None))
        case ast.Break():
            yield ast.Continue()
        case ast.Continue():
            yield ast.Break()


def _other_expressions(node: ast.expr, parent: ast.AST, field: str) -> Iterator[ast.expr]:
    if field in ("test", "ifs", "guard"):
        yield ast.Constant(False)
        if not isinstance(parent, ast.While):  # it would not end
            yield ast.Constant(True)
    elif field == "iter" and isinstance(parent, ast.For):
        yield ast.Tuple(elts=[], ctx=ast.Load())
    match node:
        case ast.Compare(left=left, ops=ops, comparators=comparators):
            for index, one in enumerate(ops):
                others = [*ops[:index], _COMPARISONS[type(one)](), *ops[index + 1 :]]
                yield ast.Compare(left=left, ops=others, comparators=comparators)
        case ast.BoolOp(op=boolean, values=values):
            yield ast.BoolOp(op=ast.Or() if isinstance(boolean, ast.And) else ast.And(), values=values)
        case ast.UnaryOp(op=ast.Not() | ast.USub() | ast.Invert(), operand=operand):
            yield operand
        case ast.BinOp(left=left, op=operator, right=right):
            if (other := _OPERATORS.get(type(operator))) and not _is_text(left) and not _is_text(right):
                yield ast.BinOp(left=left, op=other(), right=right)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=keywords) if name in _FUNCTIONS:
            yield ast.Call(func=ast.Name(id=_FUNCTIONS[name], ctx=ast.Load()), args=args, keywords=keywords)
        case ast.Call(func=ast.Attribute(value=value, attr=name), args=args, keywords=keywords) if name in _FUNCTIONS:
            other_function = ast.Attribute(value=value, attr=_FUNCTIONS[name], ctx=ast.Load())
            yield ast.Call(func=other_function, args=args, keywords=keywords)
        case ast.JoinedStr():
            yield ast.Constant("")
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield ast.Constant(value + 1)
        case ast.Constant(value=str(value)) if not isinstance(parent, ast.JoinedStr):
            yield ast.Constant("" if value else "?")


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str))


def _is_empty(node: ast.expr) -> bool:
    """Whether None instead of the value of an expression is often the same: a constant, or an empty collection."""
    match node:
        case ast.Constant() | ast.Tuple(elts=[]) | ast.List(elts=[]) | ast.Dict(keys=[]):
            return True
    return False


def _keeping_names(original: ast.AST, replacement: ast.AST) -> ast.AST:
    """The replacement, with the original in a branch that never runs if some of its names are missing.

    So the function has the same local and free variables, without which its code cannot be exchanged.
    """
    if _names(original) <= _names(replacement):
        return replacement
    never = ast.Constant(False)
    if isinstance(original, ast.stmt) and isinstance(replacement, ast.stmt):
        return ast.If(test=never, body=[original], orelse=[replacement])
    assert isinstance(original, ast.expr)
    assert isinstance(replacement, ast.expr)
    return ast.IfExp(test=never, body=original, orelse=replacement)


def _names(node: ast.AST) -> set[str]:
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
