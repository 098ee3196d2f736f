"""Which folders one rank keeps its segments in; knows configuration, no bytes."""

import logging

from engines.config import SegmentsConfig
from engines.local.segments.store import SegmentStore, Tier

logger = logging.getLogger(__name__)


def open_store(config: SegmentsConfig, rank: int, num_ranks: int) -> SegmentStore | None:
    """This rank's store with its share of the budgets; None where no folder is there: then nothing
    is kept, and every question reads its prompt anew.

    A folder that the supervisor made on its own host is not there on others. Whoever wants chunks
    kept there names a folder that is.
    """
    tiers = [
        Tier(folder / f"rank-{rank}", budget // num_ranks)
        for folder, budget in (
            (config.ram_folder, config.ram_bytes),
            (config.folder, config.disk_bytes),
        )
        if folder is not None and folder.is_dir()
    ]
    try:
        return SegmentStore.open(tiers) if tiers else None
    except OSError as error:
        logger.warning("no segments are kept", extra={"cause": str(error)})
        return None
