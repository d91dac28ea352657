"""Leases on trials, for several drivers on one store; digests of cells, so that a plan is written once; controls; finished studies."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column("trials", sa.Column("owner", sa.String(length=32), nullable=True, comment="driver that has it leased"))
    op.add_column(
        "trials",
        sa.Column("fence", sa.Integer(), nullable=False, server_default="0", comment="leases so far; only the last one may write"),
    )
    op.add_column(
        "trials", sa.Column("leased_until", sa.Float(), nullable=True, comment="seconds since 1970 by the database's clock")
    )
    op.add_column(
        "cells",
        sa.Column("control_of", sa.Integer(), nullable=True, comment="number of the variant whose cost this control has"),
    )
    op.add_column(
        "cells", sa.Column("digest", sa.String(length=20), nullable=False, server_default="", comment="hash of all that was planned")
    )
    op.add_column(
        "studies", sa.Column("finished_at", sa.DateTime(), nullable=True, comment="when a run left nothing to do")
    )
    op.create_table(
        "drivers",
        sa.Column("id", sa.String(length=32), nullable=False),
        sa.Column("study_id", sa.Integer(), nullable=False),
        sa.Column("digest", sa.String(length=20), nullable=False, comment="hash of the YAML text that it runs"),
        sa.Column("leased_until", sa.Float(), nullable=False, comment="seconds since 1970 by the database's clock"),
        sa.ForeignKeyConstraint(["study_id"], ["studies.id"], name=op.f("fk_drivers_study_id"), ondelete="CASCADE"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_drivers")),
    )
    op.execute("UPDATE studies SET finished_at = updated_at")
