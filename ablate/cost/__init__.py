"""The cost of a network: parameters, FLOPs in two conventions, and activations."""

from ablate.cost.count import count, module_flops, operators

__all__ = ["count", "module_flops", "operators"]
