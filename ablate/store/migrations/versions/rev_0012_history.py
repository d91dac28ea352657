"""What a study's results could have said when it was declared again."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"
branch_labels = None
depends_on = None

COLUMNS = {
    "compared": "rows that had two completed seeds in common with row 0 at that time",
    "unfinished": "trials of the study that had not ended at that time, or 1 if a"
    " search had not",
}


def upgrade() -> None:
    for name, comment in COLUMNS.items():
        op.add_column(
            "declarations",
            sa.Column(
                name, sa.Integer(), nullable=False, server_default="0", comment=comment
            ),
        )
    op.add_column(
        "declarations",
        sa.Column(
            "trained",
            sa.JSON(),
            nullable=False,
            server_default="[]",
            comment="seeds that had completed trials at that time",
        ),
    )
    op.create_table(
        "known_trials",
        sa.Column("study_id", sa.Integer(), nullable=False),
        sa.Column("trial_hash", sa.String(20), nullable=False),
        sa.Column(
            "declared_at",
            sa.DateTime(),
            nullable=True,
            comment="when the study declared the trial, which was completed then; NULL"
            " if it had declared it before",
        ),
        sa.ForeignKeyConstraint(
            ["study_id"],
            ["studies.id"],
            name=op.f("fk_known_trials_study_id"),
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["trial_hash"], ["trials.hash"], name=op.f("fk_known_trials_trial_hash")
        ),
        sa.PrimaryKeyConstraint(
            "study_id", "trial_hash", name=op.f("pk_known_trials")
        ),
    )
    # How many rows could be compared was not stored. Results of one seed give no
    # verdict, so a single row is a safe guess where trials were completed.
    op.execute("UPDATE declarations SET compared = 1 WHERE completed > 1")
    # Revision 11 gave a study's only known declaration the time of its last run.
    op.execute(
        "UPDATE declarations SET declared_at = (SELECT created_at FROM studies"
        " WHERE studies.id = declarations.study_id)"
        " WHERE id IN (SELECT min(id) FROM declarations GROUP BY study_id)"
    )
