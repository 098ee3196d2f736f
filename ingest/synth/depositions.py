"""Transcripts of witnesses under oath: knows questions, answers, pages and lines."""

from collections.abc import Iterator

from ingest.synth.facts import Planting
from ingest.synth.grammar import Rules
from ingest.synth.layout import Block, heading, line, paragraph, title
from ingest.synth.scene import Scene

LINES_PER_PAGE = 25

RULES: Rules = {
    "q_yesno": (
        "Did you review {paper} before {occasion}?",
        "Did you discuss {matter} with {person}?",
        "Were you present at {occasion}?",
        "Did anyone at {company} raise {matter} with you?",
        "Do you recognize {paper}, which has been marked as Exhibit {count}?",
        "Is it fair to say that {office} knew of {matter} before {occasion}?",
        "Had you worked with {person} before {occasion}?",
        "Did you keep copies of {paper_plural}?",
        "Were {paper_plural} stored at the {place} at that time?",
        "Did {person} report to you {span}?",
        "Was {matter} on the agenda of {occasion}?",
        "And did you ask {office} to look into {matter}?",
        "Would {person} have seen {paper} before you did?",
        "Did you ever go back to the {place} after {occasion}?",
    ),
    "a_yesno": (
        "Yes, I did.",
        "Yes. That was my understanding at the time.",
        "No, not that I recall.",
        "No. That would have gone through {office}.",
        "I believe so, but I would have to look at {paper}.",
        "Yes, {manner}, shortly after {occasion}.",
        "I don't remember doing that.",
        "Not directly. {person} handled {matter} {span}.",
        "Yes, along with {person} and someone from {company}.",
        "I may have. We had {count} open files at the time and I did not keep a diary.",
        "Only in passing, before {occasion}.",
        "No, I was at the {place} that week.",
        "That is correct, as far as {matter} is concerned.",
    ),
    "q_who": (
        "Who prepared {paper}?",
        "Who else took part in {occasion}?",
        "Who was responsible for {matter} at {company}?",
        "Who told you about {matter}?",
        "From whom did you receive {paper_plural}?",
        "Who at the {place} would deal with {matter}?",
        "To whom did you pass {paper}?",
    ),
    "a_who": (
        "It was {person}, as far as I know.",
        "{person} and {person}, I think, and {office}.",
        "That came from {office}, and I can't give you a name.",
        "Somebody at {company}; I dealt mostly with {person}.",
        "I would have asked {person}, who was {role} then.",
        "I honestly don't know. {person} might.",
        "{person} did, {manner}.",
        "Usually the {role}. Before {occasion} that was {person}.",
    ),
    "q_what": (
        "What did you do after {occasion}?",
        "What was your role at {company} {span}?",
        "What does {paper} show about {matter}?",
        "Can you describe {matter} as you understood it?",
        "How did {company} respond to {matter}?",
        "What happened to {paper_plural} after {occasion}?",
        "How would you describe your dealings with {person}?",
        "What, if anything, did {person} say about {matter}?",
        "Why was {matter} taken up again at {occasion}?",
        "What was kept at the {place} {span}?",
    ),
    "a_what": (
        "I wrote to {office} about {matter} and waited for a reply.",
        "I was {role}, so {matter} came across my desk most weeks.",
        "It lists {count} {goods} and refers to {matter}, nothing more.",
        "We moved {count} {goods} to the {place} and closed the file.",
        "There was some back and forth with {company} about {matter}, all of it {manner}.",
        "{person} thought that {office} should decide, and I agreed.",
        "They were boxed up and sent to the {place} {manner}.",
        "I can only say that {matter} took longer than anyone at {company} had planned.",
        "Mostly {goods}, and later on {paper_plural} of two other projects.",
        "Professional. We spoke about {matter} perhaps {count} times in all.",
        "My recollection is that {paper} was corrected after {occasion} and sent out again.",
        "Nothing that I would call unusual. {person} took notes and {office} filed them.",
        "I remember {person} asking about {matter}, and nobody at the table had the figures.",
    ),
    "q_procedure": (
        "Let me hand you what has been marked as Exhibit {count}. Take your time.",
        "Let me go back to {occasion} for a moment.",
        "I would like to turn to {matter} now.",
        "You understand that you are still under oath?",
        "Are you taking any medication that would affect your testimony today?",
    ),
    "a_procedure": (
        "All right.",
        "Yes.",
        "I understand.",
        "Could you repeat the question, please?",
        "I see it. It looks like {paper}.",
        "No, nothing of that kind.",
    ),
    "objection": (
        "Objection. Form.",
        "Objection, vague as to time. You may answer.",
        "Objection. Calls for speculation.",
        "Objection, asked and answered.",
        "I will instruct the witness not to speak about advice from {office}.",
        "Let the record show that the witness is reading {paper}.",
    ),
    "q_plant": (
        "What do your own records say on that point?",
        "Is there anything in the file that you can state with certainty?",
        "And what did you find when you went through the papers?",
        "Can you give us that for the record?",
        "What were you told in the end?",
        "Please read the relevant entry into the record.",
    ),
    "a_plant_lead": ("", "Yes. ", "I wrote it down. ", "It is in my notes. ", "Certainly. "),
    "dep_opening": (
        "Please state your name and your occupation for the record.",
        "Would you state your full name and where you work?",
    ),
    "certificate": (
        "I, the undersigned officer, certify that the witness was duly sworn and that the "
        "foregoing pages are a true record of the testimony given. I am neither related to "
        "nor employed by any of the parties, and I have no interest in the outcome of this "
        "action.",
        "The foregoing is a complete transcript of the questions put and the answers given. The "
        "witness was offered the transcript for review and correction within {count} days.",
    ),
}

EXCHANGES = ("yesno", "yesno", "yesno", "who", "who", "what", "what", "what", "procedure")


class Transcript:
    """Numbers the lines, and opens a page every 25 of them."""

    def __init__(self) -> None:
        self._page = 0
        self._line = LINES_PER_PAGE

    def lines(self, text: str, planting: Planting | None = None) -> Iterator[Block]:
        if self._line == LINES_PER_PAGE:
            self._page += 1
            self._line = 0
            yield paragraph(f"Page {self._page}")
        self._line += 1
        yield line(f"{self._line:02d} {text}", planting)


def deposition(scene: Scene, *, number: int) -> Iterator[Block]:
    """One witness: cover, examination, certificate."""
    dice, writer = scene.dice, scene.writer
    witness = writer.say("person")
    taken_by = writer.say("person")
    defended_by = writer.say("person")
    transcript = Transcript()
    yield title(f"Deposition {number}: {witness}")
    yield paragraph(
        f"Deposition of {witness}, taken on {writer.say('date')} at the offices of "
        f"{writer.say('company')}, in {scene.cast.plaintiff} v. {scene.cast.defendant}, "
        f"No. {scene.cast.case_number}. Examination by {taken_by}; "
        f"{defended_by} appearing for the witness."
    )
    yield from transcript.lines(f"Q. {writer.say('dep_opening')}")
    yield from transcript.lines(
        f"A. {witness}. I work for {writer.say('company')}; my position is {writer.say('role')}."
    )
    for _ in range(dice.between(18, 60)):
        yield from exchange(scene, transcript, defended_by)
    yield heading("Certificate of the reporter")
    yield paragraph(writer.say("certificate"))


def exchange(scene: Scene, transcript: Transcript, defended_by: str) -> Iterator[Block]:
    writer = scene.writer
    if planting := scene.planter.take():
        yield from transcript.lines(f"Q. {writer.say('q_plant')}")
        answer = f"A. {writer.say('a_plant_lead')}{planting.sentence}"
        yield from transcript.lines(answer, planting)
        return
    kind = scene.dice.pick(EXCHANGES)
    yield from transcript.lines(f"Q. {writer.say(f'q_{kind}')}")
    if scene.dice.chance(0.07):
        yield from transcript.lines(f"{defended_by.upper()}: {writer.say('objection')}")
    yield from transcript.lines(f"A. {writer.say_some(f'a_{kind}', 1)}")
