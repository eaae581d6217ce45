"""Small changes of a file: a comparison turned, a constant raised, `and` for `or`."""

import ast
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
OPERATORS: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.BitAnd: ast.BitOr,
    ast.BitOr: ast.BitAnd,
}
# Code without behaviour: annotations, the options of decorators, assertions, text that is put together.
SKIPPED_FIELDS = {"annotation", "returns", "decorator_list"}
LARGE = 10  # a number from here on is doubled: one more of hundreds of characters or resamples is no fault
SKIPPED_NODES = (ast.Assert, ast.JoinedStr, ast.Raise)
# A hash's length, the options of dataclass fields, an assertion that two lists are as long, and the look of a table.
SKIPPED_KEYWORDS = {
    "digest_size",
    "repr",
    "compare",
    "strict",
    "no_wrap",
    "end_section",
    "show_edge",
    "digits",
    "stacklevel",
}
# Defaults of which another is as good.
SKIPPED_DEFAULTS = {"seed", "num_resamples", "num_examples"}
# Numbers that only tell stored data from another's, or cut work into parts: they cost time or memory alone.
SKIPPED_NAMES = ("VERSION", "CHUNK", "BLOCK", "BATCH_TOKENS")


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one file.

    Args:
        path: The file, relative to the root.
        line: Where it is changed.
        before: The code that is changed.
        after: The code in its place.
        source: The whole file with the change.
        lines: The lines of the statement around it, of which a test that notices must run one.
        code: What the line says before.
        number: Counts from the second change that is the same, in lines that are the same.
    """

    path: str
    line: int
    before: str
    after: str
    source: str
    lines: range
    code: str
    number: int = 1

    @property
    def name(self) -> str:
        """Names the change whatever the rest of the file says: other edits do not move a sample, or a listed reason."""
        again = f"  #{self.number}" if self.number > 1 else ""
        return f"{self.path}:  {self.code}  :  {self.before}  ->  {self.after}{again}"

    @property
    def key(self) -> str:
        """Names the change by all that the file then does: comments and docstrings may change."""
        tree = ast.parse(self.source)
        for node in ast.walk(tree):
            for block in (getattr(node, name, None) for name in ("body", "orelse", "finalbody")):
                if isinstance(block, list):
                    block[:] = [one for one in block if not _is_text(one)]
        digest = hashlib.blake2b(ast.dump(tree).encode(), digest_size=8).hexdigest()
        return f"{digest} {self.name}"

    def __str__(self) -> str:
        return f"{self.path}:{self.line}  {self.before}  ->  {self.after}"


def mutants_of(root: Path, path: str) -> Iterator[Mutant]:
    """Yields every change of a file, in the order of its lines."""
    text = (root / path).read_text(encoding="utf-8")
    starts, code_lines = [0], text.splitlines()
    counts: Counter[str] = Counter()
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node, lines in _nodes(ast.parse(text), range(0)):
        for changed in _changes(node):
            begin = starts[node.lineno - 1] + node.col_offset
            end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
            code = text.encode()
            before, after = code[begin:end].decode(), ast.unparse(changed)
            if not isinstance(node, ast.stmt):
                after = f"({after})"
            source = (code[:begin] + after.encode() + code[end:]).decode()
            place = code_lines[node.lineno - 1].strip()
            mutant = Mutant(path, node.lineno, _in_one_line(before), _in_one_line(after), source, lines, place)
            counts[mutant.name] += 1
            yield replace(mutant, number=counts[mutant.name])


def sample(mutants: Iterable[Mutant], num: int, seed: int) -> list[Mutant]:
    """Draws mutants by the hash of their names, so that an edit elsewhere leaves the sample as it is."""

    def draw(mutant: Mutant) -> bytes:
        return hashlib.blake2b(f"{seed} {mutant.name}".encode(), digest_size=8).digest()

    return sorted(sorted(mutants, key=draw)[:num], key=lambda mutant: (mutant.path, mutant.line))


def _nodes(node: ast.AST, lines: range) -> Iterator[tuple[ast.expr | ast.stmt, range]]:
    """All expressions and statements with behaviour, each before what stands inside it, with its statement's lines."""
    if isinstance(node, SKIPPED_NODES) or _is_for_type_checkers(node) or _is_without_behaviour(node):
        return
    if isinstance(node, ast.stmt):
        body = getattr(node, "body", None)
        lines = range(node.lineno, body[0].lineno if body else (node.end_lineno or node.lineno) + 1)
    if isinstance(node, ast.expr | ast.stmt):
        yield node, lines
    if isinstance(node, ast.arguments):
        for default in _defaults(node):
            yield from _nodes(default, lines)
        return
    for name, value in ast.iter_fields(node):
        if name not in SKIPPED_FIELDS:
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from _nodes(child, lines)


def _defaults(arguments: ast.arguments) -> list[ast.expr]:
    places = [*arguments.posonlyargs, *arguments.args]
    pairs = list(zip(reversed(places), reversed(arguments.defaults), strict=False))[::-1]
    pairs += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    return [default for argument, default in pairs if default is not None and argument.arg not in SKIPPED_DEFAULTS]


def _is_for_type_checkers(node: ast.AST) -> bool:
    """An alias of a type, or imports that only a type checker reads."""
    if isinstance(node, ast.If):
        return isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
    names = {part.id for part in ast.walk(value) if isinstance(part, ast.Name)} if value is not None else set()
    return bool(names & {"Annotated", "Literal", "NDArray", "Callable", "TypeVar"})


def _is_without_behaviour(node: ast.AST) -> bool:
    """Tells the arguments and the numbers that no test could see."""
    match node:
        case ast.keyword(arg=name):
            return name in SKIPPED_KEYWORDS
        case ast.Assign(targets=[target]):
            names = target.elts if isinstance(target, ast.Tuple) else [target]
            return all(isinstance(name, ast.Name) and name.id.endswith(SKIPPED_NAMES) for name in names)
        case ast.BinOp(left=ast.Constant(), op=ast.LShift(), right=ast.Constant()):
            return True
    return False


def _changes(node: ast.expr | ast.stmt) -> Iterator[ast.AST]:
    match node:
        case ast.Compare(ops=ops):
            for place, old in enumerate(ops):
                if new := COMPARISONS.get(type(old)):
                    turned: Sequence[ast.cmpop] = [*ops[:place], new(), *ops[place + 1 :]]
                    yield ast.Compare(node.left, list(turned), node.comparators)
        case ast.BoolOp(op=ast.And()):
            yield ast.BoolOp(ast.Or(), node.values)
        case ast.BoolOp():
            yield ast.BoolOp(ast.And(), node.values)
        case ast.BinOp(op=ast.Div(), right=ast.Constant(value=str()) | ast.JoinedStr()):
            return  # a path, which has no product
        case ast.BinOp(op=old_operator) if new_operator := OPERATORS.get(type(old_operator)):
            yield ast.BinOp(node.left, new_operator(), node.right)
        case ast.AugAssign(op=old_operator) if new_operator := OPERATORS.get(type(old_operator)):
            yield ast.AugAssign(node.target, new_operator(), node.value)
        case ast.UnaryOp(op=ast.Not() | ast.USub()):
            yield node.operand
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value) | float(value)):
            yield ast.Constant(value + 1 if value < LARGE else 2 * value)
        case ast.Name(id="min"):
            yield ast.Name("max")
        case ast.Name(id="max"):
            yield ast.Name("min")
        case ast.Continue():
            yield ast.Break()
        case ast.Break():
            yield ast.Continue()
        case _:
            return


def _is_text(statement: ast.AST) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def _in_one_line(code: str) -> str:
    text = " ".join(code.split())
    return text if len(text) <= 100 else f"{text[:97]}..."
