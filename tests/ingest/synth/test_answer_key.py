"""What counts as an answer, and that a key survives being written and read."""

from dataclasses import replace
from pathlib import Path

import pytest

from ingest.synth.answer_key import Place, Question, encode_key, load_key, states
from ingest.synth.casefile import CaseRequest, synthesize
from ingest.synth.facts import FactKind
from ingest.synth.tokens import EstimateCounter
from ingest.synth.values import ValueKind, spellings


def question(kind: ValueKind, answer: str) -> Question:
    return Question(
        id="q01",
        kind=FactKind.SINGLE,
        is_demo=True,
        question="?",
        answer=answer,
        accepted=spellings(kind, answer),
        place=Place(file="a.txt", start=0, stop=1, depth=0.0, sentence="x"),
    )


SUM = question(ValueKind.SUM, "$418,250")
DATE = question(ValueKind.DATE, "3 March 2031")
NAME = question(ValueKind.NAME, "Tobias Renner")
CODE = question(ValueKind.CODE, "AK-4552")
CLAUSE = question(ValueKind.CLAUSE, "44.2")


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (SUM, "It was settled for $418,250."),
        (SUM, "USD 418,250 in all"),
        (SUM, "418250"),
        (SUM, "$418,250.00"),
        (DATE, "It ends on 3 March 2031."),
        (DATE, "March 3, 2031"),
        (DATE, "on the 3rd of March, 2031"),
        (DATE, "2031-03-03"),
        (DATE, "on 3\n March  2031"),
        (NAME, "tobias renner signed."),
        (NAME, "Mr. Renner"),
        (CODE, "The code is ak-4552."),
        (CODE, "AK 4552"),
        (CLAUSE, "Clause 44.2."),
    ],
)
def test_accepted_spellings_are_found(asked: Question, text: str) -> None:
    assert states(text, asked)


@pytest.mark.parametrize(
    ("asked", "text"),
    [
        (SUM, "$1,418,250"),
        (SUM, "$418,250.75"),
        (SUM, "$418,2507"),
        (SUM, "1418250"),
        (DATE, "13 March 2031"),
        (DATE, "3 March 2032"),
        (NAME, "Tobias Rennerman"),
        (NAME, "Tobias"),
        (CODE, "BAK-4552"),
        (CODE, "AK-45521"),
        (CLAUSE, "144.2"),
        (CLAUSE, "44.21"),
        (CLAUSE, "3.44.2"),
        (CLAUSE, "44.2.1"),
        (SUM, ""),
    ],
)
def test_near_misses_are_not_found(asked: Question, text: str) -> None:
    assert not states(text, asked)


def test_a_key_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    key = synthesize(CaseRequest(seed=2, num_tokens=20_000), EstimateCounter()).key
    path = tmp_path / "answer_key.json"
    path.write_bytes(encode_key(key))
    assert load_key(path) == key
    assert key.tokens.is_exact is False
    assert "estimate" in key.tokens.method


def test_a_file_that_is_no_key_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "answer_key.json"
    path.write_text("{}")
    with pytest.raises(ValueError, match="not an answer key"):
        load_key(path)


def test_a_key_of_another_version_is_refused(tmp_path: Path) -> None:
    key = synthesize(CaseRequest(seed=2, num_tokens=2_000), EstimateCounter()).key
    path = tmp_path / "answer_key.json"
    path.write_bytes(encode_key(replace(key, version=9)))
    with pytest.raises(ValueError, match="version 9"):
        load_key(path)
