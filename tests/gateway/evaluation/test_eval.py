"""`ringway eval` against a scripted gateway: what is asked, what is written, and going on."""

import fcntl
import json
import re
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from gateway.cli.main import main
from gateway.evaluation.journal import SAMPLES_NAME, Outcome, Record
from gateway.evaluation.needles import Task
from gateway.evaluation.plan import Arm
from gateway.evaluation.results import REPORT_NAME, Cell, Result, load_result
from gateway.policy import parse_policy
from tests.gateway.evaluation.scripted import RETRIEVED_TOKENS, Script, serving
from tests.gateway.fakes import Start

TIMES = ("first_token_s", "total_s")


def words(url: str, out: Path, *more: str) -> list[str]:
    return [
        *("eval", "--base-url", url, "--model", "tiny", "--out", str(out)),
        *("--lengths", "512,2K", "--depths", "2", "--samples", "1", *more),
    ]


def records_of(out: Path) -> list[Record]:
    lines = (out / SAMPLES_NAME).read_bytes().splitlines()
    return [msgspec.json.decode(line, type=Record) for line in lines]


def cell(result: Result, arm: Arm, length: int, task: Task | None = None) -> Cell:
    found = result.cell(arm, task, length)
    assert found is not None
    return found


def timeless(out: Path) -> object:
    """The result without what a clock said."""
    result = json.loads((out / "result.json").read_text())
    for one in (*result["cells"], *result["depths"]):
        for name in TIMES:
            one["cost"].pop(name)
    return result


def test_accuracy_is_told_by_route_length_and_task(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def knows(fidelity: str, length: int, question: str) -> bool:
        is_two_hop = "parcel" in question
        return fidelity == "full" or (length <= 512 and not is_two_hop)

    script = Script(knows=knows, busy_once=True)
    with serving(script) as url:
        assert main(words(url, tmp_path, "--concurrency", "3")) == 0
    result = load_result(tmp_path)
    for length in (512, 2048):
        assert cell(result, Arm.FULL, length).accuracy == 1.0
    assert cell(result, Arm.HIERARCHICAL, 512).right == 14
    assert cell(result, Arm.HIERARCHICAL, 512, Task.TWO_HOP).accuracy == 0.0
    assert cell(result, Arm.HIERARCHICAL, 2048).accuracy == 0.0
    searched = cell(result, Arm.RETRIEVAL, 2048)
    assert searched.cost.tokens_read == RETRIEVED_TOKENS
    assert searched.cost.prefill_ms == RETRIEVED_TOKENS / 10
    assert len(result.evidence) == 32
    assert {(a["fidelity"], a["allow_fallback"]) for a in script.chats} == {
        (route, False) for route in ("full", "hierarchical", "retrieval")
    }
    assert "16 of 16" in capsys.readouterr().out
    assert (tmp_path / REPORT_NAME).stat().st_size > 5_000


def test_a_refusal_is_no_wrong_answer(tmp_path: Path) -> None:
    script = Script(limits={"full": 1000})
    with serving(script) as url:
        assert main(words(url, tmp_path, "--tasks", "single")) == 0
    refused = cell(load_result(tmp_path), Arm.FULL, 2048)
    assert (refused.refused, refused.answered, refused.accuracy) == (2, 0, None)
    (one, _) = [r for r in records_of(tmp_path) if r.outcome is Outcome.REFUSED]
    assert (one.code, one.limit) == ("context_length_exceeded", 1000)


def test_truncate_reads_what_retrieval_read(tmp_path: Path) -> None:
    script = Script()
    with serving(script) as url:
        more = ("--tasks", "single", "--routes", "retrieval", "--baselines", "truncate")
        assert main(words(url, tmp_path, *more)) == 0
    cut = [one for one in records_of(tmp_path) if one.arm is Arm.TRUNCATE]
    assert len(cut) == 4
    assert all(0.9 * RETRIEVED_TOKENS <= (r.tokens_read or 0) <= RETRIEVED_TOKENS for r in cut)
    assert all(one.is_right for one in cut), "both depths are ends of the text"


def test_a_run_that_was_killed_goes_on_to_the_same_result(tmp_path: Path) -> None:
    def knows(fidelity: str, length: int, question: str) -> bool:
        return (len(question) + length + len(fidelity)) % 3 != 0

    tasks = ("--tasks", "single,variables,key_value")
    script = Script(knows=knows)
    with serving(script) as url:
        assert main(words(url, tmp_path / "whole", *tasks)) == 0
        num_asked = len(script.chats)
        command = [sys.executable, "-m", "gateway", *words(url, tmp_path / "cut", *tasks)]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as child:
            script.chats.clear()
            script.stops_after, script.on_stop = 13, child.kill
            assert child.wait(15) == -signal.SIGKILL
        script.stops_after = None
        kept = records_of(tmp_path / "cut")
        assert len(kept) == 13
        with (tmp_path / "cut" / SAMPLES_NAME).open("ab") as file:
            file.write(b'{"task":"single","len')
        script.chats.clear()
        assert main(words(url, tmp_path / "cut", *tasks, "--resume")) == 0
    assert len(script.chats) == num_asked - len(kept), "nothing finished is asked again"
    assert timeless(tmp_path / "cut") == timeless(tmp_path / "whole")
    assert max(Counter((r.key, r.arm) for r in records_of(tmp_path / "cut")).values()) == 1


def test_what_was_answered_before_a_stop_is_in_the_result(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = Script(stops_after=13)
    with serving(script) as url:
        command = [sys.executable, "-m", "gateway", *words(url, tmp_path)]
        with subprocess.Popen(command) as child:
            script.on_stop = lambda: child.send_signal(signal.SIGINT)
            assert child.wait(15) == 130
    told = capfd.readouterr().err
    assert re.search(r"^stopped: 1\d of 96 are kept; the same with --resume goes on$", told, re.M)
    result = load_result(tmp_path)
    assert cell(result, Arm.FULL, 512).answered in (4, 5)
    assert cell(result, Arm.FULL, 2048).answered == 0
    assert "Stopped at 1" in result.notes[0]
    assert "Stopped at 1" in (tmp_path / REPORT_NAME).read_text()


def test_a_server_that_dies_leaves_the_result_of_what_it_answered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.evaluation.client.MOST_WAIT_S", 0.0)
    script = Script(stops_after=6)
    with serving(script) as url:
        script.on_stop = script.die
        assert main(words(url, tmp_path)) == 2
    told = capsys.readouterr().err
    assert "no answer from" in told
    assert "6 of 96 are kept; the same with --resume goes on" in told
    assert sum(one.answered for one in load_result(tmp_path).cells if one.task is None) == 6


def test_the_first_model_of_the_server_is_asked_unless_one_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = ("--tasks", "single", "--routes", "full")
    script = Script(models=("first", "second"))
    with serving(script) as url:
        named = words(url, tmp_path / "out", *one)
        at = named.index("--model")
        del named[at : at + 2]
        assert main(named) == 0
        script.models = ()
        assert main([*named, "--resume"]) == 2
    assert {asked["model"] for asked in script.chats} == {"first"}
    assert "name one with --model" in capsys.readouterr().err


def test_two_evaluations_do_not_write_to_one_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(Script()) as url:
        assert main(words(url, tmp_path, "--tasks", "single", "--routes", "full")) == 0
        with (tmp_path / SAMPLES_NAME).open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            again = words(url, tmp_path, "--tasks", "single", "--routes", "full", "--resume")
            assert main(again) == 2
    assert "another evaluation is writing" in capsys.readouterr().err


def test_a_folder_is_not_written_over_and_not_mixed_with_another_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = ("--tasks", "single", "--routes", "full")
    with serving(Script()) as url:
        assert main(words(url, tmp_path, *one)) == 0
        assert main(words(url, tmp_path, *one)) == 2
        assert main(words(url, tmp_path, *one, "--seed", "7", "--resume")) == 2
    told = capsys.readouterr().err
    assert "--resume goes on with it" in told
    assert "seed was 0, and is 7" in told


def test_a_server_that_is_not_ringway_is_asked_plainly_and_counts_by_answers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    script = Script(has_tokenize=False, is_ringway=False)
    with serving(script) as url:
        one = ("--tasks", "single", "--samples", "1")
        assert main(words(url, tmp_path / "plain", *one, "--routes", "plain")) == 0
        assert main(words(url, tmp_path / "full", *one, "--routes", "full")) == 2
    assert "fidelity" not in script.chats[0]
    assert "--routes plain" in capsys.readouterr().err
    answered = cell(load_result(tmp_path / "plain"), Arm.PLAIN, 2048)
    assert answered.accuracy == 1.0
    assert 1900 <= (answered.cost.prompt_tokens or 0) <= 2048


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (("--tasks", "nothing"), "no such name: nothing"),
        (("--lengths", "long"), "is no context"),
        (("--routes", "full", "--baselines", "truncate"), "add the route retrieval"),
        (("--haystack", "/nowhere/at/all"), "is no folder"),
        (("--depths", "0"), "must be at least 1"),
        ((), "no answer from"),
    ],
)
def test_what_cannot_be_run_is_refused_in_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], told: str
) -> None:
    assert main(words("http://127.0.0.1:9/v1", tmp_path / "out", *more)) == 2
    assert told in capsys.readouterr().err


def test_ringways_own_gateway_counts_answers_and_refuses_as_expected(
    tmp_path: Path, start: Start, capsys: pytest.CaptureFixture[str]
) -> None:
    gateway = start(
        policy=parse_policy("{limits: {full: 1000}, retrieval: {inline_min_chars: 300}}")
    )
    out, more = tmp_path / "out", ("--tasks", "single,key_value", "--baselines", "truncate")
    url = f"{gateway.url}/v1"
    assert main(words(url, tmp_path / "unknown", *more)) == 2
    assert "The model 'tiny' does not exist" in capsys.readouterr().err
    model = gateway.client().models.list().data[0].id
    assert main([*words(url, out, *more), "--model", model]) == 0
    result = load_result(out)
    assert cell(result, Arm.FULL, 2048).refused == 4
    for arm, length in ((Arm.FULL, 512), (Arm.HIERARCHICAL, 2048), (Arm.RETRIEVAL, 2048)):
        answered = cell(result, arm, length)
        assert (answered.answered, answered.right) == (4, 0), "the engine says hello"
        assert length * 0.97 <= (answered.cost.prompt_tokens or 0) <= length
        assert answered.cost.first_token_s is not None
    searched = cell(result, Arm.RETRIEVAL, 2048).cost.tokens_read
    cut = cell(result, Arm.TRUNCATE, 2048).cost.tokens_read
    assert searched is not None
    assert cut is not None
    assert cut <= searched < 2048


def test_the_text_can_be_ones_own(tmp_path: Path) -> None:
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "a.md").write_text("The river rose in spring. Nobody had seen it so high. " * 40)
    (folder / "b.bin").write_bytes(b"\xff\xfe")
    script = Script()
    with serving(script) as url:
        more = ("--tasks", "single", "--routes", "full", "--haystack", str(folder))
        assert main(words(url, tmp_path / "out", *more)) == 0
    assert "The river rose in spring." in script.chats[0]["messages"][0]["content"]
    assert "repeat it" in load_result(tmp_path / "out").notes[0]
