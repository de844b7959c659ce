"""The comparison of networks with and without memory: equal sizes, and its table."""

from __future__ import annotations

import json

from benchmarks import memory


def test_a_training_is_written_and_the_table_reads_it(tmp_path, monkeypatch):
    monkeypatch.setattr(memory, "EPISODES", 10)
    for name, few in {"num_test_envs": 10, "num_train_envs": 8, "update_freq": 512}.items():
        monkeypatch.setitem(memory.TRAINER, name, few)
    found = [memory.trained(network, 0, 2_048) for network in memory.NETWORKS]
    sizes = [result["weights"] for result in found]
    assert 0.9 < sizes[0] / sizes[1] < 1.1
    for result in found:
        assert 0 <= result["greedy"] <= 1 and 0 < result["sampled"] < 1
        for seed, score in enumerate((0.25, 0.5, 0.75)):
            output = {**result, "seed": seed, "greedy": score}
            (tmp_path / f"{result['network']}-{seed}.json").write_text(json.dumps(output))
    lines = memory.table(tmp_path).splitlines()
    assert len(lines) == 6
    assert "| 26,247 | 2,048 | 3 | greedy | 0.500 (0.250 to 0.750) | 0.500 (0.250 to 0.750) |" in lines[2]
