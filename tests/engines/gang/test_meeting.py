"""Where ranks meet and who may dial in."""

import asyncio
from pathlib import Path

import pytest

from engines.api import EngineLost, EngineRefused
from engines.config import EngineConfig
from engines.gang.external_rank import Member, interface_of, let_in, model_digest
from engines.gang.launcher import ExternalLauncher, RankDoor
from engines.gang.link import Door
from engines.gang.meeting import LocalMeetings, is_loopback, offer
from engines.gang.supervisor import SupervisorParts
from tests.engines.gang.scripted_gang import TOKENIZER, scripted_config, scripted_limits


def test_ranks_of_one_host_meet_at_a_file_that_nobody_has_used() -> None:
    meetings = LocalMeetings()
    places = [meetings.next_place() for _ in range(3)]
    assert len(set(places)) == 3
    folder = Path(places[0].removeprefix("file://")).parent
    assert folder.stat().st_mode & 0o077 == 0
    meetings.close()
    assert not folder.exists()


def test_a_rank_that_others_must_find_offers_a_port_under_its_name() -> None:
    assert offer("") == ""
    assert offer("node-0").startswith("tcp://node-0:")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.2", "::1", "localhost"])
def test_only_this_machine_reaches_a_loopback_listener(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "10.1.2.3", "::", "node-0", ""])
def test_others_reach_every_other_listener(host: str) -> None:
    assert not is_loopback(host)


def parts(config: EngineConfig, *, host: str, token: str) -> SupervisorParts:
    return SupervisorParts(
        config=config,
        limits=scripted_limits(config),
        kv_bytes_per_token=1,
        tokenizer=TOKENIZER,
        launcher=ExternalLauncher(),
        door_host=host,
        token=token,
    )


def test_ranks_are_not_listened_for_beyond_this_machine_without_a_token(tmp_path: Path) -> None:
    config = scripted_config(tmp_path)
    with pytest.raises(ValueError, match="a token is needed"):
        parts(config, host="0.0.0.0", token="")
    parts(config, host="0.0.0.0", token="secret")
    parts(config, host="127.0.0.1", token="")
    with pytest.raises(ValueError, match="token"):
        RankDoor(host="127.0.0.1", port=1, token="")


def member(folder: Path, port: int, token: str) -> Member:
    return Member(
        supervisor_host="127.0.0.1",
        supervisor_port=port,
        token=token,
        rank=0,
        size=1,
        host="127.0.0.1",
        model_dir=folder,
        threads_per_rank=1,
        wait_s=0.0,
    )


async def test_a_rank_with_a_wrong_token_is_told_what_may_be_wrong(tmp_path: Path) -> None:
    async with Door(token="right") as door:
        door.expect(1, 1)
        stranger = member(tmp_path, door.address[1], "wrong")
        with pytest.raises(EngineLost, match="its token may be another"):
            await asyncio.to_thread(let_in, stranger)


def test_a_rank_whose_supervisor_is_not_there_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(EngineLost, match=r"127\.0\.0\.1:1 did not let rank 0 in within 0 s"):
        let_in(member(tmp_path, 1, "t"))


def test_the_interface_is_the_one_that_has_the_address() -> None:
    assert interface_of("127.0.0.1").startswith("lo")
    with pytest.raises(EngineRefused, match=r"203\.0\.113\.9"):
        interface_of("203.0.113.9")


def test_models_that_differ_in_a_weight_or_a_size_have_different_digests(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("{}")
    digests = set()
    for body in (b"a" * 200_000, b"b" + b"a" * 199_999, b"a" * 199_999, b""):
        (tmp_path / "model.safetensors").write_bytes(body)
        digests.add(model_digest(tmp_path))
        assert model_digest(tmp_path) in digests
    assert len(digests) == 4
