"""Made-up results of the learning table."""

from benchmarks.learn.results import EPISODES, KEYS, path_of, write


def write_result(folder, of, number, score, **changed):
    """Write a result whose unseen episodes all return `score`, and whose curve rises to it in two tests."""
    content = dict.fromkeys(KEYS, "") | {
        "row": of.name, "seed": number, "env_steps": of.steps, "seconds": 60.0,
        "curve": [[0, 0.0], [of.steps, score]], "returns": {"player_0": [score] * EPISODES},
    }  # fmt: skip
    write(path_of(of, number, folder), content | changed)
