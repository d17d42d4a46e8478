"""Who took an acknowledgement back, when and why. Those made before this version hold."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    for name in ("taken_back", "taken_back_by", "taken_back_reason"):
        op.add_column("acknowledgements", sa.Column(name, sa.Text(), nullable=False, server_default=""))
