"""The gateway's own tables in the metadata database: keys, spending, policies. Knows no query."""

from sqlalchemy import BigInteger, Column, Float, Integer, MetaData, String, Table, Text

metadata = MetaData()

api_keys = Table(
    "api_keys",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("digest", String(64), nullable=False, unique=True),
    Column("hint", String(16), nullable=False),
    Column("name", Text, nullable=False),
    Column("tenant", String(64), nullable=False),
    Column("grants", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger),
    Column("revoked_at", Float),
)

key_spending = Table(
    "api_key_spending",
    metadata,
    Column("key_id", String(64), primary_key=True),
    Column("month", String(7), primary_key=True),
    Column("micros", BigInteger, nullable=False),
)

policy_changes = Table(
    "policy_changes",
    metadata,
    Column("seq", Integer, primary_key=True, autoincrement=False),
    Column("version", String(16), nullable=False),
    Column("old_version", String(16)),
    Column("cause", String(16), nullable=False),
    Column("who", Text, nullable=False),
    Column("changed_at", Float, nullable=False),
    Column("policy", Text, nullable=False),
)
