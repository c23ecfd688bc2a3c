"""Tables from names that users give (tasks, corpora, formats, architectures) to modules or files. Imports nothing."""

from __future__ import annotations

TASKS = {
    "translate": "regard.tasks.translate",
    "chat": "regard.tasks.chat",
    "classify": "regard.tasks.classify",
    "tag": "regard.tasks.tag",
    "retrieve": "regard.tasks.retrieve",
    "language-model": "regard.tasks.language_model",
    "masked-language-model": "regard.tasks.masked_language_model",
    "caption": "regard.tasks.caption",
    "embed": "regard.tasks.embed",
}
"""Tasks: the name for data.task and --task, and the package (or plugin module) that defines `TASK`."""

BUILTIN = {
    "phrasebook": "phrasebook.jsonl.bz2",
    "smalltalk": "smalltalk.jsonl.bz2",
    "shapes": "shapes.jsonl.bz2",
}
"""Built-in corpora: the name to give as --source, and the packaged file in regard/data (written by tools/)."""

FORMATS = {
    ".txt": "regard.documents.segment",
    ".html": "regard.documents.html",
    ".htm": "regard.documents.html",
    ".xhtml": "regard.documents.html",
    ".md": "regard.documents.markdown",
    ".markdown": "regard.documents.markdown",
    ".srt": "regard.documents.subtitles",
    ".vtt": "regard.documents.vtt",
    ".po": "regard.documents.po",
    ".pot": "regard.documents.po",
}
"""Document formats: the ending of a file name, and the module that parses it (see regard/documents)."""

ARCHITECTURES = {
    "transformer-tiny": "regard.models.transformer_settings",
    "transformer-mini": "regard.models.transformer_settings",
    "transformer-small": "regard.models.transformer_settings",
    "transformer-base": "regard.models.transformer_settings",
    "transformer-big": "regard.models.transformer_settings",
    "transformer-moe": "regard.models.transformer_settings",
    "seq2seq-lstm": "regard.models.recurrent",
    "bahdanau": "regard.models.recurrent",
    "luong-dot": "regard.models.recurrent",
    "luong-general": "regard.models.recurrent",
    "luong-concat": "regard.models.recurrent",
    "gnmt": "regard.models.recurrent",
    "deep-att": "regard.models.deep_att",
    "convs2s": "regard.models.convs2s",
    "bytenet": "regard.models.bytenet",
    "hran": "regard.models.hran",
    "show-attend-tell": "regard.models.show_attend_tell",
    "han": "regard.models.han",
    "transformer-classifier": "regard.models.pooled_encoders",
    "text-encoder": "regard.models.transformer_settings",
    "bigru-crf": "regard.models.taggers",
    "transformer-crf": "regard.models.taggers",
    "transformer-lm": "regard.models.language_model",
    "lstm-lm": "regard.models.recurrent_language_model",
    "masked-lm": "regard.models.masked_language_model",
    "skip-gram": "regard.models.skip_gram",
}
"""Architectures: the name of a preset, to give as --arch, and the module whose table PRESETS has this preset."""

EXPORTS = {
    "ctranslate2": "regard.export.ctranslate2",
    "marian": "regard.export.marian",
    "onnx": "regard.export.onnx",
    "pegasus": "regard.export.pegasus",
    "hub": "regard.export.hub",
    "word2vec": "regard.export.word2vec",
}
"""Export formats: the name to give as --to, and the module that writes the format (see regard/export)."""

ENGINES = {"ctranslate2": "regard.tasks.translate.engine"}
"""Export formats whose models Regard can run, and the module with `quantization_loss`, which scores such a model."""

IMPORTS = {"marian": "regard.export.marian_import"}
"""Model formats that `regard import` reads, and the module that makes a run folder from such a model."""
