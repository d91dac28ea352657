"""Declarations: YAML documents to `Space` records."""

from ablate.space.load import load, read
from ablate.space.schema import json_schema
from ablate.space.seeds import until_decided

__all__ = ["json_schema", "load", "read", "until_decided"]
