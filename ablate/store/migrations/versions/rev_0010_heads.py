"""Networks with heads, on images that are not square."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.add_column(
        "architectures",
        sa.Column(
            "head",
            sa.String(length=50),
            nullable=False,
            server_default="",
            comment="what turns the backbone into a network of its task; empty: a classifier",
        ),
    )
    op.add_column(
        "architectures",
        sa.Column(
            "image_width",
            sa.Integer(),
            nullable=False,
            server_default="0",
            comment="of the input where it is not square; 0: image_size",
        ),
    )
