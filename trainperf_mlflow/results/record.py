"""What all records have in common."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, JsonValue

Role = Literal["baseline", "candidate"]
Setting = JsonValue  # the value of one configuration key


class Record(BaseModel):
    """Base of all records: immutable, no unknown fields, NaN survives JSON (as a string)."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="strings")

    def to_json(self, *, indent: int | None = 2) -> str:
        return self.model_dump_json(indent=indent)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        return cls.model_validate_json(text)


class Status(StrEnum):
    """How a repeat, and a variant as the worst of its repeats, ended."""

    OK = "ok"
    OOM = "oom"  # out of memory: the exception, or the kernel killed the worker
    FAILED = "failed"  # any other error, with its text
    UNSUPPORTED = "unsupported"  # this device cannot do it, with the reason
    DIVERGED = "diverged"  # NaN or infinite loss
    TIMEOUT = "timeout"
