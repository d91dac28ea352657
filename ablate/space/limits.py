"""Limits on cost: arithmetic over costs, as in `flops <= 1.05 * baseline.flops`.

Nothing of it is ever run.
"""

from __future__ import annotations

import ast
import warnings
from dataclasses import fields

from ablate.records import Arithmetic, Cost, CostOf, Limit, Relation, Term

EXAMPLES = '"<= 6e6", "<= 1.1 * baseline", "< baseline"'
FULL_EXAMPLES = (
    '"params <= 6e6", "flops <= 1.05 * baseline.flops", "flops / baseline.flops +'
    ' params / baseline.params <= 2.1"'
)
LONGEST = 500
# More than any cost; a number beyond would be a slip, and its products no numbers.
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


def parse(text: str, cost: str = "") -> Limit | None:
    """The limit that a text says, or None if it says none.

    Args:
        cost: the cost that stands before a text of the short form, as in `flops: "<=
            1.1 * baseline"`.
    """
    words = " ".join(f"{cost} {text}".split())
    try:
        with warnings.catch_warnings():
            # Python warns of text that is about to be refused, as of an escape in
            # quotes.
            warnings.simplefilter("ignore", SyntaxWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            tree = ast.parse(words[: LONGEST + 1], mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if len(words) > LONGEST or not isinstance(tree, ast.Compare) or len(tree.ops) != 1:
        return None
    relation = _RELATIONS.get(type(tree.ops[0]))
    left = _term(tree.left, cost)
    right = _term(tree.comparators[0], cost)
    if (
        relation is None
        or left is None
        or right is None
        or not (_has_cost(left) or _has_cost(right))
    ):
        return None
    return Limit(text=words, left=left, relation=relation, right=right)


def _term(node: ast.expr, cost: str) -> Term | None:
    """The term that a node of the syntax tree says, or None if it says none."""
    match node:
        case ast.Constant(value=value):
            return _number(value)
        case ast.Name(id="baseline"):
            return CostOf(cost, of_baseline=True) if cost else None
        case ast.Name(id=name) if name in _COSTS:
            return CostOf(name, of_baseline=False)
        case ast.Attribute(value=ast.Name(id="baseline"), attr=name) if name in _COSTS:
            return CostOf(name, of_baseline=True)
        case ast.BinOp(op=operator) if type(operator) in _OPERATORS:
            left = _term(node.left, cost)
            right = _term(node.right, cost)
            if left is None or right is None:
                return None
            return Arithmetic(left, _OPERATORS[type(operator)], right)
    return None


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return float(value) if abs(value) < MOST else None


def _has_cost(term: Term) -> bool:
    """Whether the term has a cost of the cell in it: a limit on the baseline alone
    would say nothing of any cell.
    """
    if isinstance(term, Arithmetic):
        return _has_cost(term.left) or _has_cost(term.right)
    return isinstance(term, CostOf) and not term.of_baseline
