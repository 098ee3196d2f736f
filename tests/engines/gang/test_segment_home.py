"""The folders of finished chunks come and go with their supervisor, whatever its end."""

import os
import subprocess
import sys
from pathlib import Path

from engines.config import SegmentsConfig
from engines.gang.segment_home import PREFIX, segment_home

HOLD = """
import sys
from pathlib import Path
from engines.config import SegmentsConfig
from engines.gang.segment_home import segment_home
with segment_home(SegmentsConfig(folder=Path(sys.argv[1])), memory=Path(sys.argv[1])):
    print("made", flush=True)
    sys.stdin.read()
"""


def homes(parent: Path) -> set[Path]:
    return set(parent.glob(f"{PREFIX}*"))


def test_folders_are_there_inside_and_gone_afterwards(tmp_path: Path) -> None:
    wished = SegmentsConfig(folder=tmp_path / "mine", ram_bytes=1 << 60)
    wished.folder.mkdir()  # type: ignore[union-attr]
    with segment_home(wished, memory=tmp_path) as given:
        assert given.ram_folder in homes(tmp_path)
        assert given.ram_bytes < 1 << 60
    assert homes(tmp_path) == set()
    assert (tmp_path / "mine").is_dir()


def test_without_a_file_system_in_memory_there_is_disk(tmp_path: Path) -> None:
    with segment_home(SegmentsConfig(folder=tmp_path), memory=tmp_path / "none") as given:
        assert given.ram_folder is None


def test_what_a_killed_supervisor_left_is_removed_and_what_a_living_one_holds_is_not(
    tmp_path: Path,
) -> None:
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, cwd=os.getcwd()) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"made\n"
        held = homes(tmp_path)
        with segment_home(SegmentsConfig(folder=tmp_path), memory=tmp_path):
            assert held < homes(tmp_path)
        holder.kill()
        holder.wait()
        assert homes(tmp_path) == held
        with segment_home(SegmentsConfig(folder=tmp_path), memory=tmp_path):
            assert not held & homes(tmp_path)
