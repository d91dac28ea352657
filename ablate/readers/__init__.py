"""Reads what training scripts print and write: lines of text, CSV, JSON lines, TensorBoard.

The record `Reports` declares where the reports of a script are. `LineReader` finds them in its
output, `FileReader` in its files.
"""

from ablate.readers.files import FileReader
from ablate.readers.lines import LineReader
from ablate.readers.reports import Report

__all__ = ["FileReader", "LineReader", "Report"]
