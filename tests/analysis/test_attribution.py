"""Attribution: every method on every architecture it serves, and on models whose answer is known."""

import pytest
import torch
from torch import nn

from regard.analysis.attribution import METHODS, Attribution, TokenPair, attribute, embed, embed_absent, log_probs
from regard.analysis.attribution_methods import roll_out
from regard.analysis.trace import TraceSide
from regard.errors import ModelError
from regard.layers.hooks import attention_hooks, listen_to_states, state_hooks, trace
from regard.models.base import EncoderOutput, Seq2Seq
from tests.toys import TOYS, VARIANTS, Sentences, build, close, sentences, tokens

MODELS = {name: TOYS[name] for name in ("transformer-tiny", "transformer-small", "bahdanau", "luong-general", "gnmt")}
MODELS |= VARIANTS | {"seq2seq-lstm": TOYS["seq2seq-lstm"]}
TRANSFORMERS = [name for name in MODELS if name.startswith("transformer") or name in VARIANTS]
UNK = (1, 1)


def make_pair(source_length: int = 6, target_length: int = 5) -> TokenPair:
    target = tokens(1, target_length + 1)
    return TokenPair(sentences([source_length]), target[:, :-1], target[:, 1:])


def serves(name: str, method: str) -> bool:
    if method in ("rollout", "alti"):
        return name in TRANSFORMERS
    return method != "attention" or name != "seq2seq-lstm"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("name", MODELS)
def test_every_method_on_every_architecture(name: str, method: str) -> None:
    """Shapes, causality, signs; the model is left as it was. Or one line that says why not."""
    model, pair = build(MODELS[name]), make_pair()
    if not serves(name, method):
        with pytest.raises(ModelError, match=r"(no attention to the source|for Transformers only)") as refused:
            attribute(model, *pair, method)
        assert "\n" not in str(refused.value)
        return
    before = {key: weight.clone() for key, weight in model.state_dict().items()}
    found = attribute(model, *pair, method)
    assert found.source_TS.shape == (5, 6)
    assert found.target_TT.shape == (5, 5)
    assert not found.target_TT.triu(1).any()
    assert found.source_TS.isfinite().all()
    assert found.signed == bool((found.source_TS < 0).any())
    assert not found.source_TS.requires_grad
    assert all(torch.equal(weight, before[key]) for key, weight in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(tap.idle for tap in attention_hooks(model).values())
    assert not any(stream.listeners for stream in state_hooks(model))


@pytest.mark.parametrize("method", ["rollout", "alti"])
@pytest.mark.parametrize("name", TRANSFORMERS)
def test_rolled_out_rows_sum_to_one(name: str, method: str) -> None:
    """Source and prefix together share the whole."""
    found = attribute(build(MODELS[name]), *make_pair(), method)
    close(found.source_TS.sum(-1) + found.target_TT.sum(-1), torch.ones(5))
    assert found.source_TS.min() >= 0


def test_normalised_rows() -> None:
    """Sizes sum to one over source and prefix, signs stay, and nothing is divided by zero."""
    found = Attribution(torch.tensor([[1.0, -2.0], [0.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 0.0]]), signed=True)
    even = found.normalised()
    close(even.source_TS, torch.tensor([[0.25, -0.5], [0.0, 0.0]]))
    close(even.target_TT, torch.tensor([[0.25, 0.0], [0.0, 0.0]]))


@pytest.mark.parametrize("signed", [True, False])
def test_tokens_merge_to_words(signed: bool) -> None:
    """Columns are summed; rows are summed if they are shares of a log-probability, and averaged if weights."""
    source = TraceSide(("a", "b1", "b2"), ("a", "b"), (0, 1, 1))
    target = TraceSide(("c1", "c2", "</s>"), ("c", "</s>"), (0, 0, 1))
    from_source = torch.tensor([[1.0, 2.0, 3.0], [3.0, 2.0, 1.0], [0.0, 0.0, 4.0]])
    from_prefix = torch.tensor([[1.0, 0.0, 0.0], [1.0, 2.0, 0.0], [1.0, 2.0, 3.0]])  # read: <s> c1 c2
    found = Attribution(from_source, from_prefix, signed, torch.tensor([0.1, 0.2, 0.4]))
    merged = found.by_words(source, target)
    share = 1 if signed else 2
    close(merged.source_TS, torch.tensor([[4.0 / share, 8.0 / share], [0.0, 4.0]]))
    close(merged.target_TT, torch.tensor([[2.0 / share, 2.0 / share], [1.0, 5.0]]))
    assert merged.gap_T is not None
    close(merged.gap_T, torch.tensor([0.3, 0.4]))


# ---------------------------------------------------------------------------------------------------------------------
# Attention and rollout


def test_attention_is_the_mean_of_heads_and_layers() -> None:
    model, pair = build(TOYS["transformer-tiny"]), make_pair()
    with trace(model) as tape:
        model(pair.source, pair.input_1T)
    cross = torch.stack([tape[f"decoder.{layer}.cross"].weights_BHTS[0].mean(0) for layer in range(2)])
    close(attribute(model, *pair, "attention").source_TS, cross.mean(0))
    close(attribute(model, *pair, "attention", layer=1).source_TS, cross[1])
    with pytest.raises(ModelError, match=r"no attention to the source in decoder\.7"):
        attribute(model, *pair, "attention", layer=7)


def test_recurrent_attention_has_no_prefix() -> None:
    model, pair = build(TOYS["bahdanau"]), make_pair()
    found = attribute(model, *pair, "attention")
    close(found.source_TS.sum(-1), torch.ones(5))
    assert not found.target_TT.any()


def test_rolling_out_by_hand() -> None:
    """Two tokens on each side. One encoder layer swaps a half; the decoder's layers are followed with pen and paper."""
    encoder = [torch.tensor([[0.5, 0.5], [0.0, 1.0]])]
    own = torch.tensor([[1.0, 0.0], [0.5, 0.5]])
    cross = torch.tensor([[0.5, 0.0], [0.0, 0.25]])
    source_TS, target_TT = roll_out(encoder, [(own, cross), (own, cross)])
    # After layer 1: source [[.25 .25], [0 .25]], prefix [[.5 0], [.375 .375]].
    # Layer 2, row 0 keeps .5 of row 0; row 1 keeps .75 of the mean of both rows and adds .25 of source token 1.
    close(source_TS, torch.tensor([[0.375, 0.375], [0.09375, 0.4375]]))
    close(target_TT, torch.tensor([[0.25, 0.0], [0.328125, 0.140625]]))


def test_rollout_without_a_decoder_prefix_is_abnar_and_zuidema() -> None:
    """Their formula: the product of (A + I) / 2. It is what the encoder's part comes to."""
    model, pair = build(TOYS["transformer-small"]), make_pair()
    with trace(model) as tape:
        model(pair.source, pair.input_1T)
    mixed = torch.eye(6)
    for layer in range(3):
        mixed = (tape[f"encoder.{layer}.self"].weights_BHTS[0].mean(0) + torch.eye(6)) / 2 @ mixed
    own = [(tape[f"decoder.{layer}.self"].weights_BHTS[0].mean(0) + torch.eye(5)) / 2 for layer in range(2)]
    cross = [tape[f"decoder.{layer}.cross"].weights_BHTS[0].mean(0) / 2 for layer in range(2)]
    expected = own[1] @ (cross[0] @ mixed) / 2 + cross[1] @ mixed
    close(attribute(model, *pair, "rollout").source_TS, expected)


# ---------------------------------------------------------------------------------------------------------------------
# Gradients


@pytest.mark.parametrize("name", ["transformer-tiny", "transformer-small", "bahdanau"])
def test_gradient_equals_finite_differences(name: str) -> None:
    """A small step from the input towards the baseline, one token at a time."""
    model, pair = build(MODELS[name]).double(), make_pair()
    found = attribute(model, *pair, "gradient")
    read, absent = embed(model, pair), embed_absent(model, pair, None)
    step = 1e-5
    for place in range(6):
        moved = []
        for sign in (1, -1):
            source_1SD = read.source_NSD.clone()
            source_1SD[:, place] += sign * step * (read.source_NSD - absent.source_NSD)[:, place]
            moved.append(log_probs(model, pair, read._replace(source_NSD=source_1SD))[0])
        close(found.source_TS[:, place], (moved[0] - moved[1]).detach() / (2 * step), 1e-4)


@pytest.mark.parametrize("baseline", [None, UNK])
@pytest.mark.parametrize(
    ("name", "steps"),
    [("SwiGLU, norm before", 64), ("GELU, heads of 6, untied", 64), ("luong-general", 64), ("seq2seq-lstm", 64)],
)
def test_integrated_gradients_are_complete(name: str, steps: int, baseline: tuple[int, int] | None) -> None:
    """Sundararajan et al. 2017, section 3: they sum to log p(input) - log p(baseline)."""
    model, pair = build(MODELS[name]), make_pair()
    found = attribute(model, *pair, "integrated", steps=steps, baseline=baseline)
    ends = [log_probs(model, pair, ends)[0] for ends in (embed(model, pair), embed_absent(model, pair, baseline))]
    whole_T = (ends[0] - ends[1]).detach()
    assert whole_T.abs().max() > 0.1  # the baseline is another input, so there is something to share
    close(found.source_TS.sum(-1) + found.target_TT.sum(-1), whole_T, 1e-3)
    assert found.gap_T is not None
    close(found.gap_T, whole_T - found.source_TS.sum(-1) - found.target_TT.sum(-1))


@pytest.mark.parametrize("name", ["transformer-tiny", "transformer-small", "bahdanau"])
def test_integrated_gradients_with_kinks_are_complete_in_the_end(name: str) -> None:
    """ReLU and maxout have kinks, at which more steps are needed; the gap says how many."""
    model, pair = build(MODELS[name]), make_pair(5, 3)
    gaps = []
    for steps in (32, 3000):
        gap_T = attribute(model, *pair, "integrated", steps=steps, rule="midpoint").gap_T
        assert gap_T is not None
        gaps.append(gap_T.abs().max().item())
    assert gaps[1] < 1e-3
    assert gaps[1] < gaps[0]


def test_chunks_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model, pair = build(TOYS["transformer-tiny"]), make_pair()
    whole = [attribute(model, *pair, method) for method in ("integrated", "occlusion")]
    monkeypatch.setattr("regard.analysis.attribution.TOKENS_AT_ONCE", 40)
    for before, method in zip(whole, ("integrated", "occlusion"), strict=True):
        after = attribute(model, *pair, method)
        close(before.source_TS, after.source_TS)
        close(before.target_TT, after.target_TT)


# ---------------------------------------------------------------------------------------------------------------------
# Occlusion and what absence is


def test_occlusion_by_a_token_is_that_token_in_its_place() -> None:
    """With UNK as the baseline, one may as well write UNK into the sentence."""
    model, pair = build(TOYS["transformer-tiny"]), make_pair()
    found = attribute(model, *pair, "occlusion", baseline=UNK)
    score = lambda source, target: (  # noqa: E731
        model(source, target).log_softmax(-1)[0].gather(-1, pair.output_1T[0, :, None])[:, 0].detach()
    )
    whole_T = score(pair.source, pair.input_1T)
    for place in range(6):
        ids_1S = pair.source.ids_BS.clone()
        ids_1S[0, place] = 1
        close(found.source_TS[:, place], whole_T - score(Sentences(ids_1S, pair.source.mask_BS), pair.input_1T))
    for place in range(5):
        input_1T = pair.input_1T.clone()
        input_1T[0, place] = 1
        close(found.target_TT[:, place], whole_T - score(pair.source, input_1T))


@pytest.mark.parametrize("name", MODELS)
def test_absent_tokens_leave_their_positions(name: str) -> None:
    """Without a token, all that is read of a place is the place: the same whichever token stood there."""
    model = build(MODELS[name])
    first, second = (embed_absent(model, make_pair(), None) for _ in range(2))
    assert torch.equal(first.source_NSD, second.source_NSD)
    assert torch.equal(first.target_NTD, second.target_NTD)
    placed = bool(first.source_NSD.any())
    assert placed == (name in TRANSFORMERS and name not in ("rotary positions", "no positions"))


def test_embeddings_give_what_tokens_give() -> None:
    model, pair = build(TOYS["luong-general"]), make_pair()
    logits = model(pair.source, pair.input_1T).log_softmax(-1)
    close(log_probs(model, pair, embed(model, pair)), logits.gather(-1, pair.output_1T[..., None])[..., 0])


def test_a_source_nobody_reads_gets_nothing() -> None:
    """Cut from its source, a model owes it nothing; the prefix then has it all."""
    model, pair = build(TOYS["transformer-tiny"]), make_pair()
    with listen_to_states(model, "encoder.top", lambda name, x: 0 * x):
        for method in ("gradient", "integrated", "occlusion"):
            found = attribute(model, *pair, method)
            assert found.source_TS.abs().max() < 1e-6
            assert found.target_TT.abs().max() > 1e-3


# ---------------------------------------------------------------------------------------------------------------------
# What cannot be asked


def test_refusals_are_one_line() -> None:
    model, pair = build(TOYS["transformer-tiny"]), make_pair()
    for arguments, options, message in [
        ((*pair, "gradiant"), {}, r'no attribution method "gradiant"; did you mean "gradient"\?'),
        ((*pair, "alti"), {"steps": 3}, r'alti has no option "steps"; its options: none'),
        ((*pair, "integrated"), {"step": 3}, r'no option "step"; its options: baseline, steps, rule'),
        ((*pair, "integrated"), {"steps": 0}, "steps must be at least 1"),
        ((*pair, "integrated"), {"rule": "simpson"}, 'rule must be "gauss" or "midpoint"'),
        ((sentences([6, 4]), *pair[1:], "alti"), {}, "one sentence without padding"),
        ((pair.source, pair.input_1T, pair.output_1T[:, 1:], "alti"), {}, "of equal length"),
    ]:
        with pytest.raises(ModelError, match=message) as refused:
            attribute(model, *arguments, **options)
        assert "\n" not in str(refused.value)
    with pytest.raises(ModelError, match=r"call model\.eval\(\)"):
        attribute(model.train(), *pair, "alti")


class Sourceless(Seq2Seq):
    """Has no streams, so there is nothing to see of what it reads."""

    def __init__(self) -> None:
        super().__init__()
        self.output = nn.Linear(2, 19)

    def encode(self, source):
        return EncoderOutput(torch.zeros(1, 0, 0), source.mask_BS)

    def hidden(self, source, target_BT):
        return torch.zeros(*target_BT.shape, 2)


def test_a_model_without_a_source_is_refused() -> None:
    with pytest.raises(ModelError, match="Sourceless does not read a source"):
        attribute(Sourceless().eval(), *make_pair(), "occlusion")
