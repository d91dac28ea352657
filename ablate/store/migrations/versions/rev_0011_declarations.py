"""Every declaration of a study, not only the last one."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "declarations",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("study_id", sa.Integer(), nullable=False),
        sa.Column("declared_at", sa.DateTime(), nullable=False),
        sa.Column("document", sa.Text(), nullable=False, comment="the YAML text"),
        sa.Column("space", sa.JSON(), nullable=False, comment="the resolved space"),
        sa.Column(
            "completed",
            sa.Integer(),
            nullable=False,
            comment="completed trials of the study at that time",
        ),
        sa.ForeignKeyConstraint(
            ["study_id"],
            ["studies.id"],
            name=op.f("fk_declarations_study_id"),
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_declarations")),
    )
    # What was declared before the last declaration is not known.
    op.execute(
        "INSERT INTO declarations (study_id, declared_at, document, space, completed)"
        " SELECT id, updated_at, document, space, 0 FROM studies"
        " WHERE space IS NOT NULL"
    )
