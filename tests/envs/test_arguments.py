"""Arguments of environments: which a callable accepts."""

from marltrain.envs.arguments import accepted_arguments


def test_accepted_arguments():
    assert accepted_arguments(lambda a, *, b=1: None) == {"a", "b"}
    assert accepted_arguments(lambda **anything: None) is None
