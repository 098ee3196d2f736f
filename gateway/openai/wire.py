"""What every body of OpenAI's API shares: strict types, and nothing that is not known."""

from pydantic import BaseModel, ConfigDict


class Wire(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)
