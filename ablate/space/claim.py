"""The sections `question`, `expect`, `source` and `published`: what a study tests."""

from __future__ import annotations

from ablate.errors import unknown
from ablate.records import Claim
from ablate.space.context import Context


def read_claim(context: Context, head: str) -> Claim:
    """What the study asks and tests."""
    form = context.form
    return Claim(
        question=form.question,
        expect=form.expect,
        source=form.source,
        published=_published(context, head),
    )


def _published(context: Context, head: str) -> str:
    """The name of the published table that the study reproduces; may be empty."""
    from ablate.published import tables

    name = context.form.published
    if name and name not in tables():
        context.wrong(("published",), unknown("published table", name, tables()))
        return name
    other = tables()[name].rows[0].head if name else head
    if other != head:
        context.wrong(
            ("published",),
            f"{name} is a table of {_networks(other)}, and this study trains"
            f" {_networks(head)}; leave published out",
        )
    return name


def _networks(head: str) -> str:
    if head:
        return f"networks with head {head}"
    return "classifiers"
