"""How a chunk lies in OpenSearch: the mapping, its document, and back. Pure; sends nothing.

Attributes are filtered by one keyword field of terms that name key, kind and value
(`s6c616e67=de` is the string "de" under `lang`), so that equality is a term, an order is a range
of terms, and a key never holds two types. Fields that nothing searches are in `_source` only.
"""

import base64
import struct
from array import array
from collections.abc import Mapping, Sequence

import numpy as np

from retrieval.analyzer import ANALYZER_VERSION, analyze_joined
from retrieval.api import Attribute, Chunk, EmbeddedChunk, Embedder
from retrieval.config import KnnEngine, OpenSearchConfig
from retrieval.stores.rows import LAYOUT, json_key, plain, search_text

Json = dict[str, object]

STORED = ("document_id", "generation", "start", "stop", "parent_start", "parent_stop", "text")
"""Taken over from the chunk as they are, besides its id, heading, collection and attributes."""

SOURCE_FIELDS = ("chunk_id", "collection", "heading", "attributes", *STORED)
VECTOR_FIELD = "packed_vector"
"""Base64 of float32: a quarter of the JSON list's bytes, and decoded in microseconds."""

_SPACES: Mapping[KnnEngine, str] = {
    KnnEngine.LUCENE: "cosinesimil",
    KnnEngine.FAISS: "innerproduct",
}
"""faiss took cosinesimil only from 2.19 on; of unit vectors the inner product is the cosine."""


def index_body(embedder: Embedder, config: OpenSearchConfig) -> Json:
    """Settings and explicit mapping of a new index version."""
    keyword = {"type": "keyword"}
    settings: Json = {"knn": True}
    if config.has_own_nodes:
        settings |= {"number_of_shards": config.shards, "number_of_replicas": config.replicas}
    return {
        "settings": {"index": settings},
        "mappings": {
            "dynamic": False,
            "_meta": identity_of(embedder),
            "_source": {"excludes": ["vector", "terms", "attribute_terms"]},
            "properties": {
                "chunk_id": keyword,
                "collection": keyword,
                "document_id": keyword,
                "generation": keyword,
                "stamp": keyword,
                "attribute_terms": {"type": "keyword", "doc_values": False},
                "terms": {"type": "text", "analyzer": "whitespace", "index_options": "freqs"},
                "vector": {
                    "type": "knn_vector",
                    "dimension": embedder.dimension,
                    "method": {
                        "name": "hnsw",
                        "engine": config.engine.value,
                        "space_type": _SPACES[config.engine],
                        "parameters": {"m": 16, "ef_construction": 100},
                    },
                },
            },
        },
    }


def identity_of(embedder: Embedder) -> Json:
    """What an index remembers of how it was filled."""
    return {
        "embedder": embedder.identity,
        "dimension": embedder.dimension,
        "analyzer": ANALYZER_VERSION,
        "layout": LAYOUT,
    }


def document_of(embedded: EmbeddedChunk, stamp: str) -> Json:
    chunk, vector = embedded.chunk, np.asarray(embedded.vector, dtype=np.float32)
    return {
        "chunk_id": chunk.id,
        "collection": chunk.collection,
        "heading": chunk.heading,
        "attributes": {key: plain(value) for key, value in chunk.attributes.items()},
        **{name: getattr(chunk, name) for name in STORED},
        "stamp": stamp,
        "terms": analyze_joined(search_text(chunk)),
        "attribute_terms": [attribute_term(*pair) for pair in chunk.attributes.items()],
        "vector": vector.tolist(),
        VECTOR_FIELD: base64.b64encode(vector.tobytes()).decode(),
    }


def chunk_of(source: Mapping[str, object]) -> Chunk:
    attributes = source["attributes"]
    assert isinstance(attributes, dict), "written as an object"
    values = {name: source[name] for name in ("collection", "heading", *STORED)}
    values["attributes"] = {key: plain(value) for key, value in attributes.items()}
    return Chunk(id=str(source["chunk_id"]), **values)  # type: ignore[arg-type]


def vector_of(source: Mapping[str, object]) -> Sequence[float]:
    """The chunk's vector, or nothing when it was not asked for."""
    packed = source.get(VECTOR_FIELD)
    return array("f", base64.b64decode(str(packed))) if packed is not None else ()


def attribute_term(key: str, value: Attribute) -> str:
    return attribute_prefix(key, value) + _sortable(value)


def attribute_prefix(key: str, value: Attribute) -> str:
    """What all terms of this key and kind begin with, and no others."""
    return json_key(key, value) + "="


def after_prefix(key: str, value: Attribute) -> str:
    """The first string that sorts behind all terms with the prefix."""
    return json_key(key, value) + ">"


def _sortable(value: Attribute) -> str:
    """Orders as the value does: UTF-8 already does, a float by its bits, negative ones flipped."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    # Adding 0.0 makes -0.0 the 0.0 that it equals.
    [bits] = struct.unpack(">Q", struct.pack(">d", float(value) + 0.0))
    return f"{bits ^ (2**64 - 1) if bits >> 63 else bits | 1 << 63:016x}"
