"""The task "translate": translate sentences of one language into another."""

from __future__ import annotations

from regard.tasks import Task

TASK = Task(
    name="translate",
    help="translate sentences",
    does="translates",
    model_kind="seq2seq",
    predictor="Translator",
    module="translator",
    command="translate",
    commands={
        "translate": "translate text, files or standard input",
        "evaluate": "score a run on a test set, or compare two: BLEU, chrF, TER",
        "score": "log-probabilities of given translations",
        "heads": "show what each attention head does and how much depends on it",
        "prune": "write a smaller run without the least important attention heads",
    },
    settings="TranslateSettings",
    writes=True,
    metrics=("bleu", "chrf", "loss", "reward"),
    scores={
        "bleu": "BLEU {:.1f}",
        "chrf": "chrF {:.1f}",
        "ter": "TER {:.1f}",
        "reward": "reward {:.4f}",
        "loss": "loss {:.3f}",
    },
    kept=("source_language", "target_language"),
    pipeline_tag="translation",
)
