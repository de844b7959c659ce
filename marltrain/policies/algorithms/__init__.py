"""Algorithms, written over `ops`: one file each, entered in `registry.py`, and below for type checkers."""

TYPE_CHECKING = False  # true for type checkers

if TYPE_CHECKING:
    from marltrain.policies.algorithms.a2c import A2C as A2C
    from marltrain.policies.algorithms.dqn import DQN as DQN
    from marltrain.policies.algorithms.ppo import PPO as PPO
