"""The task "language-model": predict each token of a text from the tokens before it; score and write texts."""

from __future__ import annotations

from regard.tasks import Task

TASK = Task(
    name="language-model",
    help="predict the next word of texts",
    does="writes texts",
    model_kind="decoder",
    predictor="TextGenerator",
    module="generator",
    command="write",
    commands={
        "write": "write texts, or continue given beginnings, by a language model",
        "evaluate": "perplexity of a language model on a file",
        "score": "log-probabilities of texts",
    },
    writes=True,
    defaults={
        "model": {"arch": "transformer-lm"},
        "train": {"label_smoothing": 0.0},  # smoothing costs perplexity
        # The most probable text is dull and repeats itself; a sample is not (Holtzman et al. 2020).
        "search": {"sample": True, "top_p": 0.95, "beam_size": 1, "max_length_extra": 100},
    },
    metrics=("loss",),
    scores={
        "perplexity": "perplexity {:.2f} per token",
        "word_perplexity": "{:.1f} per word",
        "character_perplexity": "{:.3f} per character",
        "bits_per_byte": "{:.3f} bits per byte",
        "loss": "loss {:.3f}",
    },
    pipeline_tag="text-generation",
)
