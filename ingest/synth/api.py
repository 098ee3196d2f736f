"""What the rest of Ringway may know of synthesis: requests, case files, keys and counters.

Made-up documents with planted facts out; nothing here reads or writes an index or a network.
"""

from ingest.synth.answer_key import AnswerKey, Place, Question, encode_key, load_key, states
from ingest.synth.casefile import CaseDocument, CaseFile, CaseRequest, synthesize
from ingest.synth.facts import FactKind
from ingest.synth.layout import DocumentFormat
from ingest.synth.tokens import EstimateCounter, TokenCounter, TokenizerCounter

__all__ = [
    "AnswerKey",
    "CaseDocument",
    "CaseFile",
    "CaseRequest",
    "DocumentFormat",
    "EstimateCounter",
    "FactKind",
    "Place",
    "Question",
    "TokenCounter",
    "TokenizerCounter",
    "encode_key",
    "load_key",
    "states",
    "synthesize",
]
