"""What the seed of a trial decides."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "trials",
        sa.Column(
            "vary",
            sa.JSON(none_as_null=True),
            nullable=True,
            comment="what the seed decides; NULL if it is the initial weights and the"
            " order",
        ),
    )
