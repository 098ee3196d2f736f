"""What a rank writes to its log."""

import logging

from engines.gang.rank import RankFormatter


def test_a_record_shows_its_rank_and_its_fields() -> None:
    record = logging.makeLogRecord(
        {"name": "engines.local", "levelname": "INFO", "msg": "asked", "chosen": 4, "recall": 0.5}
    )
    line = RankFormatter(3).format(record)
    assert line.endswith("rank 3 INFO engines.local: asked chosen=4 recall=0.5")
