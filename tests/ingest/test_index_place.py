"""Which index the settings choose."""

from pathlib import Path

import pytest

from ingest.settings import settings_from
from retrieval.config import KnnEngine, OpenSearchConfig, OpenSearchKind

BASE = {"RINGWAY_INGEST_DATA_DIR": "/data"}
NODE = {"RINGWAY_INGEST_OPENSEARCH_URL": "https://ring:secret@search.example:9200"}


def test_no_opensearch_is_the_embedded_index() -> None:
    assert settings_from(BASE).index_place == Path("/data/index")


def test_serverless_takes_the_engine_that_it_has() -> None:
    serverless = {
        "RINGWAY_INGEST_OPENSEARCH_KIND": "serverless",
        "RINGWAY_INGEST_OPENSEARCH_AWS_REGION": "eu-central-1",
    }
    place = settings_from(BASE | NODE | serverless).index_place
    assert isinstance(place, OpenSearchConfig)
    assert (place.kind, place.engine) == (OpenSearchKind.SERVERLESS, KnnEngine.FAISS)
    assert place.aws_region == "eu-central-1"


def test_a_cluster_may_have_no_replicas_and_its_password_is_not_shown() -> None:
    settings = settings_from(BASE | NODE | {"RINGWAY_INGEST_OPENSEARCH_REPLICAS": "0"})
    assert isinstance(settings.index_place, OpenSearchConfig)
    assert settings.index_place.replicas == 0
    assert "secret" not in repr(settings)


@pytest.mark.parametrize("kind", ["Cluster", "elastic"])
def test_an_unknown_kind_is_refused(kind: str) -> None:
    with pytest.raises(ValueError, match="Invalid enum value"):
        settings_from(BASE | NODE | {"RINGWAY_INGEST_OPENSEARCH_KIND": kind})
