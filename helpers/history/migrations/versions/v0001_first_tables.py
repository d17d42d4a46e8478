"""The first tables."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

# SQLite numbers its rows only in a column called INTEGER.
_BIG_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def _text(name: str) -> sa.Column[str]:
    return sa.Column(name, sa.Text(), nullable=False)


def upgrade() -> None:
    op.create_table(
        "acknowledgements",
        sa.Column("id", _BIG_ID, autoincrement=True, nullable=False),
        _text("pattern"),
        _text("first"),
        _text("last"),
        _text("commit"),
        _text("reason"),
        _text("who"),
        _text("created"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_acknowledgements")),
    )
    op.create_table(
        "documents",
        sa.Column("id", _BIG_ID, autoincrement=True, nullable=False),
        _text("digest"),
        _text("body"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_documents")),
        sa.UniqueConstraint("digest", name=op.f("uq_documents_digest")),
    )
    op.create_table(
        "exclusions",
        sa.Column("id", _BIG_ID, autoincrement=True, nullable=False),
        _text("subject"),
        _text("uuid"),
        _text("who"),
        _text("created"),
        _text("reason"),
        _text("restored"),
        _text("restored_by"),
        _text("restored_reason"),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_exclusions")),
    )
    op.create_index(op.f("ix_exclusions_uuid"), "exclusions", ["uuid"], unique=False)
    op.create_table(
        "calibrations",
        sa.Column("id", _BIG_ID, autoincrement=True, nullable=False),
        _text("case_id"),
        _text("target"),
        sa.Column("segment_id", _BIG_ID, nullable=False),
        _text("session"),
        _text("created"),
        sa.Column("runs", sa.Integer(), nullable=False),
        sa.Column("sigma_run", sa.Double(), nullable=False),
        sa.Column("sigma_run_low", sa.Double(), nullable=False),
        sa.Column("sigma_run_high", sa.Double(), nullable=False),
        sa.Column("degrees_of_freedom", sa.Double(), nullable=False),
        sa.Column("sigma_night", sa.Double(), nullable=True),
        sa.Column("sigma_night_low", sa.Double(), nullable=True),
        sa.Column("sigma_night_high", sa.Double(), nullable=True),
        sa.Column("smallest_drop", sa.Double(), nullable=False),
        sa.Column("tolerance", sa.Double(), nullable=True),
        sa.ForeignKeyConstraint(["segment_id"], ["documents.id"], name=op.f("fk_calibrations_segment_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_calibrations")),
    )
    op.create_index(
        op.f("ix_calibrations_case_id_target_segment_id_created"),
        "calibrations",
        ["case_id", "target", "segment_id", "created"],
        unique=False,
    )
    op.create_table(
        "results",
        sa.Column("id", _BIG_ID, autoincrement=True, nullable=False),
        _text("uuid"),
        _text("session"),
        _text("host"),
        _text("case_id"),
        _text("target"),
        _text("role"),
        _text("stage"),
        sa.Column("replicate", sa.Integer(), nullable=False),
        _text("created"),
        sa.Column("build_id", _BIG_ID, nullable=False),
        sa.Column("environment_id", _BIG_ID, nullable=False),
        sa.Column("system_id", _BIG_ID, nullable=False),
        sa.Column("setup_id", _BIG_ID, nullable=False),
        sa.Column("segment_id", _BIG_ID, nullable=True),
        sa.Column("log_rate", sa.Double(), nullable=True),
        _text("unlearned"),
        _text("body"),
        sa.ForeignKeyConstraint(["build_id"], ["documents.id"], name=op.f("fk_results_build_id")),
        sa.ForeignKeyConstraint(["environment_id"], ["documents.id"], name=op.f("fk_results_environment_id")),
        sa.ForeignKeyConstraint(["segment_id"], ["documents.id"], name=op.f("fk_results_segment_id")),
        sa.ForeignKeyConstraint(["setup_id"], ["documents.id"], name=op.f("fk_results_setup_id")),
        sa.ForeignKeyConstraint(["system_id"], ["documents.id"], name=op.f("fk_results_system_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_results")),
        sa.UniqueConstraint("uuid", name=op.f("uq_results_uuid")),
    )
    op.create_index(op.f("ix_results_case_id_created"), "results", ["case_id", "created"], unique=False)
    op.create_index(op.f("ix_results_session_case_id"), "results", ["session", "case_id"], unique=False)
    op.create_table(
        "segment_starts",
        sa.Column("id", _BIG_ID, autoincrement=True, nullable=False),
        _text("case_id"),
        _text("target"),
        sa.Column("segment_id", _BIG_ID, nullable=False),
        _text("created"),
        _text("reason"),
        _text("commit"),
        sa.ForeignKeyConstraint(["segment_id"], ["documents.id"], name=op.f("fk_segment_starts_segment_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_segment_starts")),
    )
    op.create_index(
        op.f("ix_segment_starts_case_id_target_segment_id_created"),
        "segment_starts",
        ["case_id", "target", "segment_id", "created"],
        unique=False,
    )
    op.create_table(
        "series",
        sa.Column("id", _BIG_ID, autoincrement=True, nullable=False),
        _text("case_id"),
        _text("target"),
        sa.Column("segment_id", _BIG_ID, nullable=False),
        _text("host"),
        sa.Column("cards", sa.Integer(), nullable=False),
        _text("last_created"),
        sa.ForeignKeyConstraint(["segment_id"], ["documents.id"], name=op.f("fk_series_segment_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_series")),
        sa.UniqueConstraint("case_id", "target", "segment_id", name=op.f("uq_series_case_id_target_segment_id")),
    )
    op.create_index(op.f("ix_series_host_target_cards"), "series", ["host", "target", "cards"], unique=False)
    op.create_table(
        "nights",
        sa.Column("id", _BIG_ID, autoincrement=True, nullable=False),
        _text("uuid"),
        _text("session"),
        sa.Column("series_id", _BIG_ID, nullable=False),
        _text("created"),
        _text("status"),
        _text("build_version"),
        _text("build_commit"),
        sa.Column("accepted", sa.Boolean(), nullable=False),
        sa.Column("starts", sa.Boolean(), nullable=False),
        sa.Column("first_rate", sa.Double(), nullable=True),
        sa.Column("evidence", sa.Double(), nullable=False),
        sa.Column("stall_share", sa.Double(), nullable=True),
        _text("learned"),
        _text("unlearned"),
        _text("body"),
        sa.ForeignKeyConstraint(["series_id"], ["series.id"], name=op.f("fk_nights_series_id")),
        sa.PrimaryKeyConstraint("id", name=op.f("pk_nights")),
        sa.UniqueConstraint("uuid", name=op.f("uq_nights_uuid")),
    )
    op.create_index(op.f("ix_nights_build_commit"), "nights", ["build_commit"], unique=False)
    op.create_index(op.f("ix_nights_build_version"), "nights", ["build_version"], unique=False)
    op.create_index(op.f("ix_nights_created"), "nights", ["created"], unique=False)
    op.create_index(op.f("ix_nights_series_id_created"), "nights", ["series_id", "created"], unique=False)
    op.create_index(
        op.f("ix_nights_series_id_starts_created"), "nights", ["series_id", "starts", "created"], unique=False
    )
    op.create_index(op.f("ix_nights_session"), "nights", ["session"], unique=False)
    op.create_table(
        "steps",
        sa.Column("result_id", _BIG_ID, autoincrement=False, nullable=False),
        sa.Column("step_seconds", sa.LargeBinary(), nullable=False),
        sa.Column("samples_per_step", sa.LargeBinary(), nullable=False),
        sa.Column("losses", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["result_id"], ["results.id"], name=op.f("fk_steps_result_id")),
        sa.PrimaryKeyConstraint("result_id", name=op.f("pk_steps")),
    )
    op.create_table(
        "night_runs",
        sa.Column("night_id", _BIG_ID, autoincrement=False, nullable=False),
        sa.Column("position", sa.Integer(), autoincrement=False, nullable=False),
        _text("run_uuid"),
        sa.ForeignKeyConstraint(["night_id"], ["nights.id"], name=op.f("fk_night_runs_night_id")),
        sa.PrimaryKeyConstraint("night_id", "position", name=op.f("pk_night_runs")),
    )
    op.create_index(op.f("ix_night_runs_run_uuid"), "night_runs", ["run_uuid"], unique=False)
