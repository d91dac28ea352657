"""Backbones that no library has.

Importing this package registers them with timm, so that `timm.create_model` knows them.
"""

from ablate.backbones import lvt, pvt, t2t

__all__ = ["lvt", "pvt", "t2t"]
