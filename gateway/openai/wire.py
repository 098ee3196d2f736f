"""What every body of OpenAI's API shares: strict types, nothing that is not known, metadata."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field


class Wire(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


Metadata = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]],
    Field(max_length=16),
]
