"""Which trials answer the question: a space to cells, costs and trials."""

from ablate.plan.plan import make_plan

__all__ = ["make_plan"]
