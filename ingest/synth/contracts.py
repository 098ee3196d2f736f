"""Contracts of numbered clauses: knows articles, sub-clauses and boilerplate."""

from collections.abc import Iterator
from itertools import count, islice

from ingest.synth.grammar import Rules
from ingest.synth.layout import Block, heading, paragraph, title
from ingest.synth.scene import Scene

CONTRACT_KINDS = (
    "Storage and Handling Agreement",
    "Master Services Agreement",
    "Supply Agreement",
    "Framework Agreement for Carriage",
    "Facility Use Agreement",
    "Equipment Hire Agreement",
    "Confidentiality Agreement",
    "Distribution Agreement",
)

RULES: Rules = {
    "party": ("the Supplier", "the Customer", "either party", "the party in default", "each party"),
    "one_party": ("the Supplier", "the Customer"),
    "notice_time": (
        "within {count} days",
        "within {count} business days",
        "without undue delay",
        "not later than {count} days before the start of a quarter",
    ),
    "clause_definitions": (
        "In this agreement, Goods means the {goods} listed in Schedule {count}, and Site means the "
        "{place} together with its yard and access road.",
        "Business Day means a day, other than a Saturday or Sunday, on which banks are open.",
        "References to a clause or a schedule are to those of this agreement, unless the context "
        "requires otherwise; headings do not affect its interpretation.",
        "Services means the receipt, stacking, storage and release of {goods} as described in "
        "Schedule {count}.",
        "Confidential Information includes {paper_plural}, prices, and whatever a reasonable "
        "person would regard as confidential.",
    ),
    "clause_services": (
        "The Supplier shall perform the Services with reasonable skill and care and shall keep "
        "{paper_plural} available to the Customer at the {place}.",
        "The Supplier shall receive up to {count} {goods} a week, and more if {person} so "
        "agrees in writing.",
        "Where the Services are interrupted, {one_party} shall inform {office} {notice_time} and "
        "propose a plan for {matter}.",
        "The Supplier may use subcontractors, {company} among them, and remains liable for them as "
        "for its own staff.",
        "A change to the Services takes effect only when both parties have signed a change order "
        "which states its effect on {matter}.",
    ),
    "clause_price": (
        "The Customer shall pay the charges in Schedule {count}, invoiced monthly and due {count} "
        "days after receipt of a valid invoice.",
        "Charges are exclusive of value added tax, duties and demurrage, which {one_party} shall "
        "bear as they fall due.",
        "Overdue amounts carry interest at {count} percent a year above the base rate, from "
        "the due date until payment, before and after judgment.",
        "For reference order {ref} the parties agreed a ceiling of {sum}, which covers "
        "handling and customs paperwork but not {matter}.",
        "{one_party} may not set off any amount against the charges unless the claim is undisputed "
        "or has been finally decided.",
    ),
    "clause_term": (
        "This agreement starts on the date of the last signature and runs for {count} months, and "
        "thereafter from year to year.",
        "Either party may terminate this agreement on {count} weeks' notice in writing, addressed "
        "to {office} of the other.",
        "{one_party} may terminate at once if the other commits a material breach and does not "
        "remedy it {notice_time} after being asked to.",
        "On termination the Customer shall collect the remaining {goods} {notice_time}; clauses "
        "that by their nature should survive shall do so.",
    ),
    "clause_liability": (
        "Nothing in this agreement limits liability for death or personal injury caused by "
        "negligence, for fraud, or for anything that cannot be limited by law.",
        "Subject to the foregoing, neither party is liable for loss of profit, loss of goodwill or "
        "indirect loss, however it arises.",
        "The Supplier is not liable for shrinkage of up to {count} in every thousand units, as "
        "established at a joint stock count.",
        "A claim for damage to {goods} must be notified to {office} {notice_time} after release, "
        "with {paper_plural} that support it.",
        "Each party shall take reasonable steps to reduce its loss, including the resale of "
        "{goods} where that is practicable.",
    ),
    "clause_confidentiality": (
        "Each party shall keep the other's Confidential Information secret and use it for this "
        "agreement only.",
        "Disclosure to {office} and to professional advisers is permitted where they are bound by "
        "equivalent duties.",
        "On request, a party shall return or destroy {paper_plural} {notice_time}, except for one "
        "copy kept for evidence.",
        "A party that is compelled by law to disclose shall, where permitted, tell the other "
        "{notice_time} so that it can object.",
    ),
    "clause_force": (
        "Neither party is in breach for as long as it is prevented from performing by an event "
        "beyond its reasonable control, such as flood, strike or embargo.",
        "The party affected shall notify {person} {notice_time} and resume performance as "
        "soon as it reasonably can.",
        "Where the event lasts for more than {count} weeks, {party} may end the affected "
        "part of the Services.",
    ),
    "clause_disputes": (
        "The parties shall first try to resolve a dispute about {matter} between their project "
        "leads, and then between {person} and {person} or their successors.",
        "If the dispute is not resolved {notice_time}, {party} may refer it to mediation; the "
        "mediator's costs are shared equally.",
        "Pending the outcome, {one_party} shall continue to perform, and access to the {place} may "
        "not be withheld.",
        "This agreement is governed by the law of the place where the Supplier has its registered "
        "office.",
    ),
    "clause_general": (
        "This agreement, with its schedules, is the entire agreement between the parties and "
        "replaces {paper} and every earlier understanding on the subject.",
        "A waiver is effective only in writing, and a delay in exercising a right is not a waiver.",
        "If a provision is found to be invalid, the rest of this agreement remains in force.",
        "Notices to the Supplier are sent to the {place}, marked for the attention of {person}.",
        "Neither party may assign this agreement without consent, which may not be unreasonably "
        "withheld where the assignee is {company}.",
        "This agreement may be signed in counterparts, each of which is an original.",
    ),
    "clause_records": (
        "The Supplier shall keep {paper_plural} for {count} years and let {office} inspect them "
        "during business hours.",
        "Differences found at {occasion} are entered in a protocol signed by both sides.",
        "Temperature and humidity at the {place} are recorded every {count} minutes and reported "
        "monthly.",
        "Access to records about {matter} requires an appointment with {person} or a deputy.",
    ),
    "recital": (
        "The Supplier operates the {place} and handles {goods} for the trade.",
        "The Customer needs room for {goods} and wishes to engage the Supplier.",
        "The parties have worked together under {paper} and wish to restate their terms.",
        "Following {occasion}, the parties agreed in principle on {matter}.",
        "The Customer has inspected the {place} and found it suitable.",
    ),
}

TOPICS = (
    ("Definitions", "clause_definitions"),
    ("Services", "clause_services"),
    ("Charges and payment", "clause_price"),
    ("Term and termination", "clause_term"),
    ("Liability", "clause_liability"),
    ("Confidentiality", "clause_confidentiality"),
    ("Force majeure", "clause_force"),
    ("Records and access", "clause_records"),
    ("Governing law and disputes", "clause_disputes"),
    ("General", "clause_general"),
)


def contract(scene: Scene, *, number: int) -> Iterator[Block]:
    """Parties, recitals, numbered clauses, signatures."""
    dice, writer = scene.dice, scene.writer
    supplier = writer.say("company")
    customer = writer.say("company")
    while customer == supplier:
        customer = writer.say("company")
    yield title(f"Contract {number}: {dice.pick(CONTRACT_KINDS)}")
    yield paragraph(
        f"This agreement is made on {writer.say('date')} between {supplier} (the Supplier) and "
        f"{customer} (the Customer). File reference {writer.say('ref')}."
    )
    yield heading("Recitals")
    recitals = islice(writer.say_each("recital"), dice.between(2, 4))
    for letter, recital in zip("ABCD", recitals, strict=False):
        yield paragraph(f"({letter}) {recital}")
    for at, (topic, rule) in enumerate(TOPICS, start=1):
        yield heading(f"{at}. {topic}")
        yield from clauses(scene, article=at, rule=rule)
    yield heading("Signatures")
    yield paragraph(f"For {supplier}: {writer.say('person')}, {writer.say('role')}")
    yield paragraph(f"For {customer}: {writer.say('person')}, {writer.say('role')}")


def clauses(scene: Scene, *, article: int, rule: str) -> Iterator[Block]:
    """Sub-clauses of one article; each template once, so that no two of them disagree."""
    sentences = scene.writer.say_each(rule)
    for at in count(1):
        if planting := scene.planter.take():
            yield paragraph(f"{article}.{at} {planting.sentence}", planting)
            continue
        text = " ".join(islice(sentences, scene.dice.between(1, 2)))
        if not text:
            return
        yield paragraph(f"{article}.{at} {text}")
