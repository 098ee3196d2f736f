"""The stream events of one response, in OpenAI's order and numbered from 0.

The response opens with the engine's first event; items open as they are spoken and close together
at the end, when it is known what the text cites.
"""

from collections.abc import Iterator, Mapping

from gateway import sse
from gateway.answers import (
    Answered,
    AnswerEvent,
    Called,
    ChoiceEnded,
    Opened,
    Progress,
    Said,
    SpelledToken,
)
from gateway.errors import error_body, fault_for
from gateway.openai.responses_objects import (
    OutputObject,
    ResponseError,
    ResponseObject,
    ResponseWriter,
    logprob_list,
)
from gateway.speech import HeardCall, ProgressComments

Event = tuple[str, Mapping[str, object]]


class Numbered:
    """Events to frames, with their type and number inside as OpenAI has them."""

    def __init__(self) -> None:
        self._next = 0

    def frame(self, kind: str, fields: Mapping[str, object]) -> bytes:
        body = {"type": kind, "sequence_number": self._next, **fields}
        self._next += 1
        return sse.named(kind, body)


class MessageVoice:
    """The message of a response while it is spoken."""

    def __init__(self, writer: ResponseWriter, output_index: int) -> None:
        self._writer = writer
        self._text: list[str] = []
        self._tokens: list[SpelledToken] = []
        item = writer.message("", (), None)
        self._place = {"item_id": item["id"], "output_index": output_index, "content_index": 0}
        self._output_index = output_index
        self._item = item

    def opened(self) -> Iterator[Event]:
        yield _added(self._output_index, self._item)
        part = self._writer.text_part("", (), None)
        yield "response.content_part.added", {**self._place, "part": part}

    def said(self, event: Said) -> Iterator[Event]:
        self._text.append(event.text)
        self._tokens += event.tokens
        fields = {**self._place, "delta": event.text, "logprobs": logprob_list(event.tokens)}
        yield "response.output_text.delta", fields

    def item(self, end: Answered) -> OutputObject:
        return self._writer.message("".join(self._text), self._tokens, end)

    def closed(self, end: Answered) -> Iterator[Event]:
        part = self._writer.text_part("".join(self._text), self._tokens, end)
        for i, annotation in enumerate(part["annotations"]):
            fields = {**self._place, "annotation_index": i, "annotation": annotation}
            yield "response.output_text.annotation.added", fields
        done = {**self._place, "text": part["text"], "logprobs": part["logprobs"]}
        yield "response.output_text.done", done
        yield "response.content_part.done", {**self._place, "part": part}
        yield _done(self._output_index, self.item(end))


class CallVoice:
    """One function call of a response while it is written."""

    def __init__(self, writer: ResponseWriter, output_index: int, first: Called) -> None:
        self._writer = writer
        self._output_index = output_index
        self._number = first.call
        self._id = first.id or ""
        self._name = first.name or ""
        self._arguments: list[str] = []

    def opened(self) -> Iterator[Event]:
        call = HeardCall(id=self._id, name=self._name, arguments="")
        yield _added(self._output_index, self._writer.call(self._number, call, None))

    def wrote(self, event: Called) -> Iterator[Event]:
        if event.arguments:
            self._arguments.append(event.arguments)
            fields = {**self._place(), "delta": event.arguments}
            yield "response.function_call_arguments.delta", fields

    def item(self, end: Answered) -> OutputObject:
        arguments = "".join(self._arguments)
        call = HeardCall(id=self._id, name=self._name, arguments=arguments)
        return self._writer.call(self._number, call, end)

    def closed(self, end: Answered) -> Iterator[Event]:
        fields = {"name": self._name, "arguments": "".join(self._arguments)}
        yield "response.function_call_arguments.done", {**self._place(), **fields}
        yield _done(self._output_index, self.item(end))

    def _place(self) -> Mapping[str, object]:
        item_id = f"fc_{self._writer.suffix}_{self._number}"
        return {"item_id": item_id, "output_index": self._output_index}


class ResponseSpeech:
    """`Speech` of one response."""

    def __init__(self, writer: ResponseWriter) -> None:
        self._writer = writer
        self._numbered = Numbered()
        self._progress = ProgressComments()
        self._opened: Opened | None = None
        self._has_begun = False
        self._search: OutputObject | None = None
        self._voices: list[MessageVoice | CallVoice] = []
        self._message: MessageVoice | None = None
        self._calls: dict[int, CallVoice] = {}

    def frames(self, event: AnswerEvent) -> Iterator[bytes]:
        if isinstance(event, Opened):
            self._opened = event
            return
        yield from self._spelled(self._begin())
        match event:
            case Progress():
                yield from self._progress.frames(event)
            case Said():
                yield from self._spelled(self._say(event))
            case Called():
                yield from self._spelled(self._call(event))
            case Answered():
                yield from self._spelled(self._end(event))
            case ChoiceEnded():
                pass

    def failure(self, error: Exception) -> Iterator[bytes]:
        if not self._has_begun:
            yield sse.data(error_body(error))
            return
        body = error_body(error)["error"]
        told = ResponseError(code=fault_for(error).code or "server_error", message=body["message"])
        response = self._writer.failed([], told)
        yield from self._spelled(iter([("response.failed", {"response": response})]))

    def finished(self, end: Answered) -> ResponseObject:
        """The whole response, as its last event will have it."""
        if not self._voices:
            self._voices.append(MessageVoice(self._writer, 0 if self._search is None else 1))
        output = [] if self._search is None else [self._search]
        output += [voice.item(end) for voice in self._voices]
        return self._writer.ended(output, end)

    def _spelled(self, events: Iterator[Event]) -> Iterator[bytes]:
        for kind, fields in events:
            yield self._numbered.frame(kind, fields)

    def _begin(self) -> Iterator[Event]:
        if self._has_begun:
            return
        assert self._opened is not None, "Opened comes before text"
        self._has_begun = True
        response = self._writer.begun()
        yield "response.created", {"response": response}
        yield "response.in_progress", {"response": response}
        if self._writer.body.file_search is not None:
            yield from self._searched(self._opened)

    def _searched(self, opened: Opened) -> Iterator[Event]:
        """The search is over when the answer begins; its steps are told all the same."""
        query, found = opened.facts.query, opened.facts.found
        started = self._writer.search_call(query, (), "in_progress")
        self._search = self._writer.search_call(query, found)
        place = {"item_id": started["id"], "output_index": 0}
        yield _added(0, started)
        for step in ("in_progress", "searching", "completed"):
            yield f"response.file_search_call.{step}", place
        yield _done(0, self._search)

    def _say(self, event: Said) -> Iterator[Event]:
        if self._message is None:
            self._message = MessageVoice(self._writer, self._next_index())
            self._voices.append(self._message)
            yield from self._message.opened()
        yield from self._message.said(event)

    def _call(self, event: Called) -> Iterator[Event]:
        voice = self._calls.get(event.call)
        if voice is None:
            voice = self._calls[event.call] = CallVoice(self._writer, self._next_index(), event)
            self._voices.append(voice)
            yield from voice.opened()
        yield from voice.wrote(event)

    def _end(self, end: Answered) -> Iterator[Event]:
        response = self.finished(end)
        if self._message is None and not self._calls:
            silent = self._voices[0]
            yield from silent.opened()
        for voice in self._voices:
            yield from voice.closed(end)
        yield f"response.{response['status']}", {"response": response}

    def _next_index(self) -> int:
        return len(self._voices) + (0 if self._search is None else 1)


def _added(output_index: int, item: OutputObject) -> Event:
    return "response.output_item.added", {"output_index": output_index, "item": item}


def _done(output_index: int, item: OutputObject) -> Event:
    return "response.output_item.done", {"output_index": output_index, "item": item}
