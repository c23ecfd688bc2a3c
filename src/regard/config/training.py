"""How to learn."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regard.config.required import require, require_finite


@dataclass(frozen=True)
class Train:
    """How to learn."""

    seed: int = 1
    """The one seed: data order, initial weights and dropout all follow from it."""
    max_steps: int = 100_000
    """Stop after this many updates."""
    minutes: float = 0.0
    """Stop after this many minutes of training and validating (reading the data comes on top); 0: no limit."""
    batch_tokens: int = 4096
    """Tokens in a batch: rows times the longer padded side."""
    accumulate: int = 1
    """Batches whose gradients are summed into one update."""
    optimizer: Literal["adam", "muon"] = "adam"
    """Adam for all weights, or Muon for the matrices between hidden states and Adam for the rest."""
    learning_rate: float = 1e-3
    """Peak learning rate, reached at the end of the warm-up."""
    matrix_rate: float = 0.03
    """Peak learning rate of Muon's matrices: how far an update moves an output, at most."""
    warmup: int = 400
    """Updates over which the learning rate climbs to its peak."""
    schedule: Literal["inverse-sqrt", "cosine", "constant"] = "inverse-sqrt"
    """How the learning rate falls after the warm-up."""
    cooldown: float = 0.0
    """Share of the training, at its end, over which the rate falls to zero and words are cut as usual; 0: none."""
    quiet_start: bool = False
    """Let the sub-layers of a Transformer add nothing before the first update; they find out what to add."""
    ease_in: int = 0
    """Updates over which dropout and subword sampling climb from nothing to their full strength; 0: full at once."""
    betas: tuple[float, float] = (0.9, 0.98)
    """Adam's decay rates."""
    epsilon: float = 1e-9
    """Adam's epsilon."""
    weight_decay: float = 0.0
    """Decoupled weight decay on matrices."""
    label_smoothing: float = 0.1
    """Share of probability spread over all tokens in the loss."""
    r_drop: float = 0.0
    """Weight of R-Drop: each batch is seen through two dropouts, and their predictions shall agree; 0: off."""
    clip: float = 1.0
    """Largest norm of the gradient; 0: no clipping."""
    average: float = 0.998
    """Decay of the moving average of weights that is validated and kept; 0: no averaging."""
    checkpoints: int = 0
    """Validate and keep the mean of the weights at the last so many validations, instead of the moving average."""
    validate_every: int = 500
    """Updates between validations."""
    state_every: int = 500
    """Updates between states to resume from."""
    patience: int = 10
    """Stop after this many validations without a better one, for models that write also by the loss; 0: never."""
    metric: Literal["bleu", "chrf", "loss", "accuracy", "f1", "mrr"] = "bleu"
    """The validation score that picks the best weights."""
    valid_sentences: int = 500
    """Translate this many validation sentences at each validation; 0: all."""
    log_every: int = 20
    """Updates between lines in the metrics file."""
    tensorboard: bool = False
    """Write TensorBoard events into the run folder as well."""
    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    """Where to train; auto: on an NVIDIA or AMD GPU if there is one. mps (the GPU of a Mac) has not been tested."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Of matrix products; weights stay in float32. auto: bfloat16 on a GPU that has it, else float32."""
    shard: bool = False
    """Under torchrun: spread weights and moments over the processes (FSDP2), for models that do not fit into one."""

    def __post_init__(self) -> None:
        require_finite(self, "train")
        for name in ("max_steps", "accumulate", "validate_every", "state_every", "log_every"):
            require(getattr(self, name) >= 1, f"train.{name} must be at least 1")
        require(-(2**63) <= self.seed < 2**63, "train.seed must be a number of 64 bits")
        require(self.valid_sentences >= 0, "train.valid_sentences must not be negative")
        require(self.batch_tokens >= 16, "train.batch_tokens must be at least 16")
        require(self.learning_rate > 0, "train.learning_rate must be above 0")
        require(self.matrix_rate > 0, "train.matrix_rate must be above 0")
        for name in ("warmup", "weight_decay", "clip"):
            require(getattr(self, name) >= 0, f"train.{name} must not be negative")
        require(all(0 <= beta < 1 for beta in self.betas), "train.betas must be at least 0 and below 1")
        require(self.epsilon > 0, "train.epsilon must be above 0")
        require(0 <= self.average < 1, "train.average must be at least 0 and below 1")
        require(self.checkpoints >= 0, "train.checkpoints must not be negative")
        require(0 <= self.label_smoothing < 1, "train.label_smoothing must be at least 0 and below 1")
        require(self.r_drop >= 0, "train.r_drop must not be negative")
        require(0 <= self.cooldown < 1, "train.cooldown must be at least 0 and below 1")
        require(self.ease_in >= 0, "train.ease_in must not be negative")
        require(
            not self.shard or self.optimizer == "adam",
            f'train.shard needs train.optimizer = "adam": {self.optimizer} works on whole matrices',
        )
        require(self.minutes >= 0 and self.patience >= 0, "train.minutes and train.patience must not be negative")
