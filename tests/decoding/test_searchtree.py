"""The recorded beam search, against what the search itself gave back."""

import json

import pytest
import torch

from regard.decoding.beam import beam_search, search_trees
from regard.decoding.hypothesis import Tokens
from tests.decoding.test_search import END, START, table_step


@pytest.fixture
def recorded():
    step, _ = table_step(3)
    states = []
    found = beam_search(
        step, torch.full((3, 1), START), torch.arange(3), torch.tensor([6, 4, 5]), Tokens(START, END, never=(START,)),
        width=3, best=3, watch=states.append,
    )  # fmt: skip
    return found, search_trees(states, 3, str)


def test_finished_nodes_are_the_hypotheses(recorded):
    for hypotheses, tree in zip(*recorded, strict=True):
        nodes = {node.id: node for node in tree.nodes}
        written = {}
        for node in tree.nodes:
            if node.fate == "finished":
                path, place, total = [], node.id, 0.0
                while place != -1:
                    path.insert(0, int(nodes[place].token))
                    total += nodes[place].log_prob
                    place = nodes[place].parent
                assert node.total == pytest.approx(total, abs=1e-5)
                written[tuple(path)] = node.score
        assert hypotheses
        for hypothesis in hypotheses:
            path = (*hypothesis.tokens, END) if hypothesis.ended else hypothesis.tokens
            assert written[path] == pytest.approx(hypothesis.score)


def test_only_what_was_kept_goes_on(recorded):
    for tree in recorded[1]:
        fates = {node.id: node.fate for node in tree.nodes}
        assert {"kept", "finished", "dropped"} == set(fates.values())
        for node in tree.nodes:
            assert node.parent == -1 or fates[node.parent] == "kept"
            assert (node.score is not None) == (node.fate == "finished")
        for step in {node.step for node in tree.nodes}:
            assert sum(node.step == step and node.fate == "kept" for node in tree.nodes) <= 3


def test_a_tree_is_plain_data(recorded):
    tree = recorded[1][0]
    again = json.loads(json.dumps(tree.as_dict()))
    assert len(again["nodes"]) == len(tree.nodes)
    assert set(again["nodes"][0]) == {"id", "parent", "step", "token", "log_prob", "total", "fate", "score"}
