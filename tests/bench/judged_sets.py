"""The judged retrieval sets as chunks, questions and a measure each; knows no search."""

import csv
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from retrieval.api import Chunk

CHUNK_TOKENS = 400
OVERLAP_TOKENS = 200
WORDS_PER_TOKEN = 0.75

Measure = Callable[[Sequence[Chunk]], Mapping[str, float]]


@dataclass(frozen=True, slots=True)
class Question:
    """`measure` scores a ranking of chunks, best first; `document_ids` is the scope."""

    text: str
    document_ids: Sequence[str]
    measure: Measure


@dataclass(frozen=True, slots=True)
class JudgedSet:
    """`texts` are whole documents, which the spans of `chunks` count in."""

    name: str
    texts: Mapping[str, str]
    chunks: Sequence[Chunk]
    questions: Sequence[Question]


def load_all(data: Path) -> list[JudgedSet]:
    root = data / "retrieval"
    return [
        cranfield(root / "cranfield"),
        xquad(root / "xquad"),
        codebase(root / "codebase"),
        chunking(root / "chunking"),
    ]


def whole(document_id: str, text: str, heading: str = "") -> Chunk:
    return Chunk(
        id=document_id,
        document_id=document_id,
        generation="bench",
        start=0,
        stop=len(text),
        parent_start=0,
        parent_stop=len(text),
        text=text,
        heading=heading,
    )


def cranfield(folder: Path) -> JudgedSet:
    """Abstracts with their titles as headings; nDCG@10 over graded judgments, recall@100."""
    chunks = []
    for body in re.findall(r"<doc>(.*?)</doc>", _read(folder / "cran.all.1400.xml"), re.DOTALL):
        text = _element(body, "text")
        if text:
            chunks.append(whole(_element(body, "docno"), text, _element(body, "title")))
    grades: dict[int, dict[str, int]] = {}
    for line in _read(folder / "cranqrel.trec.txt").splitlines():
        query, _, document_id, grade = line.split()
        grades.setdefault(int(query), {})[document_id] = max(0, int(grade))
    ids = [chunk.document_id for chunk in chunks]
    titles = re.findall(r"<title>(.*?)</title>", _read(folder / "cran.qry.xml"), re.DOTALL)
    questions = [
        Question(title.strip(), ids, _graded(grades.get(number, {})))
        for number, title in enumerate(titles, start=1)
    ]
    return _judged("cranfield", chunks, questions)


def xquad(folder: Path) -> JudgedSet:
    """English paragraphs; the right one must come first."""
    chunks: list[Chunk] = []
    asked: list[tuple[str, str]] = []
    for article in json.loads(_read(folder / "xquad.en.json"))["data"]:
        for paragraph in article["paragraphs"]:
            chunks.append(whole(f"p{len(chunks):03d}", paragraph["context"]))
            asked += [(qa["question"], chunks[-1].id) for qa in paragraph["qas"]]
    ids = [chunk.document_id for chunk in chunks]
    questions = [Question(text, ids, _recall("xquad_r1", {gold}, 1)) for text, gold in asked]
    return _judged("xquad", chunks, questions)


def codebase(folder: Path) -> JudgedSet:
    """Chunks of nine repositories."""
    chunks = [
        whole(f"{document['original_uuid']}:{chunk['original_index']}", chunk["content"])
        for document in json.loads(_read(folder / "codebase_chunks.json"))
        for chunk in document["chunks"]
    ]
    ids = [chunk.document_id for chunk in chunks]
    questions = []
    for line in _read(folder / "evaluation_set.jsonl").splitlines():
        row = json.loads(line)
        gold = {f"{uuid}:{index}" for uuid, index in row["golden_chunk_uuids"]}
        questions.append(Question(row["query"], ids, _recall("codebase_recall10", gold, 10)))
    return _judged("codebase", chunks, questions)


def chunking(folder: Path) -> JudgedSet:
    """Five long corpora in overlapping chunks; which part of the answering characters is read."""
    texts = {path.stem: _read(path) for path in sorted(folder.glob("*.md"))}
    chunks = [chunk for name, text in texts.items() for chunk in sliding_chunks(name, text)]
    csv.field_size_limit(1 << 24)
    questions = []
    for row in csv.DictReader(_read(folder / "questions.csv").splitlines(keepends=True)):
        spans = [(ref["start_index"], ref["end_index"]) for ref in json.loads(row["references"])]
        questions.append(Question(row["question"], [row["corpus_id"]], _char_recall(spans)))
    return JudgedSet("chunking", texts, chunks, questions)


def sliding_chunks(document_id: str, text: str) -> list[Chunk]:
    """Chunks of whole words; tokens are taken as words / 0.75, as in the published figures."""
    words = [match.span() for match in re.finditer(r"\S+", text)]
    size = int(CHUNK_TOKENS * WORDS_PER_TOKEN)
    step = int((CHUNK_TOKENS - OVERLAP_TOKENS) * WORDS_PER_TOKEN)
    chunks = []
    for first in range(0, max(1, len(words) - size + step), step):
        run = words[first : first + size]
        start, stop = run[0][0], run[-1][1]
        chunks.append(
            Chunk(
                id=f"{document_id}:{start}",
                document_id=document_id,
                generation="bench",
                start=start,
                stop=stop,
                parent_start=start,
                parent_stop=stop,
                text=text[start:stop],
            )
        )
    return chunks


def _judged(name: str, chunks: Sequence[Chunk], questions: Sequence[Question]) -> JudgedSet:
    return JudgedSet(name, {chunk.document_id: chunk.text for chunk in chunks}, chunks, questions)


def _graded(grades: Mapping[str, int]) -> Measure:
    relevant = {document_id for document_id, grade in grades.items() if grade > 0}
    ideal = _gain(sorted(grades.values(), reverse=True)[:10])

    def measure(ranking: Sequence[Chunk]) -> Mapping[str, float]:
        gain = _gain([grades.get(chunk.document_id, 0) for chunk in ranking[:10]])
        found = relevant & {chunk.document_id for chunk in ranking[:100]}
        return {
            "cranfield_ndcg10": gain / ideal if ideal else 0.0,
            "cranfield_recall100": len(found) / len(relevant) if relevant else 0.0,
        }

    return measure


def _gain(grades: Sequence[int]) -> float:
    return sum(grade / math.log2(rank + 2) for rank, grade in enumerate(grades))


def _recall(name: str, gold: set[str], depth: int) -> Measure:
    def measure(ranking: Sequence[Chunk]) -> Mapping[str, float]:
        return {name: len(gold & {chunk.id for chunk in ranking[:depth]}) / len(gold)}

    return measure


def _char_recall(spans: Sequence[tuple[int, int]]) -> Measure:
    def measure(ranking: Sequence[Chunk]) -> Mapping[str, float]:
        read: set[int] = set()
        for chunk in ranking[:5]:
            read.update(range(chunk.start, chunk.stop))
        found = sum(place in read for start, stop in spans for place in range(start, stop))
        return {"chunking_char_recall5": found / sum(stop - start for start, stop in spans)}

    return measure


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _element(body: str, name: str) -> str:
    match = re.search(f"<{name}>(.*?)</{name}>", body, re.DOTALL)
    return match[1].strip() if match else ""
