"""Limits on cost: arithmetic over costs, as in `flops <= 1.05 * baseline.flops`. Nothing of it is ever run."""

from __future__ import annotations

import ast
import warnings
from dataclasses import fields

from ablate.records import Arithmetic, Cost, CostOf, Limit, Relation, Term

EXAMPLES = '"<= 6e6", "<= 1.1 * baseline", "< baseline"'
FULL_EXAMPLES = '"params <= 6e6", "flops <= 1.05 * baseline.flops", "flops / baseline.flops + params / baseline.params <= 2.1"'
LONGEST = 500
MOST = 1e30
"""More than any cost; a number beyond would be a slip, and its products no numbers."""
_COSTS = tuple(field.name for field in fields(Cost))
_OPERATORS: dict[type[ast.operator], str] = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/"}
_RELATIONS: dict[type[ast.cmpop], Relation] = {ast.LtE: "<=", ast.Lt: "<", ast.GtE: ">=", ast.Gt: ">"}


def parse(text: str, cost: str = "") -> Limit | None:
    """The limit that a text says, or None if it says none.

    Args:
        cost: the cost that stands before a text of the short form, as in `flops: "<= 1.1 * baseline"`.
    """
    words = " ".join(f"{cost} {text}".split())
    try:
        with warnings.catch_warnings():
            # Python warns of text that is about to be refused, as of an escape in quotes.
            warnings.simplefilter("ignore", SyntaxWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            tree = ast.parse(words[: LONGEST + 1], mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if len(words) > LONGEST or not isinstance(tree, ast.Compare) or len(tree.ops) != 1:
        return None
    relation = _RELATIONS.get(type(tree.ops[0]))
    left, right = _term(tree.left, cost), _term(tree.comparators[0], cost)
    if relation is None or left is None or right is None or not (_has_cost(left) or _has_cost(right)):
        return None
    return Limit(words, left, relation, right)


def _term(node: ast.expr, cost: str) -> Term | None:
    if isinstance(node, ast.Constant):
        value = node.value
        return float(value) if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < MOST else None
    if isinstance(node, ast.Name):
        if node.id == "baseline":
            return CostOf(cost, of_baseline=True) if cost else None
        return CostOf(node.id, of_baseline=False) if node.id in _COSTS else None
    if isinstance(node, ast.Attribute):
        known = isinstance(node.value, ast.Name) and node.value.id == "baseline" and node.attr in _COSTS
        return CostOf(node.attr, of_baseline=True) if known else None
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _term(node.left, cost), _term(node.right, cost)
        return None if left is None or right is None else Arithmetic(left, _OPERATORS[type(node.op)], right)
    return None


def _has_cost(term: Term) -> bool:
    """Whether the term has a cost of the cell in it: a limit on the baseline alone would say nothing of any cell."""
    if isinstance(term, Arithmetic):
        return _has_cost(term.left) or _has_cost(term.right)
    return isinstance(term, CostOf) and not term.of_baseline
