"""The cost of a network: parameters, FLOPs in two conventions, and activations.

Throughput and latency are measured on request.
"""

from ablate.cost.count import count, module_flops, operators
from ablate.cost.timing import Timing, time_model

__all__ = ["Timing", "count", "module_flops", "operators", "time_model"]
