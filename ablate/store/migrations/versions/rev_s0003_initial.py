"""The tables that `store.database` creates in a new store. Later revisions follow it."""

revision = "s0003"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    pass
