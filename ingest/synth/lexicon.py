"""Words that all parts of a case file share: rules for the grammar, and no facts."""

from ingest.synth.grammar import Rules


def words(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split("|"))


LEXICON: Rules = {
    "paper": words(
        "the delivery note|the draft agreement|the insurance schedule|the weekly report|the letter"
        "|the bill of lading|the site plan|the call log|the inspection checklist|the purchase order"
        "|the handover sheet|the lease file|the claim form|the board minutes|the inventory list"
        "|the second amendment|the wire confirmation|the visitor log|the customs declaration"
    ),
    "paper_plural": words(
        "the delivery notes|the drafts|the photographs|the invoices|the e-mails|the time sheets"
        "|the maintenance records|the gate passes|the shipping manifests|the meeting notes"
    ),
    "occasion": words(
        "the meeting of {date}|the board meeting|the site visit|the call with {company}|the audit"
        "|the handover|the second round of talks|the stock count|the storm|the fire drill"
        "|the meeting at the {place}|the move to the {place}|the quarterly review|the mediation"
    ),
    "matter": words(
        "the delivery dates|the storage charges|the condition of the goods|the missing pallets"
        "|the change order|the rent review|the claim|the lease|the insurance cover|the warranty"
        "|the access arrangements|the payment terms|the staffing at the {place}|the repairs"
        "|the temperature readings|the late invoices|the renewal|the notice period|the resignation"
        "|the inspection|the bonus scheme|the keys|the crate|the deposit"
    ),
    "goods": words(
        "pallets|drums|coils of wire|crates of glassware|filing cabinets|pump housings|cartons"
        "|refrigerated containers|machine parts|rolls of fabric|survey instruments|cable reels"
    ),
    "office": words(
        "the accounts department|the front office|the claims desk|the legal department|the "
        "dispatcher|the site office|the procurement team|the regional office|the insurers|"
        "outside counsel"
    ),
    "manner": words(
        "by e-mail|by telephone|in person|by courier|in writing|at short notice|in general terms"
        "|without comment|after some delay|in the usual way|on two occasions"
    ),
    "span": words(
        "for about {count} weeks|for a few months|for most of that year|on and off since {date}"
        "|for roughly {count} days|until the end of the season|from {date} onwards"
    ),
    "role": words(
        "operations manager|shift supervisor|claims adjuster|site engineer|bookkeeper|dispatcher"
        "|contracts administrator|warehouse clerk|fleet coordinator|purchasing agent|surveyor"
    ),
}
