"""The interface of algorithms, which authors subclass: `Algorithm`, `JointAlgorithm`, `RewardModel`."""
