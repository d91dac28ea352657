"""Rows that choose their settings: trials beside those of the table."""

import sqlalchemy as sa
from alembic import op

revision = "r0003"
down_revision = "r0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "tuning_trials",
        sa.Column(
            "cell_id",
            sa.Integer(),
            sa.ForeignKey("cells.id", ondelete="CASCADE"),
            primary_key=True,
        ),
        sa.Column("stage", sa.String(6), primary_key=True),
        sa.Column("setting", sa.Integer(), primary_key=True),
        sa.Column("seed", sa.BigInteger(), primary_key=True),
        sa.Column(
            "trial_hash", sa.String(20), sa.ForeignKey("trials.hash"), nullable=False
        ),
    )
    op.create_index("ix_tuning_trials_trial_hash", "tuning_trials", ["trial_hash"])
    op.add_column("cell_trials", sa.Column("setting", sa.Integer(), nullable=True))
    op.add_column(
        "cells", sa.Column("key", sa.String(20), nullable=False, server_default="")
    )
