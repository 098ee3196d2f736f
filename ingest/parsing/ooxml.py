"""Office Open XML packages: a ZIP of XML parts that point at each other. Knows no document.

A part is read as a stream of events and never as a tree, so its depth and size cost no memory.
Document type declarations are refused: Office writes none, and entities need one.
"""

import io
import posixpath
import struct
import zipfile
import zlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from urllib.parse import unquote
from xml.etree import ElementTree

from ingest.api import PermanentError
from ingest.parsing.parsed import ParseLimits

PIECE_BYTES = 1 << 16
MAX_DEPTH = 1_000
MAX_RATIO = 200
"""Deflate reaches 1,032; spreadsheets of repeated rows seldom 100."""
SMALL_BYTES = 32 << 20
"""Up to here the ratio does not matter."""
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
ENCRYPTED_FLAG = 1

BROKEN_ZIP = (
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    EOFError,
    OSError,
    NotImplementedError,
    OverflowError,
    ValueError,
)
BROKEN_XML = (ElementTree.ParseError, LookupError, ValueError)

UNREAD = (
    ("media/", "picture or recording", "pictures or recordings"),
    ("embeddings/", "embedded file", "embedded files"),
    ("charts/chart", "chart", "charts"),
    ("vbaProject.bin", "set of macros", "sets of macros"),
    ("activeX/activeX", "control", "controls"),
)


class Step(Enum):
    START = 1
    END = 2
    TEXT = 3


Event = tuple[Step, str, Mapping[str, str]]
"""A step, the element's local name or the text, and a starting element's attributes.

Names are local; only those of the relationships namespaces begin with "r:".
"""

START, END, TEXT = Step.START, Step.END, Step.TEXT
NO_ATTRIBUTES: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Relation:
    id: str
    kind: str
    """The last word of the relationship's type, as in "footnotes"."""
    target: str
    """The part's name in the package."""


class Package:
    """Raises PermanentError for a broken, locked or overblown package, here and while reading."""

    def __init__(self, raw: bytes, limits: ParseLimits) -> None:
        try:
            self._zip = zipfile.ZipFile(io.BytesIO(raw))
        except BROKEN_ZIP as error:
            raise PermanentError("The file is a ZIP archive that is broken.") from error
        self._infos = {info.filename.lstrip("/"): info for info in self._zip.infolist()}
        self._max_bytes = limits.max_unpacked_bytes
        self._max_ratio_bytes = max(SMALL_BYTES, MAX_RATIO * len(raw))
        self._num_packed, self._num_bytes = len(raw), 0

    def __contains__(self, part: str) -> bool:
        return part in self._infos

    @property
    def parts(self) -> list[str]:
        return list(self._infos)

    def main_part(self) -> str:
        for relation in self.relations(""):
            if relation.kind == "officeDocument" and relation.target in self:
                return relation.target
        raise PermanentError("The Office document is broken: its main part is missing.")

    def relations(self, part: str) -> list[Relation]:
        """What `part` points at inside the package; "" is the package itself."""
        folder, name = posixpath.split(part)
        source = posixpath.join(folder, "_rels", f"{name}.rels")
        if source not in self:
            return []
        found = []
        for step, _, attributes in self.events(source, ("r:Relationship",)):
            if step is START:
                if attributes.get("TargetMode") == "External":
                    continue
                target = unquote(attributes.get("Target", ""))
                place = posixpath.normpath(posixpath.join("/", folder, target)).lstrip("/")
                kind = attributes.get("Type", "").rpartition("/")[2]
                found.append(Relation(attributes.get("Id", ""), kind, place))
        return found

    def related(self, part: str, kind: str) -> list[str]:
        """The existing parts of one kind that `part` points at, each once."""
        targets = [each.target for each in self.relations(part) if each.kind == kind]
        return [target for target in dict.fromkeys(targets) if target in self]

    def events(self, part: str, wanted: Collection[str]) -> Iterator[Event]:
        """The `wanted` elements of a part, and all text."""
        collector = Collector(part, wanted)
        parser = ElementTree.XMLParser(target=collector)
        try:
            for piece in self._pieces(part):
                parser.feed(piece)
                yield from collector.take()
            parser.close()
        except BROKEN_XML as error:
            raise PermanentError(f"The document is broken: {part} is no valid XML.") from error
        yield from collector.take()

    def unread_note(self) -> str | None:
        """What lies in the package besides its text."""
        found = []
        for marker, one, many in UNREAD:
            number = sum(f"/{marker}" in f"/{part}" for part in self._infos)
            if number:
                found.append(f"{number} {one if number == 1 else many}")
        return f"Did not read {', '.join(found)}." if found else None

    def _pieces(self, part: str) -> Iterator[bytes]:
        info = self._infos[part]
        if info.flag_bits & ENCRYPTED_FLAG:
            raise PermanentError("The document is protected by a password; upload it without one.")
        if info.compress_type not in METHODS:
            raise PermanentError(f"The document packs {part} in a way that Office never does.")
        self._count(info.file_size)
        try:
            with self._zip.open(info) as file:
                while piece := file.read(PIECE_BYTES):
                    yield piece
        except BROKEN_ZIP as error:
            raise PermanentError(f"The document is broken: {part} cannot be unpacked.") from error

    def _count(self, num_bytes: int) -> None:
        """By declared sizes; `zipfile` never gives more than a part declares."""
        self._num_bytes += num_bytes
        if self._num_bytes > self._max_bytes:
            raise PermanentError(
                f"The document unpacks to more than {self._max_bytes >> 20} MiB, "
                "which is the limit."
            )
        if self._num_bytes > self._max_ratio_bytes:
            raise PermanentError(
                f"The document unpacks to {self._num_bytes // self._num_packed} times its size; "
                f"the limit is {MAX_RATIO} times."
            )


class LocalNames(dict[str, str]):
    """Qualified names to local ones, each worked out once; empty for those not wanted."""

    def __init__(self, wanted: Collection[str] | None) -> None:
        self._wanted = wanted

    def __missing__(self, tag: str) -> str:
        space, _, local = tag.rpartition("}")
        name = f"r:{local}" if space.endswith("/relationships") else local
        if self._wanted is not None and name not in self._wanted:
            name = ""
        self[tag] = name
        return name


class Collector:
    """What the XML parser calls, for every element of a part: the hot path of all readers."""

    def __init__(self, part: str, wanted: Collection[str]) -> None:
        self._part = part
        self._events: list[Event] = []
        self._elements, self._attributes = LocalNames(wanted), LocalNames(None)
        self._depth = 0

    def take(self) -> list[Event]:
        events, self._events = self._events, []
        return events

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise PermanentError(
                f"The document nests elements in {self._part} deeper than {MAX_DEPTH} levels."
            )
        name = self._elements[tag]
        if name:
            local = self._attributes
            named = {local[key]: attributes[key] for key in attributes} if attributes else {}
            self._events.append((START, name, named))

    def end(self, tag: str) -> None:
        self._depth -= 1
        name = self._elements[tag]
        if name:
            self._events.append((END, name, NO_ATTRIBUTES))

    def data(self, text: str) -> None:
        self._events.append((TEXT, text, NO_ATTRIBUTES))

    def doctype(self, name: str, public: str | None, system: str | None) -> None:
        raise PermanentError(
            f"The document declares XML entities in {self._part}, which Office never does."
        )

    def close(self) -> None:
        pass


def is_on(attributes: Mapping[str, str], name: str = "val") -> bool:
    """Whether a switch of Office's XML is set; a bare element is."""
    return attributes.get(name, "1") not in ("0", "false", "off")


def whole(text: str | None) -> int | None:
    """A number as Office writes it, or None."""
    is_number = text is not None and len(text) < 19 and text.isascii() and text.isdecimal()
    return int(text) if text is not None and is_number else None
