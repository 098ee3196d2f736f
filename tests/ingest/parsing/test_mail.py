"""A message reads as a mail program shows it, with what is attached."""

from email.message import EmailMessage

import pytest

from ingest.api import PermanentError
from ingest.parsing.parsed import ParseLimits
from tests.ingest.parsing.office_files import docx_bytes, read

PNG = b"\x89PNG\r\n\x1a\n\x00\x00"


def message(subject: str = "Grüße aus Köln", text: str = "Hello.") -> EmailMessage:
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = "Jörg <j@x.example>", "ann@y.example", subject
    mail["Date"] = "Mon, 01 Jan 2024 10:00:00 +0100"
    mail.set_content(text)
    return mail


def test_text_goes_before_html_and_attachments_follow_under_their_names() -> None:
    mail = message()
    mail.add_alternative("<p>Hello in HTML.</p>", subtype="html")
    mail.add_attachment(
        "a;b\n1;Müller\n".encode("cp1252"), maintype="text", subtype="csv", filename="zahlen ü.csv"
    )
    letter = docx_bytes(lambda document: document.add_heading("Letter", 1))
    mail.add_attachment(letter, maintype="application", subtype="x", filename="letter.bin")
    mail.add_attachment(PNG, maintype="image", subtype="png", filename="photo.png")
    mail.add_attachment(message("Re: older", "Older words."))
    parsed = read(bytes(mail), "mail.eml")
    assert parsed.text == (
        "Grüße aus Köln\n\nFrom: Jörg <j@x.example>\nTo: ann@y.example\n"
        "Date: Mon, 01 Jan 2024 10:00:00 +0100\n\nHello.\n\n"
        "Attachment: zahlen ü.csv\n\na | b\n1 | Müller\n\nAttachment: letter.bin\n\nLetter\n\n"
        "Re: older\n\nFrom: Jörg <j@x.example>\nTo: ann@y.example\n"
        "Date: Mon, 01 Jan 2024 10:00:00 +0100\n\nOlder words."
    )
    assert [(each.level, each.title) for each in parsed.outline if each.level < 3] == [
        (1, "Grüße aus Köln"),
        (2, "Attachment: zahlen ü.csv"),
        (2, "Attachment: letter.bin"),
        (2, "Re: older"),
    ]
    assert all(
        parsed.text.startswith(each.title.removeprefix("Columns: a, b"), each.start)
        for each in parsed.outline
    )
    assert parsed.notes[0].startswith("Read 2 messages, 2 attached files, ")
    assert (
        "Did not read the attached 'photo.png': The file is a PNG image; this type cannot be read."
        in parsed.notes
    )


def test_html_is_read_when_there_is_no_text() -> None:
    mail = message(text=" \n")
    mail.add_alternative("<h1>Offer</h1><p>Ten <b>days</b>", subtype="html")
    assert read(bytes(mail)).text.endswith("\n\nOffer\n\nTen days")


@pytest.mark.parametrize("charset", ["iso-8859-1", "utf-8", "iso-2022-jp", "koi8-r", "gb2312"])
def test_bodies_come_in_their_declared_charset(charset: str) -> None:
    text = {"iso-2022-jp": "日本語", "koi8-r": "Да", "gb2312": "中文"}.get(charset, "é")
    mail = message("x")
    mail.set_content(text, charset=charset)
    assert read(bytes(mail), "m.eml").text.endswith(f"\n\n{text}")


@pytest.mark.parametrize(
    ("line", "subject"),
    [
        (b"Subject: =?utf-8?b?w6k=?= =?utf-8?q?=C3=A9?= x", "éé x"),
        (b"Subject: =?no-such?q?abc?=", "abc"),
        (b"Subject: =?utf-8?b?!!!!?=", "=?utf-8?b?!!!!?="),
        ("Subject: roh ü".encode(), "roh ü"),
        (b"Subject: raw \xfc", "raw ü"),
        (b"Subject: folded\r\n over lines", "folded over lines"),
        (b"X-Other: y", "(no subject)"),
    ],
)
def test_a_subject_is_read_however_it_is_written(line: bytes, subject: str) -> None:
    raw = b"MIME-Version: 1.0\r\nFrom: a@b\r\n" + line + b"\r\n\r\nbody\r\n"
    assert read(raw).text.split("\n")[0] == subject


def test_attachments_share_the_limit_and_what_does_not_fit_is_told() -> None:
    mail = message(text="x" * 300)
    mail.add_attachment("y" * 700, filename="long.txt")
    parsed = read(bytes(mail), "m.eml", ParseLimits(max_chars=800))
    assert "y" not in parsed.text.split("Date:")[1].split("x" * 300)[1]
    assert any("'long.txt': The file has 701 characters" in note for note in parsed.notes)


def test_messages_in_messages_are_read_to_a_depth() -> None:
    mail = message("level 0")
    for level in range(1, 8):
        outer = message(f"level {level}")
        outer.add_attachment(mail)
        mail = outer
    parsed = read(bytes(mail))
    assert [each.title for each in parsed.outline] == [f"level {n}" for n in (7, 6, 5, 4, 3)]
    assert parsed.notes[1:] == ["Did not read messages attached more than 4 deep."]


def test_parts_nested_without_end_are_refused_in_a_sentence() -> None:
    head = "".join(
        f"Content-Type: multipart/mixed; boundary=b{n}\n\n--b{n}\n" for n in range(2_000)
    )
    with pytest.raises(PermanentError, match="nests its parts too deeply"):
        read(b"MIME-Version: 1.0\nFrom: a\n" + head.encode())


def test_a_message_cut_short_is_read_and_told() -> None:
    mail = message()
    mail.add_attachment(b"never comes", maintype="text", subtype="plain", filename="a.txt")
    parsed = read(bytes(mail).split(b"never")[0][:-200], "m.eml")
    assert "Hello." in parsed.text
    assert parsed.notes[-1].endswith("perhaps it was cut short.")
