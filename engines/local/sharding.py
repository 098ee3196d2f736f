"""One process's share of a model: heads and weights cut by transformers' tensor-parallel plan.

Knows transformers' plans and their traps; does not know the ring.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel
from transformers.distributed.configuration_utils import DistributedConfig
from transformers.distributed.tensor_parallel import apply_tensor_parallelism

from engines.api import EngineRefused
from engines.local.mesh import HeadGroup

# phi3's plan keeps every head on every rank and gpt_oss has none for attention.
SHARED = frozenset(("llama", "qwen2", "qwen3", "smollm3", "mistral", "gemma3_text"))


def refuse_uneven_heads(config: Mapping[str, object], size: int) -> None:
    """Raise EngineRefused unless `size` ranks can have the heads of each layer among them."""
    model_type = config.get("model_type")
    if model_type not in SHARED:
        raise EngineRefused(
            f"{model_type} is not proven under tensor parallelism; these are: "
            f"{', '.join(sorted(SHARED))}"
        )
    num_heads = _count(config, "num_attention_heads")
    num_key_heads = (
        _count(config, "num_key_value_heads")
        if (config.get("num_key_value_heads") is not None)
        else num_heads
    )
    if num_heads % size or num_key_heads % size:
        fit = [n for n in range(2, size) if num_heads % n == 0 and num_key_heads % n == 0]
        would_fit = f"{', '.join(map(str, fit))} would do" if fit else "only 1 would do"
        raise EngineRefused(
            f"{num_heads} query heads and {num_key_heads} key-value heads cannot be shared by "
            f"{size} ranks (tensor_parallel): {would_fit}"
        )


def _count(config: Mapping[str, object], name: str) -> int:
    value = config.get(name)
    if not isinstance(value, int):
        raise EngineRefused(f"config.json does not say {name}, which tensor parallelism needs")
    return value


def share_out(module: PreTrainedModel, heads: HeadGroup) -> None:
    """Cut a loaded model to this process's share, in place, with the exchanges that this needs.

    `from_pretrained` itself wants a mesh that spans all processes, so the plan is applied to
    loaded weights: without a source rank torch copies each rank's cut and sends nothing.
    """
    ties = _untie(module)
    plan, _, _ = module._resolve_parallel_plans(DistributedConfig(tp_size=heads.size))
    apply_tensor_parallelism(module, heads.mesh, plan)
    for tie in ties:
        tie.restore()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tie:
    """A weight that two modules share, such as embeddings and output layer."""

    first: nn.Module
    first_name: str
    second: nn.Module
    second_name: str

    def restore(self) -> None:
        """Share it again if both were cut alike."""
        one, other = (
            self.first.get_parameter(self.first_name),
            self.second.get_parameter(self.second_name),
        )
        if _placements(one) == _placements(other):
            self.second.register_parameter(self.second_name, one)


def _placements(parameter: nn.Parameter) -> object:
    return parameter.placements if isinstance(parameter, DTensor) else None


def _untie(module: nn.Module) -> list[Tie]:
    """transformers cuts parameters by name, and a tied one has only one of its names."""
    seen: dict[int, tuple[nn.Module, str]] = {}
    ties: list[Tie] = []
    for part in module.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            first, first_name = seen.setdefault(id(parameter), (part, name))
            if first is not part:
                part.register_parameter(name, nn.Parameter(parameter.detach()))
                ties.append(Tie(first=first, first_name=first_name, second=part, second_name=name))
    return ties
