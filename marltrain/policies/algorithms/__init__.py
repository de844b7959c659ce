"""Algorithms, written over `ops`: one file each, entered in `agents/registry.py`, and below for type checkers."""

TYPE_CHECKING = False  # true for type checkers

if TYPE_CHECKING:
    from marltrain.policies.algorithms.a2c import A2C as A2C
    from marltrain.policies.algorithms.acer import ACER as ACER
    from marltrain.policies.algorithms.bc import BC as BC
    from marltrain.policies.algorithms.c51 import C51 as C51
    from marltrain.policies.algorithms.coma import COMA as COMA
    from marltrain.policies.algorithms.ddpg import DDPG as DDPG
    from marltrain.policies.algorithms.dqn import DQN as DQN
    from marltrain.policies.algorithms.gail import GAIL as GAIL
    from marltrain.policies.algorithms.maa2c import MAA2C as MAA2C
    from marltrain.policies.algorithms.maddpg import MADDPG as MADDPG
    from marltrain.policies.algorithms.mappo import MAPPO as MAPPO
    from marltrain.policies.algorithms.masac import MASAC as MASAC
    from marltrain.policies.algorithms.matd3 import MATD3 as MATD3
    from marltrain.policies.algorithms.mmd import MMD as MMD
    from marltrain.policies.algorithms.nfsp import NFSP as NFSP
    from marltrain.policies.algorithms.ppo import PPO as PPO
    from marltrain.policies.algorithms.qmix import QMIX as QMIX
    from marltrain.policies.algorithms.rainbow import Rainbow as Rainbow
    from marltrain.policies.algorithms.sac import SAC as SAC
    from marltrain.policies.algorithms.seac import SEAC as SEAC
    from marltrain.policies.algorithms.td3 import TD3 as TD3
    from marltrain.policies.algorithms.trl import TRL as TRL
    from marltrain.policies.algorithms.trpo import TRPO as TRPO
    from marltrain.policies.algorithms.vdac import VDAC as VDAC
    from marltrain.policies.algorithms.vdn import VDN as VDN
    from marltrain.policies.algorithms.wqmix import WQMIX as WQMIX
