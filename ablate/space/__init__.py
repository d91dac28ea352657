"""Declarations: YAML documents to `Space` records."""

from ablate.space.load import at_sizes, load, load_sizes, read, read_sizes, study_name
from ablate.space.schema import json_schema
from ablate.space.seeds import until_decided

__all__ = [
    "at_sizes",
    "json_schema",
    "load",
    "load_sizes",
    "read",
    "read_sizes",
    "study_name",
    "until_decided",
]
