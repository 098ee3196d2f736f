"""The table of S3 objects, added to ingest's: a database connected after this import has it."""

from sqlalchemy import Column, Integer, String, Table, Text

from ingest.schema import metadata

objects = Table(
    "s3_objects",
    metadata,
    Column("bucket", String(255), primary_key=True),
    Column("key", Text, primary_key=True),
    Column("sequencer", String(64)),
    Column("identity", String(64)),
    Column("pipeline_version", Integer),
    Column("version_id", Text),
    Column("etag", Text),
    Column("file_id", String(64)),
)
