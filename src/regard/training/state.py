"""The tensors of a training: weights, optimizer state and averaged weights, by the names they have in a checkpoint."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

import torch
from torch import Tensor

from regard.config import TrainSettings
from regard.models.base import Network
from regard.training.averaging import make_average
from regard.training.device import gather, scatter
from regard.training.distributed import ProcessGroup
from regard.training.optimizer import make_optimizer


class TrainingState:
    """Model, optimizer and average. Tensors may be sharded; those of a checkpoint are whole."""

    def __init__(self, model: Network, settings: TrainSettings, group: ProcessGroup):
        self.model, self.group = model, group
        self.optimizer = make_optimizer(model, settings)
        self.average = make_average(model, settings)

    def tensors(self) -> dict[str, Tensor]:
        """Everything in a checkpoint, by name; empty in all processes but the first."""
        return self._gather(self._named())

    def averaged_weights(self) -> dict[str, Tensor]:
        """The averaged weights by name; empty in all processes but the first."""
        return self._gather(self.average.named().items())

    def all_finite(self, gathered: Mapping[str, Tensor]) -> bool:
        """Whether the tensors that the first process has gathered are finite; the same answer in all processes."""
        (bad,) = self.group.sum(not all(bool(tensor.isfinite().all()) for tensor in gathered.values()))
        return not bad

    @torch.no_grad()
    def load(self, tensors: Iterable[tuple[str, Tensor]]) -> None:
        """Continue from the tensors of a checkpoint, which all processes have."""
        parameters = dict(self.model.named_parameters())
        self.average.reset()
        moments: dict[str, dict[str, Tensor]] = defaultdict(dict)
        for place, tensor in tensors:
            kind, _, name = place.partition(".")
            if kind == "optimizer":
                key, _, name = name.partition(".")
                is_moment = tensor.dim() > 0  # Adam's count of steps is a number, which is never sharded
                like = parameters[name]
                moments[name][key] = scatter(tensor, like) if is_moment else tensor.to(like.device)
            elif kind == "weights":
                parameters[name].copy_(scatter(tensor, parameters[name]))
            else:
                self.average.load(place, tensor, scatter)
        for name, parameter in parameters.items():
            self.optimizer.load_state(parameter, moments[name])

    def _named(self) -> Iterator[tuple[str, Tensor]]:
        for name, parameter in self.model.named_parameters():
            yield f"weights.{name}", parameter
            for key, value in self.optimizer.state_of(parameter).items():
                yield f"optimizer.{key}.{name}", value
        yield from self.average.tensors()

    def _gather(self, tensors: Iterable[tuple[str, Tensor]]) -> dict[str, Tensor]:
        """Whole tensors on the CPU. Every process takes part; only the first keeps them."""
        whole = {}
        for name, tensor in tensors:
            gathered = gather(tensor.detach())
            if self.group.is_first:
                whole[name] = gathered.cpu()
        return whole
