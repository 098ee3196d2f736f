"""A whole case file from a seed: knows the order of its parts and where facts are planted."""

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from ingest.synth import contracts, depositions, exhibits
from ingest.synth.answer_key import (
    KEY_VERSION,
    AnswerKey,
    KeyFile,
    Place,
    Question,
    TokenTotals,
)
from ingest.synth.dice import Dice
from ingest.synth.facts import MAX_FACTS, Fact, FactMaker, Planting, Role
from ingest.synth.grammar import Grammar, Writer
from ingest.synth.layout import Block, DocumentFormat, Page, paragraph, title
from ingest.synth.lexicon import LEXICON
from ingest.synth.names import Cast
from ingest.synth.scene import LIVE_NAMES, Planter, Scene, live_names
from ingest.synth.tokens import TokenCounter
from ingest.synth.values import Ledger

TOKENS_PER_FACT = 5_000
MIN_TOKENS_PER_FACT = 300
DEFAULT_MAX_FACTS = 48
FIRST_DEPTH, LAST_DEPTH = 0.02, 0.97
"""Where the first and the last planted sentence may stand, as shares of the whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseRequest:
    """`num_tokens` is for all documents together; `num_facts` None lets the length decide."""

    seed: int
    num_tokens: int
    num_documents: int = 1
    num_facts: int | None = None
    document_format: DocumentFormat = DocumentFormat.TXT

    def __post_init__(self) -> None:
        if self.num_documents < 1:
            raise ValueError("a case needs at least one document")
        if self.num_tokens < 200 * self.num_documents:
            raise ValueError(
                f"{self.num_tokens} tokens are too few for {self.num_documents} document(s): "
                f"200 each is the least"
            )
        if not 0 <= self.facts <= MAX_FACTS:
            raise ValueError(f"the number of facts must be between 0 and {MAX_FACTS}")
        if self.num_tokens < MIN_TOKENS_PER_FACT * self.facts:
            raise ValueError(
                f"{self.facts} facts need at least {MIN_TOKENS_PER_FACT * self.facts} tokens"
            )

    @property
    def facts(self) -> int:
        if self.num_facts is not None:
            return self.num_facts
        wanted = min(DEFAULT_MAX_FACTS, max(3, self.num_tokens // TOKENS_PER_FACT))
        return min(wanted, self.num_tokens // MIN_TOKENS_PER_FACT)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseDocument:
    filename: str
    text: str
    num_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseFile:
    documents: tuple[CaseDocument, ...]
    key: AnswerKey


def synthesize(
    request: CaseRequest, counter: TokenCounter, on_tokens: Callable[[int], None] = lambda _: None
) -> CaseFile:
    """Pure: the same request and counter give the same bytes on every machine.

    `on_tokens` is told of the tokens written since it was last called.
    """
    dice = Dice(request.seed, "cast")
    cast, ledger = Cast(dice), Ledger()
    facts = FactMaker(dice=dice, cast=cast, ledger=ledger).make(request.facts)
    shares = spread(facts, request, Dice(request.seed, "depths"))
    documents: list[CaseDocument] = []
    places: dict[Planting, Place] = {}
    for index, due in enumerate(shares):
        author = Author(request=request, index=index, cast=cast, ledger=ledger)
        document = author.write(due, counter, on_tokens)
        documents.append(document)
        places |= author.places
    return CaseFile(
        documents=tuple(documents), key=answer_key(request, documents, facts, places, counter)
    )


def spread(
    facts: Sequence[Fact], request: CaseRequest, dice: Dice
) -> list[list[tuple[float, Planting]]]:
    """Per document, its plantings with the token counts at which they are due.

    All sentences share evenly spaced slots. Answers are spread over the whole among themselves,
    the demo's early, in the middle and late; bridges and distractors fill what is left.
    """
    answers = [fact.plantings[0] for fact in facts]
    others = dice.shuffled(p for fact in facts for p in fact.plantings[1:])
    ranks = answer_ranks(len(answers), sum(fact.is_demo for fact in facts), dice)
    num_slots = len(answers) + len(others)
    by_slot = {
        (2 * rank + 1) * num_slots // (2 * len(answers)): answer
        for rank, answer in zip(ranks, answers, strict=True)
    }
    rest = iter(others)
    ordered = [by_slot.get(slot) or next(rest) for slot in range(num_slots)]
    shares: list[list[tuple[float, Planting]]] = [[] for _ in range(request.num_documents)]
    per_document = request.num_tokens / request.num_documents
    for slot, planting in enumerate(ordered):
        depth = FIRST_DEPTH + (LAST_DEPTH - FIRST_DEPTH) * (slot + 0.5) / num_slots
        at = depth * request.num_documents
        shares[int(at)].append((at % 1 * per_document, planting))
    return shares


def answer_ranks(num_answers: int, num_demo: int, dice: Dice) -> list[int]:
    """Which place among the answers each fact gets; the demo's facts come first."""
    demo = [(2 * at + 1) * num_answers // (2 * num_demo) for at in range(num_demo)]
    rest = [rank for rank in range(num_answers) if rank not in demo]
    return dice.shuffled(demo) + dice.shuffled(rest)


class Author:
    """Writes one document of the case; `places` tells afterwards where sentences stand."""

    def __init__(self, *, request: CaseRequest, index: int, cast: Cast, ledger: Ledger) -> None:
        self._request = request
        self._index = index
        self._cast = cast
        self._ledger = ledger
        self._dice = Dice(request.seed, f"document {index}")
        self.places: dict[Planting, Place] = {}

    def write(
        self,
        due: Sequence[tuple[float, Planting]],
        counter: TokenCounter,
        on_tokens: Callable[[int], None],
    ) -> CaseDocument:
        first, stop = self._share()
        planter = Planter(due)
        page = Page(self._request.document_format, name=self._cast.case_number)
        num_tokens = 0
        ending = paragraph("END OF VOLUME")
        budget = stop - first - counter.count(page.render(ending))
        for block in self._blocks(planter):
            cost = counter.count(page.render(block))
            if num_tokens + cost > budget and planter.is_done:
                break
            page.add(block)
            num_tokens += cost
            planter.advance(block, cost)
            on_tokens(cost)
        page.add(ending)
        return self._finish(page, counter)

    def _share(self) -> tuple[int, int]:
        """This document's part of all tokens, to the token."""
        total, parts = self._request.num_tokens, self._request.num_documents
        return total * self._index // parts, total * (self._index + 1) // parts

    def _finish(self, page: Page, counter: TokenCounter) -> CaseDocument:
        text = page.finish()
        name = f"case_{self._request.seed}"
        if self._request.num_documents > 1:
            name += f"_volume_{self._index + 1:02d}"
        name += f".{self._request.document_format}"
        for span in page.spans:
            self.places[span.planting] = Place(
                file=name,
                start=span.start,
                stop=span.stop,
                depth=round(span.start / len(text), 4),
                sentence=span.planting.sentence,
            )
        return CaseDocument(filename=name, text=text, num_tokens=counter.count(text))

    def _blocks(self, planter: Planter) -> Iterator[Block]:
        """Without end: a cover, then depositions, contracts and exhibits in turn."""
        dice, cast = self._dice, self._cast
        writer = Writer(grammar=GRAMMAR, dice=dice, live=live_names(dice, self._cast, self._ledger))
        scene = Scene(dice=dice, cast=cast, writer=writer, planter=planter)
        yield title(f"IN THE {cast.court}")
        yield paragraph(f"{cast.plaintiff}, Plaintiff, v. {cast.defendant}, Defendant.")
        yield paragraph(f"Case No. {cast.case_number}. Case file, volume {self._index + 1}.")
        for number in count(1):
            yield from depositions.deposition(scene, number=number)
            yield from contracts.contract(scene, number=number)
            for at in range(dice.between(3, 7)):
                yield from exhibits.exhibit(scene, number=number * 10 + at)


GRAMMAR = Grammar((LEXICON, depositions.RULES, contracts.RULES, exhibits.RULES), live=LIVE_NAMES)


def answer_key(
    request: CaseRequest,
    documents: Sequence[CaseDocument],
    facts: Sequence[Fact],
    places: dict[Planting, Place],
    counter: TokenCounter,
) -> AnswerKey:
    return AnswerKey(
        version=KEY_VERSION,
        seed=request.seed,
        tokens=TokenTotals(
            target=request.num_tokens,
            counted=sum(document.num_tokens for document in documents),
            is_exact=counter.is_exact,
            method=counter.method,
        ),
        files=tuple(
            KeyFile(
                name=document.filename,
                num_chars=len(document.text),
                num_tokens=document.num_tokens,
                sha256=hashlib.sha256(document.text.encode()).hexdigest(),
            )
            for document in documents
        ),
        questions=tuple(
            question_of(fact, places, number) for number, fact in enumerate(facts, start=1)
        ),
    )


def question_of(fact: Fact, places: dict[Planting, Place], number: int) -> Question:
    def of(role: Role) -> tuple[Place, ...]:
        return tuple(places[planting] for planting in fact.plantings if planting.role is role)

    (place,) = of(Role.ANSWER)
    return Question(
        id=f"q{number:02d}",
        kind=fact.kind,
        is_demo=fact.is_demo,
        question=fact.question,
        answer=fact.answer,
        accepted=fact.accepted,
        place=place,
        bridges=of(Role.BRIDGE),
        distractors=of(Role.DISTRACTOR),
    )
