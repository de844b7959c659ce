"""Action distributions of policy networks, written with `ops` for all frameworks.

A distribution converts the network's output [K, B, size] to actions, log-probabilities, entropies and divergences.
Random numbers are arguments (`noise`), drawn with numpy from each agent's own stream.
"""

from marltrain.policies.distributions.beta import Beta
from marltrain.policies.distributions.categorical import ILLEGAL, Categorical, MultiCategorical, gumbel, masked
from marltrain.policies.distributions.choice import CONTINUOUS, Distribution, distribution_of, policy_numbers_of
from marltrain.policies.distributions.continuous import Continuous
from marltrain.policies.distributions.draws import Sampling
from marltrain.policies.distributions.gaussian import Gaussian, SquashedGaussian, StateGaussian
from marltrain.policies.distributions.relaxed import RelaxedCategorical

__all__ = [
    "CONTINUOUS",
    "ILLEGAL",
    "Beta",
    "Categorical",
    "Continuous",
    "Distribution",
    "Gaussian",
    "MultiCategorical",
    "RelaxedCategorical",
    "Sampling",
    "SquashedGaussian",
    "StateGaussian",
    "distribution_of",
    "gumbel",
    "masked",
    "policy_numbers_of",
]
