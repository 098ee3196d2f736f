"""The tables that the gateway itself keeps: kept chats and responses, batches and their lines."""

from sqlalchemy import (
    BigInteger,
    Column,
    Float,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

metadata = MetaData()

# SQLite counts up by itself only in a column of exactly this type.
Sequential = BigInteger().with_variant(Integer, "sqlite")

responses = Table(
    "responses",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("previous_id", String(64)),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    Column("input_items", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
)

chats = Table(
    "chats",
    metadata,
    Column("seq", Sequential, primary_key=True, autoincrement=True),
    Column("id", String(64), nullable=False, unique=True),
    Column("tenant", String(128), nullable=False),
    Column("model", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    Column("metadata", Text, nullable=False),
    Column("messages", LargeBinary, nullable=False),
    Column("body", LargeBinary, nullable=False),
    sqlite_autoincrement=True,
)

chat_metadata = Table(
    "chat_metadata",
    metadata,
    Column("chat_id", String(64), nullable=False),
    Column("name", Text, nullable=False),
    Column("value", Text, nullable=False),
    UniqueConstraint("chat_id", "name"),
)

batches = Table(
    "batches",
    metadata,
    Column("seq", Sequential, primary_key=True, autoincrement=True),
    Column("id", String(64), nullable=False, unique=True),
    Column("tenant", String(128), nullable=False),
    Column("caller", Text, nullable=False),
    Column("endpoint", String(64), nullable=False),
    Column("input_file_id", String(64), nullable=False),
    Column("metadata", Text, nullable=False),
    Column("status", String(16), nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("output_life_s", BigInteger),
    Column("in_progress_at", BigInteger),
    Column("finalizing_at", BigInteger),
    Column("completed_at", BigInteger),
    Column("failed_at", BigInteger),
    Column("expired_at", BigInteger),
    Column("cancelling_at", BigInteger),
    Column("cancelled_at", BigInteger),
    Column("errors", Text, nullable=False),
    Column("num_lines", Integer, nullable=False),
    Column("num_completed", Integer, nullable=False),
    Column("num_failed", Integer, nullable=False),
    Column("output_file_id", String(64)),
    Column("error_file_id", String(64)),
    Column("lease_owner", String(64)),
    Column("lease_until", Float),
    sqlite_autoincrement=True,
)

batch_lines = Table(
    "batch_lines",
    metadata,
    Column("batch_id", String(64), nullable=False),
    Column("number", Integer, nullable=False),
    Column("custom_id", Text, nullable=False),
    Column("start", BigInteger, nullable=False),
    Column("stop", BigInteger, nullable=False),
    Column("kinship", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("outcome", LargeBinary),
    UniqueConstraint("batch_id", "number"),
)

Index("chats_by_tenant", chats.c.tenant)
Index("chats_by_expiry", chats.c.expires_at)
Index("responses_by_expiry", responses.c.expires_at)
Index("batches_by_status", batches.c.status)
