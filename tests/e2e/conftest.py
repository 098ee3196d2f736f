"""One `ringway up` shared by all end-to-end tests that leave it as they found it.

Starting one takes longer than most tests, so its end is a test of SIGTERM.
"""

from collections.abc import Iterator

import pytest

from tests.e2e.running import Running


@pytest.fixture(scope="session")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    it = Running(tmp_path_factory.mktemp("ringway"))
    yield it
    code = it.end()
    assert code == 0, "SIGTERM stops everything"
    assert it.survivors(within_s=1) == []
