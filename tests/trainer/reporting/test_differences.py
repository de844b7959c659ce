import pytest

from marltrain.trainer.reporting.differences import brief, differences, full


def linear(start, stop, steps=10_000, kind="linear"):
    return {"kind": kind, "start": start, "stop": stop, "steps": steps}


def mlp(*hidden, activation="tanh"):
    return {"type": "MLP", "hidden": list(hidden), "activation": activation}


def facts(players=("a",), env_args=None, trainer=None, **settings):
    return {"env_args": env_args or {}, "trainer": trainer or {}, "players": dict.fromkeys(players, settings)}


BRIEF = {
    "1e-3→1e-4": linear(0.001, 0.0001), "cosine 1→0.05": linear(1.0, 0.05, kind="cosine"), "MLP 64x32": mlp(64, 32),
    "32x32": [32, 32], "relu, tanh": ["relu", "tanh"], "()": [], "none": None, "yes": True, "no": False, "5": 5,
    "10k": 10_000, "5000": 5000, "123456": 123_456, "20M": 20_000_000, "-30k": -30_000, "0.95": 0.95, "0": 0.0,
    "1e-2": 0.01, "2.5e-4": 0.00025, "-1e-5": -1e-5, "1e8": 1e8, "0.333": 1 / 3, "1": 1.0, "Mine": "my.module:Mine",
    "adam": "adam", "n 3, c yes": {"n": 3, "c": True},
}  # fmt: skip


@pytest.mark.parametrize("text", BRIEF)
def test_brief_texts(text):
    assert brief(BRIEF[text]) == text


def test_whole_texts_lose_nothing():
    assert full(linear(0.001, 0.0001)) == "linear 1e-3→1e-4 in 10k"
    assert full(mlp(64, 32)) == "MLP hidden (64, 32), activation tanh"
    assert full(0.00012345678) == "1.2345678e-4" and full(1 / 3) == "0.3333333333333333"
    assert full(0.001) == "1e-3" and full("my.module:Mine") == "my.module:Mine"


def test_only_what_differs_is_told():
    groups = [facts(learning_rate=linear(1e-3, 1e-4), network=mlp(32, 32), gamma=0.9, clip=None),
              facts(learning_rate=linear(1e-2, 1e-3), network=mlp(64, 64), gamma=0.9, clip=None)]  # fmt: skip
    assert differences(groups) == ["lr 1e-3→1e-4, network 32x32", "lr 1e-2→1e-3, network 64x64"]
    assert differences(groups[:1]) == [""]


def test_equal_brief_texts_become_longer():
    """The same start and stop in another time; the same two sizes with another activation; close numbers."""
    groups = [facts(learning_rate=linear(1e-3, 0.0, steps)) for steps in (10_000, 25_000)]
    assert differences(groups) == ["lr linear 1e-3→0 in 10k", "lr linear 1e-3→0 in 25k"]
    assert differences([facts(network=mlp(8, activation=act)) for act in ("relu", "tanh")]) == [
        "network activation relu", "network activation tanh"]  # fmt: skip
    assert differences([facts(gamma=gamma) for gamma in (0.9991, 0.9992)]) == ["gamma 0.9991", "gamma 0.9992"]
    assert differences([facts(policy=name) for name in ("a:P", "b:P")]) == ["policy a:P", "policy b:P"]
    assert differences([facts(policy=value) for value in (None, "none")]) == ["policy null", 'policy "none"']


def test_kinds_of_values_may_differ():
    groups = [facts(learning_rate=value) for value in (0.001, linear(0.001, 0.0), None)]
    assert differences(groups) == ["lr 1e-3", "lr 1e-3→0", "lr none"]
    networks = [facts(network=value) for value in (mlp(8), {"type": "GRU", "units": 64, "hidden": [8]}, None)]
    assert differences(networks) == ["network MLP 8", "network GRU 8", "network none"]


def test_parts_of_a_setting_are_named():
    groups = [facts(memory={"capacity": 10_000, "prioritized": {"alpha": alpha}}) for alpha in (0.6, 0.7)]
    assert differences(groups) == ["memory prioritized alpha 0.6", "memory prioritized alpha 0.7"]


def test_arguments_of_the_environment_and_of_the_trainer():
    groups = [facts(env_args={"N": 3}, trainer={"batch_size": 64}), facts(env_args={"N": 4}, trainer={})]
    assert differences(groups) == ["N 3, batch_size 64", "N 4, batch_size none"]


def test_settings_of_players():
    """Equal for all players of a group: once. Else once for each set of players with equal values."""
    assert differences([facts("ab", gamma=0.9), facts("ab", gamma=0.8)]) == ["gamma 0.9", "gamma 0.8"]
    one, two = {"gamma": 0.9}, {"gamma": 0.8}
    swapped = [{"players": {"wolf": one, "hare": two, "owl": two}}, {"players": {"wolf": two, "hare": one, "owl": one}}]
    assert differences(swapped) == ["wolf gamma 0.9, hare+owl gamma 0.8", "wolf gamma 0.8, hare+owl gamma 0.9"]
    assert differences([{"players": {"wolf": one, "hare": two}}, {"players": {"wolf": one, "hare": one}}]) == [
        "gamma 0.8", "gamma 0.9"]  # fmt: skip
    other = [{"env_args": {"N": 1}, "players": {"a": one}}, {"env_args": {"N": 2}, "players": {"a": one, "b": two}}]
    assert differences(other) == ["N 1", "N 2"]


def test_what_tells_most_apart_comes_first_and_the_rest_is_left_out():
    groups = [facts(a=i // 2, b=i // 2, c=i // 3, d=i // 3, seedling=i) for i in range(4)]
    assert differences(groups) == [
        f"seedling {i}, a {i // 2}, b {i // 2}, …" for i in range(4)
    ]  # c and d tell nothing more


def test_as_many_as_are_needed_to_tell_groups_apart():
    """16 groups of four settings with two values each: three of them would not do."""
    groups = [facts(**{name: i >> k & 1 for k, name in enumerate("abcd")}) for i in range(16)]
    data = differences(groups)
    assert data[5] == "a 1, b 0, c 1, d 0" and len(set(data)) == 16
