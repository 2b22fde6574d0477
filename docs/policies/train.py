"""Train a policy that places pods, by the cross-entropy method in the environment kubestow/Placement-v0.

    python docs/policies/train.py                  # train, write trained.json, compare on seeds that were held out
    python docs/policies/train.py --iterations 0   # only compare

The policy is a linear function of what a pod would leave behind on a node: the free shares of the resources, their
products, and the size of the node. The pod goes to the node with the highest value. Training starts from the policy
that leaves least. It needs NumPy and Gymnasium alone, and all random numbers come from seeds.
"""

import argparse
import json
from pathlib import Path

import gymnasium
import numpy as np

import kubestow_lab.gym  # noqa: F401  # registers the environment

FILE = Path(__file__).with_name("trained.json")
SIZE = {"nodes": 32, "pods": 400}
HELD_OUT = range(1000, 1020)


def features(observation):
    """What describes each node if the pod goes there, shape (nodes, features)."""
    size, free = np.hsplit(observation["nodes"].astype(float), 2)
    left = free - observation["pods"][0]
    first, second = np.triu_indices(left.shape[1])
    return np.hstack([left, size, left[:, first] * left[:, second]])


def episode(environment, seed, choose):
    """The share of the cluster that is allocated at the end of an episode."""
    observation, _ = environment.reset(seed=seed)
    ended, total = False, 0.0
    while not ended:
        observation, reward, ended, _, _ = environment.step(choose(observation))
        total += reward
    return total


def linear(weights):
    """The policy with these weights."""

    def choose(observation):
        values = features(observation) @ weights
        return int(np.where(observation["mask"], values, -np.inf).argmax())

    return choose


def train(environment, iterations, population, elite, episodes, seed):
    """The mean of the last elite; every candidate of an iteration is tried in the same episodes."""
    random = np.random.default_rng(seed)
    observation, _ = environment.reset(seed=seed)
    count, resources = features(observation).shape[1], observation["pods"].shape[1]
    mean, deviation = np.where(np.arange(count) < resources, -1.0, 0.0), np.full(count, 0.5)
    for iteration in range(iterations):
        candidates = mean + deviation * random.standard_normal((population, count))
        seeds = range(iteration * episodes, (iteration + 1) * episodes)
        rewards = [np.mean([episode(environment, each, linear(weights)) for each in seeds]) for weights in candidates]
        best = candidates[np.argsort(rewards)[-elite:]]
        mean, deviation = best.mean(axis=0), best.std(axis=0) + 0.1 / (iteration + 1)
        print(f"iteration {iteration + 1}: {np.mean(rewards):.4f}, best {max(rewards):.4f}", flush=True)
    return mean


def compare(weights, seeds=HELD_OUT):
    """The allocated share by the policy and by the default scheduler, one of each per seed."""
    trained = gymnasium.make("kubestow/Placement-v0", **SIZE)
    # With one waiting pod, the scheduler's own scores decide.
    default = gymnasium.make("kubestow/Placement-v0", **SIZE, action="order", choices=1)
    return (
        np.array([episode(trained, seed, linear(weights)) for seed in seeds]),
        np.array([episode(default, seed, lambda observation: 0) for seed in seeds]),
    )


def main():
    """Train, write the weights, and compare them with the default scheduler."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--population", type=int, default=20)
    parser.add_argument("--elite", type=int, default=5)
    parser.add_argument("--episodes", type=int, default=3)
    parser.add_argument("--seed", type=int, default=1)
    arguments = vars(parser.parse_args())
    if arguments["iterations"]:
        weights = train(gymnasium.make("kubestow/Placement-v0", **SIZE), **arguments)
        FILE.write_text(json.dumps([round(weight, 4) for weight in weights.tolist()]) + "\n", encoding="utf-8")
    trained, default = compare(np.array(json.loads(FILE.read_text(encoding="utf-8"))))
    better = int((trained > default).sum())
    print(f"held out: trained {trained.mean():.4f}, default {default.mean():.4f}, better in {better} of {len(trained)}")


if __name__ == "__main__":
    main()
