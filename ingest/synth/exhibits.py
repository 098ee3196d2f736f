"""Exhibits of a case: knows e-mails, memos, invoices and schedules, and their boilerplate."""

from collections.abc import Callable, Iterator

from ingest.synth.grammar import Rules
from ingest.synth.layout import Block, heading, line, paragraph, title
from ingest.synth.scene import Scene

RULES: Rules = {
    "subject": (
        "Re: {matter}",
        "Fwd: {paper}",
        "Notes on {occasion}",
        "{company}: next steps",
        "Question about {matter}",
        "{place}, weekly update",
        "Documents for {person}",
    ),
    "mail_opening": (
        "Thank you for sending {paper} so quickly.",
        "I am writing further to {occasion}.",
        "Following up on {matter}, as promised.",
        "Please find {paper} attached.",
        "I spoke to {person} this morning about {matter}.",
        "Sorry for the slow reply; I was at the {place} {span}.",
    ),
    "mail_body": (
        "{person} has asked for {paper_plural}, and I said that {office} would send them {manner}.",
        "We still have {count} {goods} at the {place} that nobody has claimed.",
        "{company} would like to move {occasion} to the following week.",
        "As far as I can see, {matter} was not mentioned in {paper}.",
        "I would rather not put {matter} in writing before we have heard from {office}.",
        "The driver waited for {count} minutes at the {place} and then left with the {goods}.",
        "Could you check whether {person} ever received {paper}?",
        "Order {ref} was approved at {sum}, so there should be no surprise when the invoice comes.",
        "{person} and {person} both remember {occasion} differently.",
        "Let us keep {office} in copy from now on.",
        "Nothing in {paper_plural} suggests that {company} knew about {matter}.",
        "I have put {matter} on the list for {occasion}.",
        "The photographs show {count} {goods} with torn wrapping, which matches the gate record.",
        "If {company} insists, we can offer to store the {goods} at the {place} free of charge.",
    ),
    "mail_closing": ("Best regards,", "Kind regards,", "Many thanks,", "Regards,", "Yours,"),
    "footer": (
        "This message and its attachments are confidential and may be privileged. If you received "
        "it in error, delete it and tell the sender.",
        "Please consider the environment before you print this e-mail. Views expressed are those "
        "of the author and not necessarily of the company.",
        "This e-mail does not create a binding obligation. Contracts are concluded on paper signed "
        "by two authorised officers only.",
    ),
    "memo_body": (
        "The purpose of this memorandum is to record what is known about {matter} after "
        "{occasion}.",
        "{person} was interviewed {manner} and described {matter} in some detail.",
        "The team reviewed {paper_plural} and {paper}; {count} items need a second look.",
        "It is recommended that {office} take over {matter} before {occasion}.",
        "{company} has not replied to the request of {date}, and a reminder was sent {manner}.",
        "At the {place}, {count} {goods} were counted twice, with the same result.",
        "The estimate for repairs came to {sum}, under file reference {ref}.",
        "{person} will follow up with {person} and report to {office}.",
        "There is no indication that {matter} affected other sites.",
        "Opinions differ on whether {paper} was ever sent to {company}.",
        "Access to the {place} was limited {span}, which explains the gaps in {paper_plural}.",
    ),
    "item": (
        "Storage of {count} {goods}",
        "Handling and release, {count} {goods}",
        "Carriage to the {place}",
        "Customs paperwork, file {ref}",
        "Waiting time, {count} hours",
        "Repacking of {count} {goods}",
        "Survey and photographs",
        "Fuel supplement",
    ),
    "invoice_terms": (
        "Payment within {count} days. Interest accrues on late payment. Goods remain our property "
        "until paid in full.",
        "All work is carried out under our general terms, a copy of which is available on request.",
        "Queries about this invoice must reach {office} within {count} days of receipt.",
    ),
    "schedule_row": (
        "{count} {goods}, {place}, received {date}",
        "{paper}, {count} pages, copy held by {person}",
        "{count} {goods}, consigned to {company}, reference {ref}",
        "Site passes for the {place}, issued to {person} on {date}",
        "{paper_plural} for {matter}, two folders, {place}",
    ),
    "schedule_note": (
        "Rows are listed in the order in which the papers were produced.",
        "Items marked as copies were compared with the originals by {office}.",
        "This schedule forms part of the disclosure of {company} and is without prejudice.",
    ),
}


def email(scene: Scene) -> Iterator[Block]:
    writer = scene.writer
    sender = writer.say("person")
    yield line(f"From: {sender}")
    yield line(f"To: {writer.say('person')}")
    if scene.dice.chance(0.4):
        yield line(f"Cc: {writer.say('person')}; {writer.say('person')}")
    yield line(f"Date: {writer.say('date')}")
    subject = writer.say_some("subject", 1)
    yield line(f"Subject: {subject}")
    yield paragraph(writer.say("mail_opening"))
    yield from body(scene, rule="mail_body", num_paragraphs=scene.dice.between(2, 6))
    yield line(writer.say("mail_closing"))
    yield line(sender)
    yield paragraph(writer.say("footer"))


def memo(scene: Scene) -> Iterator[Block]:
    writer = scene.writer
    yield line("MEMORANDUM")
    yield line(f"To: {writer.say('office')}")
    yield line(f"From: {writer.say('person')}")
    yield line(f"Date: {writer.say('date')}")
    for part in ("Background", "Findings", "Next steps"):
        yield heading(part)
        yield from body(scene, rule="memo_body", num_paragraphs=scene.dice.between(2, 4))


def invoice(scene: Scene) -> Iterator[Block]:
    """Line items that add up to the total."""
    writer, dice = scene.writer, scene.dice
    yield line(f"Invoice {writer.say('ref')}")
    yield line(f"Issued by {writer.say('company')} to {writer.say('company')}")
    yield line(f"Invoice date: {writer.say('date')}")
    total = 0
    for at in range(1, dice.between(5, 14)):
        cents = dice.between(1_101, 999_999)
        total += cents
        yield line(f"{at:02d} {writer.say('item')}: {dollars(cents)}")
    yield line(f"Total due: {dollars(total)}")
    if planting := scene.planter.take():
        yield paragraph(f"Note: {planting.sentence}", planting)
    yield paragraph(writer.say("invoice_terms"))


def schedule(scene: Scene) -> Iterator[Block]:
    writer = scene.writer
    yield heading("Schedule of documents and items")
    for at in range(1, scene.dice.between(10, 30)):
        if planting := scene.planter.take():
            yield line(f"Item {at}: {planting.sentence}", planting)
            continue
        yield line(f"Item {at}: {writer.say_some('schedule_row', 1)}")
    yield paragraph(writer.say("schedule_note"))


FORMS: tuple[Callable[[Scene], Iterator[Block]], ...] = (
    email,
    email,
    email,
    memo,
    memo,
    invoice,
    schedule,
)


def exhibit(scene: Scene, *, number: int) -> Iterator[Block]:
    form = scene.dice.pick(FORMS)
    yield title(f"Exhibit {number}")
    yield from form(scene)


def body(scene: Scene, *, rule: str, num_paragraphs: int) -> Iterator[Block]:
    for _ in range(num_paragraphs):
        text = scene.writer.say_some(rule, scene.dice.between(2, 4))
        if planting := scene.planter.take():
            after = scene.writer.say_some(rule, 1)
            text = f"{text} {planting.sentence} {after}"
            yield paragraph(text, planting)
            continue
        yield paragraph(text)


def dollars(cents: int) -> str:
    """Cents are always written and never zero, so no item equals a planted sum."""
    whole, rest = divmod(cents, 100)
    return f"${whole:,}.{rest or 1:02d}"
