"""What a run will do, as rows that `axial train` and `axial inspect` print."""

from axial_transformers.training import Facts, RunConfig
from axial_transformers.training.costs import StepCosts
from axial_transformers.training.run_page import describe_data
from axial_transformers.wording import engineering


def plan(run: RunConfig, costs: StepCosts, facts: Facts | None = None) -> dict[str, str]:
    """Return a run's data, its model, its training, and what a step needs, as rows (name, value)."""
    training = run.training
    rows = run.model.describe()
    if facts:
        described = describe_data(run, facts)
        described.pop("source", None)
        rows = described | rows
        del rows["data"]
    again = ", blocks computed again" if training.checkpoint_blocks else ""
    shares = ", weights in shares" if training.shard else ""
    parts = f", in {training.accumulate} parts" if training.accumulate > 1 else ""
    epochs = ""
    if facts:
        count = training.steps * training.batch_size / facts.train
        epochs = f", {count:,.0f} epochs" if count >= 10 else f", {count:.2g} epochs"
    return {
        **rows,
        "parameters": f"{costs.parameters:,}",
        "steps": f"{training.steps:,}{epochs}",
        "batches": f"of {training.batch_size}{parts}{again}{shares}",
        "precision": training.precision,
        "memory": f"more than {engineering(costs.memory)}B",
        "FLOPs": f"{engineering(costs.flops)}FLOP a step",
    }
