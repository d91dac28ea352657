"""A referee's findings as a table."""

from __future__ import annotations

from ablate.errors import counted
from ablate.report.table import Column, Table, tabulate
from ablate.results.review import review
from ablate.results.review.finding import Finding

FINDING_COLUMNS: list[Column[Finding]] = [
    Column("finding", lambda finding: finding.name, heading="finding", kind=str),
    Column("text", lambda finding: finding.text, heading="what", prose=True, kind=str),
    Column(
        "command",
        lambda finding: finding.command,
        heading="command",
        kind=str,
        about="what fixes it",
    ),
]


def review_table(study: str, url: str, where: str) -> Table:
    """The findings of `review` as a table."""
    findings = review(study, url, where)
    if findings:
        notes = [counted(len(findings), "finding") + "."]
    else:
        notes = ["No findings."]
    return tabulate(FINDING_COLUMNS, findings, title=f"Review of {study}", notes=notes)
