"""Long texts to hide facts in, from files, from `ringway synth` or of keys and values.

Knows characters; how long they are in tokens is for the model's server to say.
"""

import hashlib
import random
from dataclasses import dataclass
from pathlib import Path

from gateway.evaluation.needles import pair_line
from ingest.synth.api import CaseRequest, EstimateCounter, synthesize

SUFFIXES = (".txt", ".md")
BORDER_WINDOW = 400
"""How far before its depth a fact may stand, so that it stands between two sentences."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Haystack:
    """`name` says for people where the text is from."""

    name: str
    text: str

    def __post_init__(self) -> None:
        if not self.text.strip():
            raise ValueError(f"the haystack {self.name} has no text")

    @property
    def digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()[:16]

    def cut(self, num_chars: int, rng: random.Random) -> str:
        """So much of the text from anywhere in it, round its end where it is too short.

        Two samples begin differently, so that no server answers one from the other's cache.
        """
        start = border_before(self.text, rng.randrange(len(self.text)))
        turned = self.text[start:] + "\n" + self.text[:start]
        return (turned * (num_chars // len(turned) + 1))[:num_chars]


def read_haystack(folder: Path) -> Haystack:
    """All .txt and .md files below, by their paths. Raises ValueError with a sentence."""
    if not folder.is_dir():
        raise ValueError(f"--haystack {folder} is no folder")
    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in SUFFIXES)
    if not paths:
        raise ValueError(f"--haystack {folder} holds no {' or '.join(SUFFIXES)} file")
    try:
        texts = [path.read_text(encoding="utf-8") for path in paths]
    except OSError as error:
        raise ValueError(f"cannot read {error.filename}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ValueError(f"a file of --haystack {folder} is not UTF-8: {error}") from error
    return Haystack(name=f"{len(paths)} files of {folder.name}", text="\n\n".join(texts))


def synthetic_haystack(num_tokens: int, seed: int) -> Haystack:
    """A case file of `ringway synth`, about so long."""
    case = synthesize(CaseRequest(seed=seed, num_tokens=num_tokens, num_facts=0), EstimateCounter())
    return Haystack(
        name=f"ringway synth, seed {seed}, {num_tokens} tokens", text=case.documents[0].text
    )


def pairs(num_chars: int, rng: random.Random) -> str:
    """Lines of keys and values, cut at so many characters."""
    line = pair_line(rng)
    num_lines = num_chars // (len(line) + 1) + 1
    return "\n".join([line, *(pair_line(rng) for _ in range(num_lines))])[:num_chars]


def border_before(text: str, at: int) -> int:
    """The start of the sentence or line that `at` is in; `at` itself where none is near."""
    low = max(0, at - BORDER_WINDOW)
    line, sentence = text.rfind("\n", low, at), text.rfind(". ", low, at)
    if line < 0 and sentence < 0:
        return 0 if low == 0 else at
    return max(line + 1 if line >= 0 else 0, min(sentence + 2, at) if sentence >= 0 else 0)
