"""axial sample: new examples."""

import torch

from axial_transformers.cli.commands import Sample
from axial_transformers.cli.console import rank_zero_output
from axial_transformers.cli.options import products_in
from axial_transformers.decoding.sampling import require_room, sample, sample_in_processes
from axial_transformers.pictures.saving import require_output, save_examples
from axial_transformers.progress import bar
from axial_transformers.training.processes import processes_on
from axial_transformers.training.trained_model import TrainedModel


def main(options: Sample) -> None:
    """Run the command."""
    with rank_zero_output():
        processes = processes_on(options.device)
        products = products_in(options.precision, processes.device)
    with processes, products:
        with rank_zero_output():
            trained = options.opened(processes.device)
            config = trained.model.config
            scan, clips = options.scan(options.output, trained), len(config.shape) == 3
            require_output(options.output, clips, folder=True, source=options.known, scan=scan)
            label, look = trained.label(options.label), options.look(trained)
            require_room(config, options.count)
            known = _known(trained, options)

        def sample_part(numbers: slice) -> torch.Tensor:
            count = numbers.stop - numbers.start
            return sample(
                trained.model,
                count,
                temperature=options.temperature,
                top_k=options.top_k,
                top_p=options.top_p,
                seed=options.seed,
                first=numbers.start,
                label=None if label is None else label.expand(count),
                known=None if known is None else known[numbers],
                progress=bar(f"sampling {options.count} examples"),
            )

        values = sample_in_processes(config, options.count, sample_part, processes.count, processes.fill)
    if not processes.rank_zero:
        return
    save_examples(options.output, values.numpy(), look, options.scale, scan, config.floats)
    print(options.output)


def _known(trained: TrainedModel, options: Sample) -> torch.Tensor | None:
    if options.known is None:
        return None
    if not trained.model.config.known_channels:
        raise ValueError(f"--known {options.known}: {options.model} has no known channels, it samples all of them")
    examples, described = trained.examples(options.known, "all")
    if len(examples) < options.count:
        raise ValueError(f"{described} has {len(examples)} examples, fewer than --count {options.count}")
    return torch.from_numpy(examples.values[: options.count])
