"""What a soak's ledger, log and samples say together. Pure: gets everything, asks nobody."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from tests.bench.soaking.house import Sample
from tests.bench.soaking.ledger import End, Ledger, Record

LOGGED = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings")
MB = 1e6


@dataclass(frozen=True, slots=True)
class Ended:
    """Requests whose log lines do not say what their clients saw, by what is wrong."""

    wrong: Mapping[str, Sequence[str]]

    @property
    def num_wrong(self) -> int:
        return sum(map(len, self.wrong.values()))


def request_lines(log: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    return [line for line in log if line.get("event") == "request"]


def told_errors(log: Sequence[Mapping[str, Any]]) -> list[str]:
    """Tracebacks, and lines that are none of the gateway's: nothing foreseen looks like this."""
    return [
        str(line.get("stray") or f"{line['event']}: {line['traceback']}")
        for line in log
        if "stray" in line or "traceback" in line
    ]


def ended_once(ledger: Ledger, lines: Sequence[Mapping[str, Any]]) -> Ended:
    """Every request has at most one line, and one that was answered exactly one which says so."""
    outcomes: dict[str, list[str]] = defaultdict(list)
    for line in lines:
        outcomes[line["request_id"]].append(line["outcome"])
    wrong: dict[str, list[str]] = defaultdict(list)
    for request_id, found in outcomes.items():
        if len(found) > 1:
            wrong["told twice"].append(request_id)
    for record in ledger.records.values():
        if record.path in LOGGED:
            expected = _expected(record)
            found = outcomes.get(record.request_id, [])
            if expected is not None and found != [expected]:
                wrong[f"{record.end} but {found or 'not told'}"].append(record.request_id)
    return Ended(wrong)


def _expected(record: Record) -> str | None:
    """None where a client cannot know: it left, or was refused before or after it was accepted."""
    match record.end:
        case End.ANSWERED:
            return "finished"
        case End.FAILED:
            return "failed"
        case _:
            return None


def charged(lines: Sequence[Mapping[str, Any]], ledger: Ledger, what: str) -> Mapping[str, int]:
    """`charged_tokens` or `charged_micros` of all requests, by key."""
    sums: Counter[str] = Counter()
    for line in lines:
        if what in line:
            record = ledger.records.get(line["request_id"])
            sums[line.get("key_id") or (record.key_id if record else "")] += line[what]
    return sums


def usage_errors(ledger: Ledger, lines: Sequence[Mapping[str, Any]]) -> Mapping[str, int]:
    """By request, tokens between the usage that its client was told and what was charged."""
    told = {line["request_id"]: line.get("charged_tokens", 0) for line in lines}
    return {
        record.request_id: told.get(record.request_id, 0) - record.tokens
        for record in ledger.with_end(End.ANSWERED)
        if record.tokens is not None
        and record.path in LOGGED
        and told.get(record.request_id, 0) != record.tokens
    }


@dataclass(frozen=True, slots=True)
class Growth:
    """Of resident memory, from after the warm-up to the end, as medians of a fifth each."""

    before_bytes: float
    after_bytes: float

    @property
    def mb(self) -> float:
        return (self.after_bytes - self.before_bytes) / MB

    @property
    def share(self) -> float:
        return self.after_bytes / self.before_bytes - 1


def growth(samples: Sequence[Sample], warm_at_s: float) -> Growth:
    """`warm_at_s` is on the samples' clock."""
    sizes = [one.rss_bytes for one in samples if one.at_s >= warm_at_s]
    fifth = max(1, len(sizes) // 5)
    return Growth(median(sizes[:fifth]), median(sizes[-fifth:]))


def table(samples: Sequence[Sample], num_rows: int = 12) -> str:
    """A few of the samples, evenly."""
    step = max(1, len(samples) // num_rows)
    start_s = samples[0].at_s
    rows = [f"{'s':>6} {'RSS MB':>8} {'fds':>5} {'threads':>8} {'tasks':>6}"]
    rows += [
        f"{one.at_s - start_s:6.0f} {one.rss_bytes / MB:8.1f} {one.fds:5d} {one.threads:8d} "
        f"{one.tasks:6d}"
        for one in samples[::step]
    ]
    return "\n".join(rows)
