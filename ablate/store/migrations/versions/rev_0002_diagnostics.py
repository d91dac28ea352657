"""Diagnostics by layer, and the weights that trials start from."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "diagnostics",
        sa.Column("trial_hash", sa.String(length=20), nullable=False),
        sa.Column("epoch", sa.Integer(), nullable=False, comment="epochs trained when it was taken"),
        sa.Column("name", sa.String(length=60), nullable=False),
        sa.Column("layer", sa.Integer(), nullable=False, comment="block of the backbone, from 0; -1: it was looked for, and nothing has it"),
        sa.Column("value", sa.Float(), nullable=True, comment="mean over images, where it is one number"),
        sa.Column("numbers", sa.JSON(), nullable=True, comment="a vector, or the rows of a matrix"),
        sa.ForeignKeyConstraint(["trial_hash"], ["trials.hash"], name=op.f("fk_diagnostics_trial_hash")),
        sa.PrimaryKeyConstraint("trial_hash", "epoch", "name", "layer", name=op.f("pk_diagnostics")),
    )
    op.add_column(
        "trials",
        sa.Column(
            "start", sa.String(length=200), nullable=True, comment="weights that training starts from, if they are not drawn anew"
        ),
    )
    op.add_column(
        "attempts",
        sa.Column("weights", sa.Text(), nullable=False, server_default="", comment="what was taken from the start's weights"),
    )
