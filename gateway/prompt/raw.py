"""A prompt that is no conversation to its ids: text as its author wrote it, or the ids themselves.

Knows no template. Special tokens in the text are control, and the tokenizer's own opening token
comes first, as it does wherever the model reads plain text. Blocking: use `to_thread`.
"""

import re
from array import array

from gateway.api import InvalidRequest
from gateway.asks import RawPrompt, Turn
from gateway.prompt.layout import QUESTION, Control, Layout, Place
from gateway.prompt.model_text import ModelText
from gateway.prompt.render import Prompt, encode_layout
from gateway.prompt.segment import Segmented, segment

ASKING_TOKENS = 256
"""The end of a prompt of ids with which hierarchical attention asks: ids show no paragraphs."""


def segment_raw(raw: RawPrompt, *, least_context_chars: int) -> Segmented:
    text = raw.content if isinstance(raw.content, str) else ""
    turn = Turn(role="user", text=text)
    return segment((turn,), {}, (), least_context_chars=least_context_chars)


def render_raw(raw: RawPrompt, segmented: Segmented, model: ModelText) -> Prompt:
    """Raises InvalidRequest for ids that the model does not have, and for a prompt of nothing."""
    if isinstance(raw.content, str):
        prompt = encode_layout(segmented.sources, _lay_out(raw.content, segmented, model), model)
    else:
        _refuse_alien(raw.content, model.encoder.num_ids)
        start = max(0, len(raw.content) - ASKING_TOKENS)
        prompt = Prompt(ids=raw.content, question_start=start, placed=())
    if not prompt.ids:
        raise InvalidRequest(
            "Invalid value for 'prompt': it has no tokens.", param="prompt", code="empty_string"
        )
    return prompt


def _lay_out(text: str, segmented: Segmented, model: ModelText) -> Layout:
    [turn] = segmented.turns
    pieces: list[Control | str] = [Control(token) for token in _opening(model)]
    starts: list[tuple[int, int]] = []
    specials = sorted(model.encoder.specials, key=len, reverse=True)
    border = re.compile(f"({'|'.join(map(re.escape, specials))})") if specials else None
    at = 0
    for part in border.split(text) if border else [text]:
        if part:
            starts.append((at, at + len(part)))
            is_control = part in model.encoder.specials
            pieces.append(Control(part) if is_control else part)
        at += len(part)
    shift = len(pieces) - len(starts)
    places: dict[int, Place] = {}
    if turn.split is not None and turn.inline is not None:
        _put(places, turn.inline, turn.split.start, turn.split.stop, starts)
        _put(places, QUESTION, turn.split.stop, turn.split.stop, starts)
    return Layout(
        tuple(pieces),
        {k: Place(p.piece + shift, p.start, p.stop) for k, p in places.items()},
    )


def _put(
    places: dict[int, Place], key: int, start: int, stop: int, pieces: list[tuple[int, int]]
) -> None:
    """A source that a control token cuts in two has no place."""
    for i, (first, last) in enumerate(pieces):
        if first <= start and stop <= last and start < last:
            places[key] = Place(i, start - first, stop - first)
            return


def _opening(model: ModelText) -> list[str]:
    """What the tokenizer puts before every text: a token that begins a sequence, or nothing."""
    alone: list[str] = model.encoder.tokenizer.encode("", add_special_tokens=True).tokens
    before: list[str] = model.encoder.tokenizer.encode("a", add_special_tokens=True).tokens
    opening = [token for token, other in zip(alone, before, strict=False) if token == other]
    return [token for token in opening if token in model.encoder.specials]


def _refuse_alien(ids: "array[int]", num_ids: int) -> None:
    alien = next((i for i in ids if not 0 <= i < num_ids), None)
    if alien is not None:
        raise InvalidRequest(
            f"Invalid value for 'prompt': {alien} is no token id; the model has {num_ids}.",
            param="prompt",
            code="invalid_value",
        )
