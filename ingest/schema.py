"""The tables of ingest: files and jobs. Knows no query."""

from sqlalchemy import Column, Float, ForeignKey, Index, Integer, MetaData, String, Table, Text

metadata = MetaData()

files = Table(
    "files",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=True),
    Column("id", String(64), nullable=False, unique=True),
    Column("filename", Text, nullable=False),
    Column("purpose", String(64), nullable=False),
    Column("num_bytes", Integer, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("created_at", Integer, nullable=False),
    Column("status", String(16), nullable=False),
    Column("cause", Text),
    Column("notes", Text, nullable=False, default="[]"),
    Column("num_chars", Integer),
    Column("num_chunks", Integer),
    Column("generation", String(64)),
    Column("deleted_at", Float),
    Column("purged_at", Float),
    sqlite_autoincrement=True,
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("file_id", String(64), ForeignKey("files.id"), nullable=False),
    Column("state", String(16), nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("next_attempt_at", Float, nullable=False),
    Column("lease_owner", String(64)),
    Column("lease_until", Float),
    Column("cause", Text),
    Column("created_at", Float, nullable=False),
)

Index("jobs_by_state", jobs.c.state, jobs.c.next_attempt_at)
Index("jobs_by_file", jobs.c.file_id, jobs.c.state)
