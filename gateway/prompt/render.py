"""A segmented conversation to prompt ids, and every source's place among them.

Knows headings and packing; not which route will read the result. Blocking: use `to_thread`.
"""

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gateway.asks import Image, Turn
from gateway.prompt.layout import QUESTION, Control, Layout, Slot, SlottedMessage, lay_out
from gateway.prompt.model_text import ModelText
from gateway.prompt.segment import Segmented, SegmentedTurn, Source
from gateway.prompt.tokens import EncodedText, TextEncoder
from gateway.tools.described import described
from gateway.tools.syntax import knows_tools, spoken_id, syntax_of


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacedSource:
    """Tokens [token_start, token_stop) hold the source; its text begins at `char_start`
    of the piece `encoded`, whose first token is `piece_start`."""

    source: Source
    token_start: int
    token_stop: int
    char_start: int
    encoded: EncodedText
    piece_start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    ids: "array[int]"
    question_start: int
    placed: tuple[PlacedSource, ...]
    messages: tuple[SlottedMessage, ...] = ()
    """What was rendered, for engines that read chat; empty for a raw prompt."""

    @property
    def document_starts(self) -> tuple[int, ...]:
        return tuple(sorted({one.token_start for one in self.placed}))

    @property
    def context_tokens(self) -> int:
        return sum(one.token_stop - one.token_start for one in self.placed)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Characters [start, stop) of a source's text."""

    source: Source
    start: int
    stop: int


def render_whole(segmented: Segmented, model: ModelText) -> Prompt:
    """Everything the caller sent, documents before the question. Raises TemplateRefused."""
    messages = [
        _spoken(
            one.turn,
            _whole_content(segmented, one, asks=i == segmented.question_turn),
            one.turn.images,
            model,
        )
        for i, one in enumerate(segmented.turns)
    ]
    return _encode(segmented.sources, messages, segmented, model)


def render_packed(segmented: Segmented, passages: str, model: ModelText) -> Prompt:
    """The conversation without its context; `passages` stand before the last question."""
    messages = []
    for i, one in enumerate(segmented.turns):
        content: tuple[str | Slot, ...] = (one.asking,)
        if i == segmented.question_turn:
            content = (Slot(passages, None), "\n\n", Slot("", QUESTION), one.asking)
        messages.append(_spoken(one.turn, content, one.asking_images, model))
    return _encode((), messages, segmented, model)


def locate(prompt: Prompt, start: int, stop: int, model: ModelText) -> list[Excerpt]:
    """Which characters of which sources the prompt tokens [start, stop) hold."""
    excerpts = []
    for one in prompt.placed:
        first, last = max(start, one.token_start), min(stop, one.token_stop)
        if first >= last:
            continue
        chars = [
            model.encoder.char_at(one.encoded, token - one.piece_start) - one.char_start
            for token in (first, last)
        ]
        begin, end = max(0, chars[0]), min(len(one.source.text), chars[1])
        if begin < end:
            excerpts.append(Excerpt(one.source, begin, end))
    return excerpts


def _spoken(
    turn: Turn, content: tuple[str | Slot, ...], images: tuple[Image, ...], model: ModelText
) -> SlottedMessage:
    syntax = syntax_of(model.template.source)
    return SlottedMessage(
        role=turn.role,
        name=turn.name,
        content=content,
        images=images,
        tool_calls=tuple(replace(call, id=spoken_id(call.id, syntax)) for call in turn.tool_calls),
        tool_call_id=turn.tool_call_id and spoken_id(turn.tool_call_id, syntax),
    )


def _whole_content(
    segmented: Segmented, one: SegmentedTurn, *, asks: bool
) -> tuple[str | Slot, ...]:
    documents: list[str | Slot] = []
    for index in one.attached:
        heading = f"Document {index + 1}: {segmented.sources[index].name}\n\n"
        gap = "\n\n" if documents else ""
        documents += [gap, heading, Slot(segmented.sources[index].text, index)]
    # The question begins with the blank line before it: hierarchical attention puts it right
    # behind a chunk that may end in the middle of a sentence.
    mark = [Slot("", QUESTION)] if asks else []
    text = one.turn.text
    if one.split is None or one.inline is None:
        return (*documents, *mark, "\n\n" if documents else "", text)
    before, after = text[: one.split.start], text[one.split.stop :]
    inside = Slot(segmented.sources[one.inline].text, one.inline)
    return (*documents, "\n\n" if documents else "", before, inside, *mark, after)


@dataclass(frozen=True, slots=True)
class _Encoded:
    """Piece i begins at token `starts[i]`; a control token has no encoded text."""

    ids: "array[int]"
    starts: tuple[int, ...]
    pieces: tuple[EncodedText | None, ...]


def _encode(
    sources: Sequence[Source],
    messages: Sequence[SlottedMessage],
    segmented: Segmented,
    model: ModelText,
) -> Prompt:
    spoken, offered = messages, segmented.tools
    if not knows_tools(model.template.source):
        spoken, offered = described(messages, offered), ()
    layout = lay_out(
        spoken,
        model.template,
        model.encoder.specials,
        offered,
        opens_answer=segmented.opens_answer,
    )
    return replace(encode_layout(sources, layout, model), messages=tuple(messages))


def encode_layout(sources: Sequence[Source], layout: Layout, model: ModelText) -> Prompt:
    if not model.encoder.joins_exactly and not _holds_data_special(layout, model.encoder):
        layout = layout.joined()
        whole = model.encoder.encode_whole(str(layout.pieces[0]))
        encoded = _Encoded(whole.ids, (0,), (whole,))
    else:
        encoded = _encode_pieces(layout, model.encoder)
    placed = (
        _place(index, source, layout, encoded, model.encoder)
        for index, source in enumerate(sources)
    )
    return Prompt(
        ids=encoded.ids,
        question_start=_question_start(layout, encoded, model.encoder),
        placed=tuple(one for one in placed if one is not None),
    )


def _holds_data_special(layout: Layout, encoder: TextEncoder) -> bool:
    return any(
        not isinstance(piece, Control) and encoder.holds_special(piece) for piece in layout.pieces
    )


def _encode_pieces(layout: Layout, encoder: TextEncoder) -> _Encoded:
    ids = array("i")
    starts: list[int] = []
    pieces: list[EncodedText | None] = []
    for piece in layout.pieces:
        starts.append(len(ids))
        if isinstance(piece, Control):
            ids.append(encoder.control_id(piece.text))
            pieces.append(None)
        else:
            encoded = encoder.encode(piece)
            for block_ids in encoded.block_ids:
                ids.extend(block_ids)
            pieces.append(encoded)
    return _Encoded(ids, tuple(starts), tuple(pieces))


def _place(
    index: int, source: Source, layout: Layout, encoded: _Encoded, encoder: TextEncoder
) -> PlacedSource | None:
    """None for an empty source, and for one that the template left out."""
    place = layout.places.get(index)
    if place is None or place.start == place.stop:
        return None
    piece = encoded.pieces[place.piece]
    assert piece is not None, "a text lies in a text piece"
    start = encoded.starts[place.piece]
    first, last = (encoder.token_at(piece, char) for char in (place.start, place.stop))
    return PlacedSource(
        source=source,
        token_start=start + first,
        token_stop=start + max(last, first + 1),
        char_start=place.start,
        encoded=piece,
        piece_start=start,
    )


def _question_start(layout: Layout, encoded: _Encoded, encoder: TextEncoder) -> int:
    """First token of the question. A template that drops the message has none: 0."""
    place = layout.places.get(QUESTION)
    if place is None:
        return 0
    if place.piece == len(encoded.pieces):
        return len(encoded.ids)
    piece = encoded.pieces[place.piece]
    start = encoded.starts[place.piece]
    return start if piece is None else start + encoder.token_at(piece, place.start)
