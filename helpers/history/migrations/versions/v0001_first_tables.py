"""The first tables."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# SQLite numbers its rows only in a column called INTEGER.
_BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
# The columns that are rows of other tables, and which ones.
_REFERENCES = {
    "documents": ("build_id", "environment_id", "segment_id", "setup_id", "system_id"),
    "results": ("result_id",),
    "series": ("series_id",),
    "nights": ("night_id",),
}


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False)


def _row(name: str, nullable: bool = False) -> sa.Column[int]:
    return sa.Column(name, _BIG_ID, autoincrement=False, nullable=nullable)


def _double(name: str, nullable: bool = False) -> sa.Column[float]:
    return sa.Column(name, sa.Double(), nullable=nullable)


def _create(
    name: str,
    *columns: sa.Column[Any],
    key: Sequence[str] = ("id",),
    unique: Sequence[str] = (),
    indices: Sequence[Sequence[str]] = (),
) -> None:
    """A table with its key, its references, what is unique in it, and its indices."""
    constraints: list[sa.Constraint] = [
        sa.ForeignKeyConstraint([each.name], [f"{table}.id"], name=op.f(f"fk_{name}_{each.name}"))
        for each in sorted(columns, key=lambda each: each.name)
        for table, names in _REFERENCES.items()
        if each.name in names
    ]
    constraints.append(sa.PrimaryKeyConstraint(*key, name=op.f(f"pk_{name}")))
    if unique:
        constraints.append(sa.UniqueConstraint(*unique, name=op.f(f"uq_{name}_{'_'.join(unique)}")))
    own = [sa.Column("id", _BIG_ID, autoincrement=True, nullable=False)] if key == ("id",) else []
    op.create_table(name, *own, *columns, *constraints)
    for index in indices:
        op.create_index(op.f(f"ix_{name}_{'_'.join(index)}"), name, list(index))


def upgrade() -> None:
    _create("acknowledgements", *map(_text, ("pattern", "first", "last", "commit", "reason", "who", "created")))
    _create("documents", _text("digest"), _text("body"), unique=("digest",))
    _create(
        "exclusions",
        *map(_text, ("subject", "uuid", "who", "created", "reason", "restored", "restored_by", "restored_reason")),
        indices=[("uuid",)],
    )
    _create(
        "calibrations",
        _text("case_id"),
        _text("target"),
        _row("segment_id"),
        _text("session"),
        _text("created"),
        sa.Column("runs", sa.Integer(), nullable=False),
        *map(_double, ("sigma_run", "sigma_run_low", "sigma_run_high", "degrees_of_freedom")),
        *(_double(name, nullable=True) for name in ("sigma_night", "sigma_night_low", "sigma_night_high")),
        _double("smallest_drop"),
        _double("tolerance", nullable=True),
        indices=[("case_id", "target", "segment_id", "created")],
    )
    _create(
        "results",
        *map(_text, ("uuid", "session", "host", "case_id", "target", "role", "stage")),
        sa.Column("replicate", sa.Integer(), nullable=False),
        _text("created"),
        *map(_row, ("build_id", "environment_id", "system_id", "setup_id")),
        _row("segment_id", nullable=True),
        _double("log_rate", nullable=True),
        _text("unlearned"),
        _text("body"),
        unique=("uuid",),
        indices=[("case_id", "created"), ("session", "case_id")],
    )
    _create(
        "segment_starts",
        _text("case_id"),
        _text("target"),
        _row("segment_id"),
        *map(_text, ("created", "reason", "commit")),
        indices=[("case_id", "target", "segment_id", "created")],
    )
    _create(
        "series",
        _text("case_id"),
        _text("target"),
        _row("segment_id"),
        _text("host"),
        sa.Column("cards", sa.Integer(), nullable=False),
        _text("last_created"),
        unique=("case_id", "target", "segment_id"),
        indices=[("host", "target", "cards")],
    )
    _create(
        "nights",
        _text("uuid"),
        _text("session"),
        _row("series_id"),
        *map(_text, ("created", "status", "build_version", "build_commit")),
        sa.Column("accepted", sa.Boolean(), nullable=False),
        sa.Column("starts", sa.Boolean(), nullable=False),
        _double("first_rate", nullable=True),
        _double("evidence"),
        _double("stall_share", nullable=True),
        *map(_text, ("learned", "unlearned", "body")),
        unique=("uuid",),
        indices=[
            ("build_commit",),
            ("build_version",),
            ("created",),
            ("series_id", "created"),
            ("series_id", "starts", "created"),
            ("session",),
        ],
    )
    _create(
        "steps",
        _row("result_id"),
        *(sa.Column(name, sa.LargeBinary(), nullable=False) for name in ("step_seconds", "samples_per_step", "losses")),
        key=("result_id",),
    )
    _create(
        "night_runs",
        _row("night_id"),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        _text("run_uuid"),
        key=("night_id", "position"),
        indices=[("run_uuid",)],
    )
