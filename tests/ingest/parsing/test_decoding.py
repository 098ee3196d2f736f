"""Text is UTF-8, or clearly something else, or refused with the byte that is wrong."""

import codecs

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ingest.api import PermanentError
from ingest.parsing.decoding import decode

RUSSIAN = "Все люди рождаются свободными и равными в своём достоинстве и правах. "  # noqa: RUF001
GREEK = "Όλοι οι άνθρωποι γεννιούνται ελεύθεροι και ίσοι στην αξιοπρέπεια. "  # noqa: RUF001


@given(text=st.text(alphabet=st.characters(exclude_categories=["Cs"], exclude_characters="\0\x1b")))
def test_valid_utf8_is_taken_as_it_is(text: str) -> None:
    raw = text.encode()
    decoded = decode(raw)
    if not raw.startswith((codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        assert (decoded.text, decoded.encoding) == (text, "utf-8")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_byte_order_mark_names_the_encoding_and_is_no_text(encoding: str) -> None:
    assert decode("Grüße, 世界".encode(encoding)).text == "Grüße, 世界"


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (RUSSIAN, "koi8_r"),
        (RUSSIAN, "cp1251"),
        (GREEK, "iso8859_7"),
        ("Caf\xe9 au lait, d\xe9j\xe0 vu", "cp1252"),
        ("M\xfcller gr\xfc\xdft aus K\xf6ln", "cp1252"),
        ("\u201csmart quotes\u201d \u2014 and one caf\xe9", "cp1252"),
        ("10 \xb0C, 5 \xa3, \xa9 2024", "cp1252"),
        ("une soir\xe9e cr\xe9\xe9e l\xe0", "cp1252"),
        ("le prix \xe0 payer", "cp1252"),
    ],
)
def test_a_legacy_encoding_is_recognised(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding)).text == text


def test_detection_reads_the_whole_file_not_its_beginning() -> None:
    raw = b"plain ascii line\n" * 200_000 + (RUSSIAN * 3).encode("cp1251")
    assert decode(raw).text.endswith(RUSSIAN)


@pytest.mark.parametrize(
    ("raw", "offset"),
    [
        (b"hello \xff\xfe world", 6),
        (b"text that ends in mid-letter caf\xc3", 32),
        (b"a lone \xc3 byte", 7),
        (b"it\xe2\x80s cut", 2),
        (b"plain text\xff", 10),
        ("Grüße aus Köln ".encode() + b"\xff" + "schön".encode(), 18),
        (("naïve café " * 50).encode() + b"\xe9", 650),
    ],
)
def test_broken_utf8_is_refused_with_the_offset(raw: bytes, offset: int) -> None:
    with pytest.raises(PermanentError, match=rf"byte {offset}\b"):
        decode(raw)


def test_a_text_that_breaks_its_own_byte_order_mark_is_refused() -> None:
    with pytest.raises(PermanentError, match="starts as UTF-8 but is broken at byte 3"):
        decode(codecs.BOM_UTF8 + b"\xff")


def test_an_encoding_that_the_file_declares_is_believed_if_it_fits() -> None:
    raw = "ДА".encode("koi8_r")
    assert decode(raw, declared="koi8-r").text == "ДА"
    with pytest.raises(PermanentError):
        decode(raw, declared="no-such-encoding")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize(
    "text", ["plain words\n", "plainwords", "Größe: 5 €\n", "你好。世界 abc\n你好\n", RUSSIAN]
)
def test_wide_text_is_known_without_its_mark(text: str, encoding: str) -> None:
    assert decode(text.encode(encoding)).text == text


@pytest.mark.parametrize(
    ("label", "text", "codec"),
    [
        ("iso-8859-1", "“quoted” and more", "cp1252"),
        ("gb2312", "镕基", "gb18030"),
        ("shift_jis", "①②", "cp932"),
        ("iso-2022-jp", "日本語", "iso2022_jp"),
        ("utf-7", "Größe", "utf-7"),
    ],
)
def test_a_declared_encoding_means_what_is_meant_by_it(label: str, text: str, codec: str) -> None:
    assert decode(text.encode(codec), declared=label).text == text


@pytest.mark.parametrize("label", ["hex", "rot13", "undefined", "idna", "unicode_escape", "\u0130"])
def test_what_is_declared_but_no_charset_is_not_used(label: str) -> None:
    assert decode(b"caf\xe9 \\u0041", declared=label).text == "café \\u0041"


def test_japanese_mail_in_seven_bits_is_known_by_its_escapes() -> None:
    assert decode("日本語".encode("iso2022_jp")).text == "日本語"
