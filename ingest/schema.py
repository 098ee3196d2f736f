"""The tables of ingest: files, vector stores, uploads and jobs. Knows no query."""

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData()

# SQLite counts up by itself only in a column of exactly this type.
Sequential = BigInteger().with_variant(Integer, "sqlite")

files = Table(
    "files",
    metadata,
    Column("seq", Sequential, primary_key=True, autoincrement=True),
    Column("id", String(64), nullable=False, unique=True),
    Column("filename", Text, nullable=False),
    Column("purpose", String(64), nullable=False),
    Column("num_bytes", BigInteger, nullable=False),
    Column("digest", String(64), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    Column("status", String(16), nullable=False),
    Column("stage", String(16)),
    Column("attempts", Integer, nullable=False, default=0, server_default="0"),
    Column("cause", Text),
    Column("failure", String(32)),
    Column("notes", Text, nullable=False, default="[]"),
    Column("num_chars", BigInteger),
    Column("num_chunks", Integer),
    Column("text_digest", String(64)),
    Column("generation", String(64)),
    Column("deleted_at", Float),
    Column("purged_at", Float),
    Column("tenant", String(64), nullable=False, default="local", server_default="local"),
    sqlite_autoincrement=True,
)

vector_stores = Table(
    "vector_stores",
    metadata,
    Column("seq", Sequential, primary_key=True, autoincrement=True),
    Column("id", String(64), nullable=False, unique=True),
    Column("name", Text, nullable=False),
    Column("description", Text),
    Column("metadata", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("last_active_at", BigInteger, nullable=False),
    Column("expires_after_days", Integer),
    Column("expires_at", BigInteger),
    Column("deleted_at", Float),
    Column("tenant", String(64), nullable=False, default="local", server_default="local"),
    sqlite_autoincrement=True,
)

batches = Table(
    "vector_store_batches",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("store_id", String(64), ForeignKey("vector_stores.id"), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("cancelled_at", Float),
)

store_files = Table(
    "vector_store_files",
    metadata,
    Column("seq", Sequential, primary_key=True, autoincrement=True),
    Column("store_id", String(64), ForeignKey("vector_stores.id"), nullable=False),
    Column("file_id", String(64), ForeignKey("files.id"), nullable=False),
    Column("batch_id", String(64), ForeignKey("vector_store_batches.id")),
    Column("created_at", BigInteger, nullable=False),
    Column("status", String(16), nullable=False),
    Column("stage", String(16)),
    Column("attempts", Integer, nullable=False, default=0),
    Column("cause", Text),
    Column("failure", String(32)),
    Column("attributes", Text, nullable=False),
    Column("max_tokens", Integer, nullable=False),
    Column("overlap_tokens", Integer, nullable=False),
    Column("revision", String(32), nullable=False),
    Column("generation", String(64)),
    Column("num_chunks", Integer, nullable=False, default=0),
    Column("usage_bytes", BigInteger, nullable=False, default=0),
    Column("removed_at", Float),
    Column("cleared_at", Float),
    UniqueConstraint("store_id", "file_id"),
    sqlite_autoincrement=True,
)

uploads = Table(
    "uploads",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("filename", Text, nullable=False),
    Column("purpose", String(64), nullable=False),
    Column("mime_type", Text, nullable=False),
    Column("num_bytes", BigInteger, nullable=False),
    Column("file_expires_after_s", Integer),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("status", String(16), nullable=False),
    Column("file_id", String(64)),
    Column("tenant", String(64), nullable=False, default="local", server_default="local"),
)

upload_parts = Table(
    "upload_parts",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("upload_id", String(64), ForeignKey("uploads.id"), nullable=False),
    Column("num_bytes", BigInteger, nullable=False),
    Column("created_at", BigInteger, nullable=False),
)

jobs = Table(
    "jobs",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("file_id", String(64), ForeignKey("files.id"), nullable=False),
    Column("collection", String(64), nullable=False, default="", server_default=""),
    Column("state", String(16), nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("next_attempt_at", Float, nullable=False),
    Column("lease_owner", String(64)),
    Column("lease_until", Float),
    Column("cause", Text),
    Column("created_at", Float, nullable=False),
    Column("settled_at", Float),
)

Index("jobs_by_state", jobs.c.state, jobs.c.next_attempt_at)
Index("jobs_by_file", jobs.c.file_id, jobs.c.state)
Index("files_by_expiry", files.c.expires_at)
Index("vector_store_files_by_file", store_files.c.file_id)
Index("vector_store_files_by_batch", store_files.c.batch_id)
Index("upload_parts_by_upload", upload_parts.c.upload_id)
