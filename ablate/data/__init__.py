"""Data sets by name.

The batches that training sees are in `data.batches`, which needs torch; this needs
nothing heavy.
"""

from ablate.data.catalogue import SETS, DataSet, describe, refuse_recipe

__all__ = ["SETS", "DataSet", "describe", "refuse_recipe"]
