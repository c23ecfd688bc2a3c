"""The task "masked-language-model": predict hidden tokens of a text from the words on both sides; fill blanks."""

from __future__ import annotations

from regard.tasks import Task

TASK = Task(
    name="masked-language-model",
    help="predict hidden words of texts; other models may start from the encoder",
    does="fills blanks",
    model_kind="masked-encoder",
    predictor="BlankFiller",
    module="filler",
    command="fill",
    commands={
        "fill": "fill the blanks of a text by a masked language model",
        "evaluate": "perplexity of hidden tokens by a masked language model",
    },
    settings="MaskedLanguageModelSettings",
    defaults={
        "model": {"arch": "masked-lm"},
        "data": {"max_length": 128},
        "train": {"label_smoothing": 0.0},  # smoothing costs perplexity
    },
    metrics=("loss", "accuracy"),
    scores={
        "perplexity": "perplexity {:.2f} per hidden token",
        "accuracy": "accuracy {:.2%}",
        "loss": "loss {:.3f}",
    },
    unsupported=("train.r_drop", "train.expert_parallel", "tokenizer.subword_regularization"),
    pipeline_tag="fill-mask",
)
