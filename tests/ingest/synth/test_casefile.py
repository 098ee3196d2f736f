"""The case file as a whole: length, spans, depth, and that nothing contradicts what is planted."""

import hashlib
import html
import re
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ingest.synth.answer_key import Place, Question, states
from ingest.synth.casefile import CaseFile, CaseRequest, synthesize
from ingest.synth.facts import FactKind
from ingest.synth.layout import DocumentFormat
from ingest.synth.tokens import EstimateCounter

GOLDEN_SHA256 = "8823a974e27556b8c236486e5a3d0714bdfbd53dc25f25da09faa56ac4d6fd02"
PLANTED_ONLY = (
    "settlement",
    "end date",
    "court interpreter",
    "retention",
    "resignation of",
    "handed in a",
    "badge",
    "escrow",
    "penalty",
    "fire inspection",
    "amended",
    "auditor",
    "spare keys",
    "vault",
    "insure the",
    "custodian",
    "complaint",
    "night manager",
)
"""Words by which the planted shapes can be told; filler must not use one of them."""


def make(seed: int = 3, num_tokens: int = 30_000, num_facts: int | None = None) -> CaseFile:
    request = CaseRequest(seed=seed, num_tokens=num_tokens, num_facts=num_facts)
    return synthesize(request, EstimateCounter())


def all_places(question: Question) -> tuple[Place, ...]:
    return (question.place, *question.bridges, *question.distractors)


def without_planted(case: CaseFile) -> str:
    """All text, with every planted sentence cut out."""
    rest: list[str] = []
    for document in case.documents:
        places = [p for q in case.key.questions for p in all_places(q)]
        spans = sorted((p.start, p.stop) for p in places if p.file == document.filename)
        at = 0
        for start, stop in spans:
            rest.append(document.text[at:start])
            at = stop
        rest.append(document.text[at:])
    return "".join(rest)


@given(
    seed=st.integers(0, 2**40),
    num_tokens=st.integers(2_000, 20_000),
    num_documents=st.integers(1, 4),
    document_format=st.sampled_from(DocumentFormat),
)
@settings(max_examples=25, deadline=None)
def test_every_span_of_the_key_is_its_sentence(
    seed: int, num_tokens: int, num_documents: int, document_format: DocumentFormat
) -> None:
    case = synthesize(
        CaseRequest(
            seed=seed,
            num_tokens=num_tokens,
            num_documents=num_documents,
            document_format=document_format,
        ),
        EstimateCounter(),
    )
    texts = {document.filename: document.text for document in case.documents}
    assert len(texts) == num_documents
    for question in case.key.questions:
        for place in all_places(question):
            assert texts[place.file][place.start : place.stop] == place.sentence
        assert question.answer in question.place.sentence


@given(seed=st.integers(0, 2**40))
@settings(max_examples=8, deadline=None)
def test_an_answer_is_given_only_by_its_planted_sentence(seed: int) -> None:
    case = make(seed=seed, num_tokens=30_000)
    rest = without_planted(case)
    for question in case.key.questions:
        assert not states(rest, question)
        for other in case.key.questions:
            for place in all_places(other):
                if place != question.place:
                    assert not states(place.sentence, question)


@given(seed=st.integers(0, 2**40))
@settings(max_examples=10, deadline=None)
def test_filler_never_says_what_a_planted_sentence_could_be_contradicted_by(seed: int) -> None:
    rest = without_planted(make(seed=seed)).lower()
    assert [phrase for phrase in PLANTED_ONLY if re.search(rf"\b{phrase}", rest)] == []


def test_the_words_that_mark_planted_sentences_cover_every_shape() -> None:
    case = make(num_tokens=240_000)
    sentences = [p.sentence for q in case.key.questions for p in all_places(q)]
    assert len(sentences) > 60
    for sentence in sentences:
        assert any(phrase in sentence.lower() for phrase in PLANTED_ONLY), sentence


def test_filler_speaks_of_the_people_that_questions_ask_about() -> None:
    case = make(num_tokens=60_000)
    rest = without_planted(case)
    asked = re.search(r"settlement sum for (\w+ \w+)", case.key.questions[0].question)
    assert asked is not None
    assert rest.count(asked[1]) >= 2


@pytest.mark.parametrize("num_tokens", [900, 5_000, 60_000, 1_000_000])
def test_the_length_is_what_was_asked_for(num_tokens: int) -> None:
    case = make(num_tokens=num_tokens)
    assert case.key.tokens.counted == pytest.approx(num_tokens, rel=0.02, abs=90)


def test_answers_are_spread_over_the_whole_document() -> None:
    depths = sorted(q.place.depth for q in make(num_tokens=60_000).key.questions)
    assert len(depths) == 12
    for at, depth in enumerate(depths):
        assert depth == pytest.approx((at + 0.5) / 12, abs=0.06)


def test_the_three_demo_questions_ask_for_a_sum_a_date_and_a_name_at_three_depths() -> None:
    demo = make(num_tokens=60_000).key.demo_questions
    patterns = (r"\$[\d,]+", r"\d+ [A-Z][a-z]+ \d{4}", r"\w+ \w+")
    for question, pattern in zip(demo, patterns, strict=True):
        assert question.kind is FactKind.SINGLE
        assert re.fullmatch(pattern, question.answer)
    early, middle, late = sorted(question.place.depth for question in demo)
    assert early < 0.35 < middle < 0.65 < late


def test_each_kind_of_fact_brings_its_companions() -> None:
    questions = make(num_tokens=60_000).key.questions
    assert {question.kind for question in questions} == set(FactKind)
    for question in questions:
        assert len(question.bridges) == (question.kind is FactKind.TWO_HOP)
        assert len(question.distractors) == (4 if question.kind is FactKind.MULTI_KEY else 0)


def test_a_bridge_names_the_person_of_the_answer_and_the_question_does_not() -> None:
    for question in make(num_tokens=60_000).key.questions:
        for bridge in question.bridges:
            (person,) = set(re.findall(r"[A-Z]\w+ [A-Z]\w+", bridge.sentence)) & set(
                re.findall(r"[A-Z]\w+ [A-Z]\w+", question.place.sentence)
            )
            assert person not in question.question


def test_another_seed_gives_another_case() -> None:
    first, second = make(seed=1), make(seed=2)
    assert first.documents[0].text != second.documents[0].text
    assert first.key.questions[0].answer != second.key.questions[0].answer


def test_the_bytes_of_a_seed_are_fixed_for_ever() -> None:
    text = make(seed=7, num_tokens=5_000).documents[0].text
    assert hashlib.sha256(text.encode()).hexdigest() == GOLDEN_SHA256


def test_hash_randomisation_changes_nothing() -> None:
    program = (
        "import hashlib\n"
        "from ingest.synth.casefile import CaseRequest, synthesize\n"
        "from ingest.synth.tokens import EstimateCounter\n"
        "case = synthesize(CaseRequest(seed=7, num_tokens=5_000), EstimateCounter())\n"
        "print(hashlib.sha256(case.documents[0].text.encode()).hexdigest())"
    )
    for hash_seed in ("1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={"PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stdout.strip() == GOLDEN_SHA256


def test_no_format_loses_text() -> None:
    bodies: list[list[str]] = []
    for document_format in DocumentFormat:
        request = CaseRequest(seed=5, num_tokens=900, num_facts=0, document_format=document_format)
        text = synthesize(request, EstimateCounter()).documents[0].text
        plain = re.sub(r"<head>.*</head>|<[^>]+>|#", " ", text, flags=re.DOTALL)
        bodies.append(html.unescape(plain).removesuffix("END OF VOLUME").split())
    shared = min(len(body) for body in bodies) - 3
    assert shared > 300
    assert bodies[0][:shared] == bodies[1][:shared] == bodies[2][:shared]


def test_text_has_no_run_of_blanks_that_a_parser_might_fold() -> None:
    text = make(num_tokens=60_000).documents[0].text
    assert re.search(r"  |\n\n\n|[ \t]\n|\r|\f", text) is None


@pytest.mark.parametrize(
    ("num_tokens", "num_documents", "num_facts", "words"),
    [
        (100, 1, None, "too few"),
        (5_000, 0, None, "at least one"),
        (5_000, 1, 65, "between 0 and 64"),
        (1_000, 1, 12, "at least 3600"),
    ],
)
def test_a_request_that_cannot_be_met_is_refused(
    num_tokens: int, num_documents: int, num_facts: int | None, words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        CaseRequest(seed=1, num_tokens=num_tokens, num_documents=num_documents, num_facts=num_facts)


def test_most_facts_in_little_text_are_all_planted() -> None:
    case = make(num_tokens=64 * 300, num_facts=64)
    assert len(case.key.questions) == 64


def test_a_case_without_facts_is_only_filler() -> None:
    case = make(num_tokens=2_000, num_facts=0)
    assert case.key.questions == ()
    assert case.key.tokens.counted == pytest.approx(2_000, rel=0.05)


def test_progress_adds_up_to_the_length() -> None:
    seen: list[int] = []
    case = synthesize(CaseRequest(seed=1, num_tokens=8_000), EstimateCounter(), seen.append)
    assert sum(seen) == pytest.approx(case.key.tokens.counted, rel=0.02)
    assert len(seen) > 50
