"""The configuration of the built-in causal-LM task: its keys, their types and limits."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

MAX_SIZE = 1_000_000
# Far above what any accelerator holds, far below what would exhaust the host.
MAX_BATCH_TOKENS = 2**24


class CausalLMConfig(BaseModel):
    """Every key of the built-in task. A variant's configuration is this, completed."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, protected_namespaces=())

    model: str = Field(
        default="tiny",
        min_length=1,
        max_length=500,
        description="a profile (tiny, qwen25_small, deepseek_r1_small), hub id or local folder",
    )
    model_source: Literal["auto", "huggingface", "modelscope", "local", "config"] = "auto"
    batch_size: int = Field(default=2, ge=1, le=MAX_SIZE)
    seq_len: int = Field(default=128, ge=2, le=MAX_SIZE)
    precision: Literal["fp32", "bf16", "fp16", "amp"] = Field(
        default="fp32", description="autocast over fp32 weights; amp: bf16 where supported, or fp16"
    )
    matmul_precision: Literal["highest", "high", "medium"] = "highest"
    checkpoint: bool = Field(default=False, description="activation checkpointing of every layer")
    offload: bool = Field(default=False, description="saved tensors wait on the host")
    compile: str = Field(
        default="off", max_length=100, description="off, default, or a mode of torch.compile"
    )
    optimizer: Literal["adamw", "adam", "sgd", "adafactor"] = "adamw"
    fused: bool = Field(default=False, description="the optimizer's fused kernel")
    momentum: float = Field(default=0.0, ge=0.0, lt=1.0, description="of sgd")
    learning_rate: float = Field(default=1e-5, gt=0.0, le=10.0, allow_inf_nan=False)
    attention: Literal["sdpa", "eager"] = "sdpa"
    grad_accumulation: int = Field(default=1, ge=1, le=MAX_SIZE)
    data: str = Field(
        default="random",
        min_length=1,
        max_length=500,
        description="random, stdlib, or the path of a .txt or .jsonl file",
    )
    num_workers: int = Field(default=0, ge=0, le=64, description="of the data loader")

    @model_validator(mode="after")
    def _settings_go_together(self) -> Self:
        # A setting that would be ignored silently must not look as if it had been measured.
        if self.momentum and self.optimizer != "sgd":
            raise ValueError(
                f"momentum {self.momentum} has no meaning for {self.optimizer}; set optimizer=sgd"
            )
        if self.fused and self.optimizer == "adafactor":
            raise ValueError("adafactor has no fused kernel; set fused=false or another optimizer")
        if self.num_workers and self.data == "random":
            raise ValueError(
                f"num_workers {self.num_workers} has nothing to load with data=random; "
                "set data=stdlib or a file"
            )
        if self.batch_size * self.seq_len > MAX_BATCH_TOKENS:
            raise ValueError(
                f"batch_size {self.batch_size} x seq_len {self.seq_len} is more than "
                f"{MAX_BATCH_TOKENS} tokens; lower one of them"
            )
        return self
