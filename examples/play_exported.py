"""Play tic-tac-toe with an exported policy against random moves: onnxruntime and numpy, without marltrain.

marltrain train pettingzoo/classic/tictactoe_v3 --algo ppo --self-play --run-dir runs/tictactoe
marltrain export runs/tictactoe
python examples/play_exported.py runs/tictactoe/export/player_1.onnx
"""

import sys

import numpy as np
import onnxruntime

LINES = np.array([[0, 1, 2], [3, 4, 5], [6, 7, 8], [0, 3, 6], [1, 4, 7], [2, 5, 8], [0, 4, 8], [2, 4, 6]])


def play(policy: onnxruntime.InferenceSession, games: int = 100, seed: int = 0) -> float:
    rng, score = np.random.default_rng(seed), 0.0
    for game in range(games):
        marks = np.zeros((2, 9), bool)  # of the policy, of its opponent
        for turn in range(9):
            legal, mover = ~(marks[0] | marks[1]), (game + turn) % 2
            action = rng.choice(np.flatnonzero(legal))
            if mover == 0:
                board = marks.T.reshape(1, 3, 3, 2).astype(np.float32)
                action = policy.run(["action"], {"observation": board, "legal": legal[None]})[0][0]
            marks[mover, action] = True
            if marks[mover][LINES].all(1).any():
                score += 1 - 2 * mover
                break
    return score / games


if __name__ == "__main__":
    print(f"mean result in 100 games: {play(onnxruntime.InferenceSession(sys.argv[1])):+.2f}")
