"""A search of one's own with Ray Tune, whose trials are runs of digits.toml.

    PYTHONPATH=../../python python3 ray_script.py [--trials 8]

Each key of the config is a parameter; Ray's schedulers see the step and the metrics of each evaluation.
"""
import argparse
from pathlib import Path

from ray import tune
from ray.tune.schedulers import ASHAScheduler

from tanren_ray import trainable

parser = argparse.ArgumentParser()
parser.add_argument("--trials", type=int, default=8)
parser.add_argument("--steps", type=int, default=900)
parser.add_argument("--out", default=Path("ray_results").absolute())
options = parser.parse_args()

space = {
    "run.steps": options.steps,
    "optimizer.learning_rate": tune.loguniform(1e-4, 0.1),
    "model.hidden": tune.choice(["[32]", "[64, 64]"]),
    "model.dropout": tune.uniform(0, 0.3),
}
scheduler = ASHAScheduler(time_attr="step", max_t=options.steps, grace_period=60)
tuner = tune.Tuner(
    trainable(Path(__file__).parent / "digits.toml"),
    param_space=space,
    tune_config=tune.TuneConfig(metric="accuracy", mode="max", num_samples=options.trials, scheduler=scheduler),
    run_config=tune.RunConfig(storage_path=str(options.out)))
best = tuner.fit().get_best_result()
print(f"accuracy {best.metrics['accuracy']} at step {best.metrics['step']} with {best.config}")
print(f"its checkpoint: {best.checkpoint.path}")
