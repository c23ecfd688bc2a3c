"""Beam search and greedy decoding against Hugging Face's `generate`, on a random Marian twin: the same outputs."""

from __future__ import annotations

import pytest
import torch

from regard.decoding.beam import beam_search
from regard.decoding.greedy import extend_paths
from regard.decoding.hypothesis import Tokens
from regard.decoding.penalties import LengthPenalty
from tests.parity.test_marian import PADDING, marian, twin
from tests.toys import Sentences

END, LONGEST, ROWS = 0, 14, 40


def sources() -> Sentences:
    lengths = torch.randint(2, 12, (ROWS, 1))
    mask_BS = torch.arange(12) < lengths
    return Sentences(torch.randint(1, PADDING, (ROWS, 12)).masked_fill(~mask_BS, PADDING), mask_BS)


@pytest.mark.parametrize(("beam", "penalty"), [(1, 1.0), (4, 1.0), (5, 0.6), (3, 0.0)])
@torch.inference_mode()
def test_the_same_outputs(beam: int, penalty: float) -> None:
    theirs = marian("relu")
    theirs.final_logits_bias.zero_()  # ours has none
    theirs.model.shared.weight[END] *= 5.0  # some outputs end early, some late, some at the limit
    ours, source = twin(theirs, "relu"), sources()
    expected = theirs.generate(
        input_ids=source.ids_BS, attention_mask=source.mask_BS.long(), num_beams=beam, length_penalty=penalty,
        early_stopping=True, max_new_tokens=LONGEST, do_sample=False, bad_words_ids=[[PADDING]],
        renormalize_logits=True, pad_token_id=PADDING,
    )  # fmt: skip
    memory = ours.encode(source)
    tokens = Tokens(PADDING, END, never=(PADDING,))
    limits = torch.full((ROWS,), LONGEST)
    if beam == 1:
        found = extend_paths(ours.step, ours.start(memory), memory, limits, tokens)
    else:
        found = beam_search(
            ours.step,
            ours.start(memory),
            memory,
            limits,
            tokens,
            width=beam,
            penalty=LengthPenalty(penalty),
            stop="beam-full",
        )
    wanted = [_until_end(row) for row in expected[:, 1:].tolist()]
    written = [list(hypotheses[0].tokens) for hypotheses in found]
    assert written == wanted
    assert len({len(row) for row in wanted}) >= 2


def _until_end(row: list[int]) -> list[int]:
    stops = [place for place, token in enumerate(row) if token in (END, PADDING)]
    return row[: stops[0]] if stops else row
