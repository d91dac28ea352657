"""Turns a space into cells, costs and trials.

A design lists all cells at once, a search proposes them one by one.
`ablate.scheduling.search` is imported only for a search, because it imports Optuna,
which takes long.
"""

from ablate.plan.plan import make_plan

__all__ = ["make_plan"]
