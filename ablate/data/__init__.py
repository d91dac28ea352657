"""Data sets by name.

Batches for training are in `data.batches`, which imports torch. This module imports
nothing heavy.
"""

from ablate.data.description import describe
from ablate.data.fitting import refuse_recipe
from ablate.data.sets import SETS, DataSet, own_sets

__all__ = ["SETS", "DataSet", "describe", "own_sets", "refuse_recipe"]
