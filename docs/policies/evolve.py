"""Evolve the weights of evolved.py: an evolution strategy in which the best of each generation is the next parent.

    python docs/policies/evolve.py                   # from the first weights to evolved.py, and the held-out figures
    python docs/policies/evolve.py --generations 0   # only the held-out figures of evolved.py and fgd.py

Candidates are drawn from a seed, so the result depends on the arguments alone.
"""

import argparse
import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from kubestow_lab.evaluation.evaluation import Limits, evaluate
from kubestow_lab.process_pool import usable_cores

FOLDER = Path(__file__).parent
SUITE, OBJECTIVE = "openb-small", "utilisation.kubestow.dev/gpu-milli"
#: The first parent: cores per GPU, and a cost for everything that is left.
FIRST = np.array([8.0, 0.3, 0.3, 0.5, 0.3, 0.5, 0.5, 0.3, 1.0])


def program(numbers):
    """The text of evolved.py with other numbers."""
    text = (FOLDER / "evolved.py").read_text(encoding="utf-8")
    ratio, *weights = (float(f"{number:.4g}") for number in numbers)
    text = re.sub(r"^CORES_PER_GPU = .*$", f"CORES_PER_GPU = {ratio}", text, flags=re.MULTILINE)
    return re.sub(r"^WEIGHTS = .*$", f"WEIGHTS = ({', '.join(map(str, weights))})", text, flags=re.MULTILINE)


def objective(text):
    """The allocated share of the GPUs on the seeds for searching, in a confined process; 0 for a failure."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "candidate.py"
        path.write_text(text, encoding="utf-8")
        return evaluate(f"{path}:Evolved", SUITE, limits=Limits(seconds=600)).score


def offspring(parent, step, random):
    """The parent with about half of its numbers multiplied by something near 1, and sometimes one sign changed."""
    child = parent * np.exp(step * random.standard_normal(len(parent)) * (random.random(len(parent)) < 0.5))
    if random.random() < 0.2:
        child[random.integers(1, len(parent))] *= -1
    return child


def evolve(generations, children, seed):
    """The best numbers found. The step grows with success and shrinks without."""
    random, parent, step = np.random.default_rng(seed), FIRST, 0.5
    with ThreadPoolExecutor(usable_cores()) as executor:
        best = objective(program(parent))
        print(f"first: {best:.4f}", flush=True)
        for generation in range(1, generations + 1):
            candidates = [offspring(parent, step, random) for _ in range(children)]
            scores = list(executor.map(objective, map(program, candidates)))
            winner = int(np.argmax(scores))
            step = min(1.3 * step, 1.0) if scores[winner] > best else max(0.8 * step, 0.1)
            if scores[winner] >= best:
                parent, best = candidates[winner], scores[winner]
            print(f"generation {generation}: {best:.4f}", flush=True)
    return parent


def main():
    """Evolve, write evolved.py, and print what it and FGD reach on the held-out seeds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--generations", type=int, default=12)
    parser.add_argument("--children", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.generations:
        found = evolve(arguments.generations, arguments.children, arguments.seed)
        (FOLDER / "evolved.py").write_text(program(found), encoding="utf-8")
    for policy in ("fgd.py:Fgd", "evolved.py:Evolved"):
        found = evaluate(f"{FOLDER / policy}", SUITE, limits=Limits(seconds=600), held_out=True)
        values = [run[OBJECTIVE] for run in found.runs]
        print(f"held out, {policy}: {found.score:.4f} ({', '.join(f'{value:.4f}' for value in values)})")


if __name__ == "__main__":
    main()
