"""Settings of the whole suite: how hypothesis runs where other work shares the machine."""

from hypothesis import settings

settings.register_profile("ringway", deadline=None)
settings.load_profile("ringway")
