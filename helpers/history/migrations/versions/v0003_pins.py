"""Who pinned which good build, when and why."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

_big_id = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    names = ("build", "name", "version", "commit", "digest", "before", "reason", "who", "created")
    op.create_table(
        "pins",
        sa.Column("id", _big_id, autoincrement=True, nullable=False),
        *(sa.Column(name, sa.Text(), nullable=False) for name in names),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_pins")),
    )
