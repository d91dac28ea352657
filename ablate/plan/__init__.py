"""Which trials answer the question: a space to cells, costs and trials, all at once by
a design or one by one by a search.

`ablate.plan.search` is imported where a space is searched: it takes Optuna's time to
import.
"""

from ablate.plan.plan import make_plan

__all__ = ["make_plan"]
