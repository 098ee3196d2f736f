"""Buckets of prompt lengths in tokens, as labels of metrics and reports."""

LENGTH_BUCKETS = (1024, 4096, 16_384, 65_536, 262_144, 1_048_576)


def length_bucket(num_tokens: int) -> str:
    """The least bucket that holds the length, as a label."""
    for bucket in LENGTH_BUCKETS:
        if num_tokens <= bucket:
            return f"<={bucket}"
    return f">{LENGTH_BUCKETS[-1]}"
