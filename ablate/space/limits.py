"""Limits: arithmetic over costs and levels, such as `flops <= 1.05 * baseline.flops`.

A limit is parsed, never executed.
"""

from __future__ import annotations

import ast
import warnings
from collections.abc import Collection
from dataclasses import fields

from ablate.records import Arithmetic, Cost, CostOf, LevelOf, Limit, Relation, Term

EXAMPLES = '"<= 6e6", "<= 1.1 * baseline", "< baseline"'
FULL_EXAMPLES = (
    '"params <= 6e6", "flops <= 1.05 * baseline.flops", "flops / baseline.flops +'
    ' params / baseline.params <= 2.1", "size.width * size.depth <= 512"'
)
LONGEST = 500
# No cost is this large. A larger number would be a mistake, and its products would not
# be finite.
MOST = 1e30
_COSTS = tuple(field.name for field in fields(Cost))
_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
}
_RELATIONS: dict[type[ast.cmpop], Relation] = {
    ast.LtE: "<=",
    ast.Lt: "<",
    ast.GtE: ">=",
    ast.Gt: ">",
}


def parse(text: str, cost: str = "", factors: Collection[str] = ()) -> Limit | None:
    """Returns the limit that a text expresses, or None if it expresses none.

    Args:
        cost: the cost to put before a text of the short form, as in `flops: "<= 1.1 *
            baseline"`.
        factors: those that a limit may name; their levels are numbers.
    """
    words = " ".join(f"{cost} {text}".split())
    try:
        with warnings.catch_warnings():
            # Python warns about some texts that are about to be refused, such as
            # escapes in quotes.
            warnings.simplefilter("ignore", SyntaxWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            # A text that is too long is refused below; parsing all of it takes long.
            tree = ast.parse(words[: LONGEST + 1], mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if len(words) > LONGEST or not isinstance(tree, ast.Compare) or len(tree.ops) != 1:
        return None
    relation = _RELATIONS.get(type(tree.ops[0]))
    left = _term(tree.left, cost, factors)
    right = _term(tree.comparators[0], cost, factors)
    if (
        relation is None
        or left is None
        or right is None
        or not (_depends_on_cell(left) or _depends_on_cell(right))
    ):
        return None
    return Limit(text=words, left=left, relation=relation, right=right)


def _term(node: ast.expr, cost: str, factors: Collection[str]) -> Term | None:
    """Returns the term that a node of the syntax tree expresses, or None."""
    match node:
        case ast.Constant(value=value):
            return _number(value)
        case ast.Name() | ast.Attribute():
            return _named(ast.unparse(node), cost, factors)
        case ast.BinOp():
            return _arithmetic(node, cost, factors)
    return None


def _named(name: str, cost: str, factors: Collection[str]) -> Term | None:
    if name in _COSTS:
        return CostOf(name, of_baseline=False)
    if name in factors:
        return LevelOf(name)
    if name == "baseline" and cost:
        return CostOf(cost, of_baseline=True)
    owner, _, cost_name = name.partition(".")
    if owner == "baseline" and cost_name in _COSTS:
        return CostOf(cost_name, of_baseline=True)
    return None


def _arithmetic(
    node: ast.BinOp, cost: str, factors: Collection[str]
) -> Arithmetic | None:
    left = _term(node.left, cost, factors)
    right = _term(node.right, cost, factors)
    operator = _OPERATORS.get(type(node.op))
    if left is None or right is None or operator is None:
        return None
    return Arithmetic(left, operator, right)


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < MOST else None


def _depends_on_cell(term: Term) -> bool:
    """Whether the term contains a cost or a level of the cell.

    A limit on the baseline alone would not limit any cell.
    """
    if isinstance(term, Arithmetic):
        return _depends_on_cell(term.left) or _depends_on_cell(term.right)
    if isinstance(term, CostOf):
        return not term.of_baseline
    return isinstance(term, LevelOf)


def has_cost(term: Term) -> bool:
    """Whether the term contains a cost, of the cell or of the baseline."""
    if isinstance(term, Arithmetic):
        return has_cost(term.left) or has_cost(term.right)
    return isinstance(term, CostOf)
