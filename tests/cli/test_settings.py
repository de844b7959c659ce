"""`marltrain settings`: the settings of an algorithm, one in each line."""

import dataclasses

from marltrain.policies.algorithms.ppo import PPOSettings
from tests.cli.running import refused, said


def test_each_setting_has_a_line_with_its_default(capsys):
    lines = said(capsys, "settings", "ppo").splitlines()
    assert [line.split()[0] for line in lines] == [field.name for field in dataclasses.fields(PPOSettings)]
    assert "epochs                 passes over each rollout (default: 4)" in lines
    assert "(default: linear(1.0, 0.05, 20000))" in said(capsys, "settings", "dqn")
    own = said(capsys, "settings", "marltrain.policies.algorithms.ppo:PPO").splitlines()
    assert own == lines


def test_wrong_names_are_refused(capsys):
    assert "no algorithm is called 'pppo'. Did you mean 'ppo'?" in refused(capsys, "settings", "pppo")
    assert "is not the class of a learning agent" in refused(capsys, "settings", "marltrain:RandomAgent")
