import re
from pathlib import Path

import pytest

from gateway.api import Route
from gateway.policy import Policy, load_policy, parse_policy


def test_the_shipped_file_says_the_defaults() -> None:
    assert load_policy(None) == Policy()


def test_equal_policies_have_equal_versions_and_others_do_not() -> None:
    assert parse_policy("{}").version == Policy().version
    assert len(Policy().version) == 12
    assert parse_policy("auto: {full_max_tokens: 5}").version != Policy().version


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("auto: {full_max_token: 5}", "unknown key 'auto.full_max_token'"),
        ("autos: {}", "unknown key 'autos'"),
        ("auto: 5", "auto must be a mapping"),
        ("- 1", "the file must be a mapping"),
        ("auto: {full_max_tokens: many}", "Expected `int`"),
        ("auto: {full_max_tokens: 50000}", "full_max_tokens <= hierarchical_max_tokens"),
        ("allow: [fast]", "Invalid enum value"),
        ("allow: []", "at least one route"),
        ("limits: {full: 0}", "at least 1 token"),
        ("retrieval: {min_evidence: 2}", "min_evidence"),
        ("answer: {deadline_s: 0}", "must be positive"),
        ("a: [", "not valid YAML"),
    ],
)
def test_a_bad_policy_is_refused_with_its_reason(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=re.escape(words)):
        parse_policy(text)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"nothing\.yaml"):
        load_policy(tmp_path / "nothing.yaml")


def test_a_policy_is_read_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "ringway.yaml"
    path.write_text("allow: [retrieval, full]\nlimits: {full: 100}\n")
    policy = load_policy(path)
    assert policy.allow == (Route.RETRIEVAL, Route.FULL)
    assert policy.limits.full == 100
