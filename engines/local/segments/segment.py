"""One chunk's keys as bytes, and what proves that they are that chunk's; knows no folders.

    magic | length of header | header (msgpack) | ids | scales | keys

All numbers are little-endian. The header's checksum covers everything after it.
"""

import hashlib
import mmap
import struct
import zlib
from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
import torch
from torch import Tensor

from engines.local.segments.int8 import Int8Keys

MAGIC = b"RWSEG001"
LENGTH = struct.Struct("<I")
ID_BYTES = SCALE_BYTES = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentName:
    """`shelf` names what is thrown away together: one owner's chunks behind one anchor. `name`
    is of everything that could change the keys: shelf, place and token ids."""

    shelf: str
    name: str

    @classmethod
    def of(cls, shelf: str, ids_T: Tensor) -> "SegmentName":
        return cls(shelf=shelf, name=digest_of([shelf.encode(), id_bytes(ids_T)]))


def digest_of(parts: Iterable[bytes]) -> str:
    """Parts cannot run into each other."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(len(part).to_bytes(8, "little"))
        digest.update(part)
    return digest.hexdigest()


def id_bytes(ids_T: Tensor) -> bytes:
    return ids_T.to(torch.int32).contiguous().numpy().tobytes()


class Header(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    num_ids: int
    shape: tuple[int, int, int, int]
    checksum: int


def pack_segment(name: SegmentName, ids_T: Tensor, keys: Int8Keys) -> bytes:
    body = b"".join(
        (
            id_bytes(ids_T),
            keys.scale_LGD.contiguous().numpy().tobytes(),
            keys.key_LGSD.contiguous().numpy().tobytes(),
        )
    )
    num_layers, num_heads, num_keys, head_dim = keys.key_LGSD.shape
    header = msgspec.msgpack.encode(
        Header(
            name=name.name,
            num_ids=len(ids_T),
            shape=(num_layers, num_heads, num_keys, head_dim),
            checksum=zlib.crc32(body),
        )
    )
    return MAGIC + LENGTH.pack(len(header)) + header + body


def unpack_segment(
    packed: "mmap.mmap | bytes", name: SegmentName, ids_T: Tensor
) -> Int8Keys | None:
    """The keys, lying where `packed` lies; None for anything but this very segment, whole."""
    view = memoryview(packed)
    header = _header(view)
    if header is None or header.name != name.name or header.num_ids != len(ids_T):
        return None
    num_layers, num_heads, num_keys, head_dim = header.shape
    scale_at = header.num_ids * ID_BYTES
    key_at = scale_at + num_layers * num_heads * head_dim * SCALE_BYTES
    body = view[len(MAGIC) + LENGTH.size + _header_length(view) :]
    if len(body) != key_at + num_layers * num_heads * num_keys * head_dim:
        return None
    if zlib.crc32(body) != header.checksum or body[:scale_at] != id_bytes(ids_T):
        return None
    flat = torch.frombuffer(body, dtype=torch.int8)
    return Int8Keys(
        flat[key_at:].view(header.shape),
        torch.frombuffer(bytearray(body[scale_at:key_at]), dtype=torch.float32).view(
            num_layers, num_heads, head_dim
        ),
    )


def _header_length(view: memoryview) -> int:
    length: int = LENGTH.unpack_from(view, len(MAGIC))[0]
    return length


def _header(view: memoryview) -> Header | None:
    if len(view) < len(MAGIC) + LENGTH.size or view[: len(MAGIC)] != MAGIC:
        return None
    begin = len(MAGIC) + LENGTH.size
    try:
        return msgspec.msgpack.decode(view[begin : begin + _header_length(view)], type=Header)
    except msgspec.MsgspecError:
        return None
