"""People, companies, places and things of one case: knows who exists, not what they did."""

from collections.abc import Callable

from ingest.synth.dice import Dice
from ingest.synth.lexicon import words

FIRST_NAMES = words(
    "Rosalind|Tobias|Delphine|Marcus|Ingrid|Percival|Amara|Leopold|Nadia|Winston|Helga|Dmitri|"
    "Priscilla|Osman|Beatrix|Calvin|Yolanda|Magnus|Fiona|Rashid|Eleanor|Gustav|Imelda|Thaddeus|"
    "Sabine|Clifford|Noor|Benedikt|Harriet|Lorenzo|Adele|Conrad|Meredith|Ezekiel|Paloma|"
    "Stellan|Judith|Ambrose|Katya|Roderick|Vivian|Emil|Constance|Tariq|Louisa|Anselm|Greta|"
    "Phineas|Zelda|Hector|Odette|Silas|Miriam|Lucian|Edith|Ravi|Theodora|Barnaby|Celeste|Ivor|"
    "José|Zoë"
)
SURNAMES = words(
    "Achterberg|Renner|Okoro|Oyelaran|Fischbach|Hallworth|Trevanion|Quillfeather|Sandoval|"
    "Brandt|Moravec|Pettigrew|Lindqvist|Abernathy|Castellane|Dunmore|Eberhart|Farquhar|"
    "Gallowglass|Hobart|Iversen|Jankowski|Kettering|Lattimer|Montague|Nakamura|Ostrander|"
    "Pemberton|Quarles|Radcliffe|Silverthorne|Tannenbaum|Underhill|Vandermeer|Westergaard|"
    "Yarborough|Zielinski|Ashdown|Blackwood|Cromarty|Delacroix|Easterling|Fairbairn|Greenhalgh|"
    "Holloway|Inglethorpe|Jessup|Kirkbride|Loxley|Merriweather|Norcross|Okafor|Prendergast|"
    "Quimby|Rosenthal|Stavros|Thistlewood|Ullman|Voss|Wainwright|Xanthos|Yardley|Zimmerman|"
    "Arkwright|Bexley|Culpepper|Dashwood|Ellsworth|Fenwick|Garrick|Haverford|Isherwood|"
    "Jellicoe|Kowalczyk|Lockhart|Mainwaring|Nethercott|Orpington|Penhaligon|Rutherford|"
    "Sackville|Tremaine|Uxbridge|Vickers|Whitcombe|Anselmo|Bordelon|Carmichael|Dvorak|Eriksson|"
    "Fontaine|Grierson|Hathersage|Ivanova|Jorgensen|Kilbride|Langstrom|Mbeki|Novak|Olufsen|"
    "Pereira|Rasmussen|Szabo|Tolliver|Urquhart|Villanueva|Warrick|Yamada|Zapata|Attwater|"
    "Bancroft|Chidester|Drummond|Endicott|Fitzwarren|Goldhaber|Hargreave|Ibarra|Janssen|"
    "Klepper|Lundgren|Marchetti|Nordstrom|Ottoway|Pasternak|Rickenbach|Sorensen|Tindall|Upshaw|"
    "Verhoeven|Wexford|Yeardley|Ziegler|Auerbach|Birkenhead|Coltrane|Dorrance|Espinoza|Falkirk|"
    "Gresham|Hawksmoor|Ilves|Jarnigan|Kaplinsky|Leclerc|Mossgrove|Niedermayer|Oakhurst|"
    "Peverell|Rowntree|Stoddard|Thornbury|Valcourt|Wolcott|Ibáñez|Müller"
)
NUM_ANSWER_SURNAMES = 60
"""Surnames kept for people who are an answer; filler never speaks of them."""

COMPANY_WORDS = words(
    "Northgate|Calloway|Meridian|Ironbridge|Halcyon|Tidewater|Blackfriars|Summit|Corvane|"
    "Eastmoor|Lanternhouse|Redfern|Stonewell|Vantage|Whitlock|Arcadia|Belmont|Cobalt|Dunharrow|"
    "Everline|Foxglove|Granite|Harborview|Juniper|Kestrel|Longmeadow|Marlowe|Nimbus|Orchard|"
    "Paragon|Quayside|Ravenscar|Saltmarsh|Thornfield|Umbra|Viridian|Wyndham|Zephyr|Ashgrove|"
    "Brightwater"
)
TRADES = words(
    "Logistics|Freight|Marine Services|Cold Chain|Shipping|Storage|Instruments|Chemicals|"
    "Textiles|Insurance Brokers|Forwarding|Packaging|Steelworks|Timber"
)
SUFFIXES = ("Ltd", "LLC", "plc", "GmbH", "AG", "BV")

STREETS = words(
    "Harwick Lane|Tollgate Road|Pier Nine|Cutler Street|Old Mill Road|Saddler Row|"
    "Cannery Wharf|Bishop Street|Linden Avenue|Foundry Hill|Gasworks Lane|Mariner Quay|"
    "Quarry Road|Ropewalk|Station Parade|Tannery Close|Vinegar Yard|Weavers Court|Canal Street|"
    "Elm Basin|Ferry Road|Granary Row|Hopton Square|Ivy Bridge|Kiln Lane|Lock Street|"
    "Maltings Way|North Dock"
)
BUILDINGS = words(
    "warehouse|depot|terminal|boatyard|cold store|workshop|annex|packing hall|garage|"
    "laboratory|records office|loading bay"
)
THINGS = words(
    "sealed crate|blue ledger|steel trunk|map case|archive box|leather folder|sample case|"
    "instrument chest|shipping cask|film canister|parts bin|survey album"
)
TOWNS = words(
    "Rotterdam|Gdansk|Trieste|Bergen|Valletta|Aarhus|Cardiff|Lisbon|Tallinn|Antwerp|Bilbao|"
    "Cork|Dundee|Emden|Falmouth|Genoa|Hamburg|Inverness|Kiel|Liverpool|Malmö|Nantes|Oporto|"
    "Piraeus|Riga|Split|Turku|Varna|Zadar|Le Havre"
)
COURTS = (
    "CIRCUIT COURT OF ALDER COUNTY",
    "SUPERIOR COURT OF MARROW COUNTY",
    "DISTRICT COURT FOR THE HOLLIN DISTRICT",
    "COURT OF COMMON PLEAS OF TARN COUNTY",
)

NUM_FILLER_PEOPLE = 36
NUM_FILLER_COMPANIES = 18
NUM_FILLER_PLACES = 24


class Cast:
    """Everyone and everything that a case may name.

    `people`, `companies` and `places` are what filler speaks of. A name from `new_*` is unique.
    What a planted fact is about is introduced to the filler too, so a name alone finds nothing.
    """

    def __init__(self, dice: Dice) -> None:
        self._dice = dice
        surnames = dice.shuffled(SURNAMES)
        self._answer_surnames = surnames[:NUM_ANSWER_SURNAMES]
        self._surnames = surnames[NUM_ANSWER_SURNAMES:]
        self._taken: set[str] = set()
        self.people = [self.new_person() for _ in range(NUM_FILLER_PEOPLE)]
        self.companies = [self.new_company() for _ in range(NUM_FILLER_COMPANIES)]
        self.places = [self.new_place() for _ in range(NUM_FILLER_PLACES)]
        self.plaintiff, self.defendant = self.companies[:2]
        self.court = dice.pick(COURTS)
        self.case_number = f"{dice.between(14, 24)}-CV-{dice.between(2000, 9899):05d}"

    def new_person(self) -> str:
        return self._new(lambda: f"{self._pick(FIRST_NAMES)} {self._pick(self._surnames)}")

    def new_answer_person(self) -> str:
        """Someone whose surname nobody else in the case has. Raises IndexError after 60."""
        return f"{self._pick(FIRST_NAMES)} {self._answer_surnames.pop()}"

    def new_company(self) -> str:
        return self._new(
            lambda: f"{self._pick(COMPANY_WORDS)} {self._pick(TRADES)} {self._pick(SUFFIXES)}"
        )

    def new_place(self) -> str:
        return self._new(lambda: f"{self._pick(STREETS)} {self._pick(BUILDINGS)}")

    def new_thing(self) -> str:
        return self._new(lambda: f"{self._pick(THINGS)} from {self._pick(TOWNS)}")

    def namesake(self, person: str) -> str:
        """Another person with the same surname, or the same first name when those run out."""
        first, surname = person.split()
        for _ in range(len(FIRST_NAMES)):
            other = f"{self._pick(FIRST_NAMES)} {surname}"
            if other not in self._taken:
                self._taken.add(other)
                return other
        return self._new(lambda: f"{first} {self._pick(self._surnames)}")

    def _pick(self, options: tuple[str, ...] | list[str]) -> str:
        return self._dice.pick(options)

    def _new(self, draw: Callable[[], str]) -> str:
        while (name := draw()) in self._taken:
            pass
        self._taken.add(name)
        return name
