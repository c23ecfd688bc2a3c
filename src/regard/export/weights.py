"""Conversion of weights to and from other model formats: names, order of dimensions, and pruned heads.

Each format has one table of name pairs for both directions. A name that is missing or unused is an error. Some formats
need the same number of heads in every attention. For these, pruned heads are replaced by heads of zeros. Such a head
has equal attention weights and values of zero, so it adds nothing: the translations stay the same, but they take as
long as without pruning.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Literal, NamedTuple

from regard.errors import RunError
from regard.models.transformer_settings import TransformerSettings

if TYPE_CHECKING:
    from torch import Tensor

WEIGHT_AND_BIAS = ("weight", "bias")


class NamePair(NamedTuple):
    """The name of a tensor in our model, and its name or names in another model format."""

    ours: str
    theirs: tuple[str, ...]
    """Several names if the other format splits our tensor along the first axis."""
    stream: tuple[int, ...] = ()
    """Axes of the tensor along the residual stream, whose dimensions can have another order in the other format."""


class LayerNames(NamedTuple):
    """A linear layer that reads or writes the residual stream, or a norm: our name, and those in another format."""

    ours: str
    theirs: tuple[str, ...]
    role: Literal["reads", "writes", "norm"]


def pairs_of(
    ours: str, theirs: str, layers: Iterable[LayerNames], norm_parts: tuple[str, str] = WEIGHT_AND_BIAS
) -> Iterator[NamePair]:
    """Yield the name pairs of the weight and bias of each layer. `ours` and `theirs` are prefixes of their names.

    `norm_parts` are the other format's names for the weight and the bias of a norm.
    """
    for layer in layers:
        names = norm_parts if layer.role == "norm" else WEIGHT_AND_BIAS
        streams = ((1,), ()) if layer.role == "reads" else ((0,), (0,))
        for our_part, their_part, stream in zip(WEIGHT_AND_BIAS, names, streams, strict=True):
            joined = tuple(f"{theirs}{name}{their_part}" for name in layer.theirs)
            yield NamePair(f"{ours}{layer.ours}.{our_part}", joined, stream)


def to_theirs(
    pairs: Iterable[NamePair], weights: Mapping[str, Tensor], order: Tensor | None = None
) -> dict[str, Tensor]:
    """Convert our weights to the names of another format; `pairs` must name all of them.

    `order` has, for each dimension of the other format's residual stream, the index in our stream; None: same order.
    """
    left = dict(weights)
    made: dict[str, Tensor] = {}
    for pair in pairs:
        tensor = _reorder(_take(left, pair.ours, "the run"), pair.stream, order)
        made |= zip(pair.theirs, tensor.chunk(len(pair.theirs)), strict=True)
    _refuse_rest(left, "the run")
    return made


def to_ours(
    pairs: Iterable[NamePair], weights: Mapping[str, Tensor], order: Tensor | None = None, *, where: str
) -> dict[str, Tensor]:
    """Convert weights of another format to our names: the inverse of `to_theirs`, with the same `pairs` and `order`.

    `where` names the model in error messages.
    """
    import torch

    left = dict(weights)
    made: dict[str, Tensor] = {}
    back = None if order is None else order.argsort()
    for pair in pairs:
        parts = [_take(left, name, where) for name in pair.theirs]
        made[pair.ours] = _reorder(torch.cat(parts) if len(parts) > 1 else parts[0], pair.stream, back)
    _refuse_rest(left, where)
    return made


def _take(weights: dict[str, Tensor], name: str, where: str) -> Tensor:
    if name not in weights:
        raise RunError(f'{where}: the weights "{name}" are missing; use a complete copy of the model')
    return weights.pop(name)


def _refuse_rest(left: Mapping[str, Tensor], where: str) -> None:
    if left:
        raise RunError(f'{where}: no model with these settings has the weights "{min(left)}"; the files do not match')


def _reorder(tensor: Tensor, axes: tuple[int, ...], order: Tensor | None) -> Tensor:
    for axis in axes:
        tensor = tensor if order is None else tensor.index_select(axis, order)
    return tensor


MAPS = {"self": {"qkv": 3}, "cross": {"query": 1, "key_value": 2}}
"""For each kind of attention, the matrices whose rows belong to heads, and how many projections (q, k, v) each has."""


def fill_heads(
    settings: TransformerSettings, weights: Mapping[str, Tensor], wanted: Mapping[str, int]
) -> dict[str, Tensor]:
    """Add heads of zeros to `weights`; `wanted` has the number of heads that each attention should have, by name."""
    import torch

    filled, width, head_width = dict(weights), settings.width, settings.head_size
    for name in settings.attentions:
        kept, missing = settings.heads_in(name), wanted[name] - settings.heads_in(name)
        if not missing:
            continue
        side, layer, kind = name.split(".")
        block = f"encoder.blocks.{layer}" if side == "encoder" else f"decoder.{layer}"
        place = f"{block}.{kind}_attention"
        for map_name, parts in MAPS[kind].items():
            for part, columns in (("weight", (width,)), ("bias", ())):
                full = f"{place}.{map_name}.{part}"  # not there if the attention has no heads
                there = filled.get(full, torch.zeros(0, *columns)).unflatten(0, (parts, kept, head_width))
                zeros = there.new_zeros(parts, missing, head_width, *columns)
                filled[full] = torch.cat([there, zeros], dim=1).flatten(0, 2)
        out = filled.get(f"{place}.out.weight", torch.zeros(width, 0))
        filled[f"{place}.out.weight"] = torch.cat([out, out.new_zeros(width, missing * head_width)], dim=1)
    return filled
