"""The undisturbed run: the same training in one process, every iteration's whole batch, no pipeline and no failures."""

from __future__ import annotations

import torch

from replan_client.torch.demo.child import Child
from replan_client.torch.demo.messages import Losses, Trained
from replan_client.torch.demo.scenario import Scenario
from replan_client.torch.demo.task import make_training
from replan_client.torch.seeds import forward_seed


def train_undisturbed(_child: Child, scenario: Scenario) -> Trained:
    """Train all stages; also gives the losses of each iteration."""
    training = make_training(scenario, dropout_seed=scenario.reference_seed)
    modules = [training.build_stage(stage) for stage in range(scenario.num_slots)]
    optimizers = [training.make_optimizer(module) for module in modules]
    losses: list[Losses] = []
    for iteration in range(scenario.num_iterations):
        found: dict[tuple[int, int], torch.Tensor] = {}
        for pipeline in range(scenario.num_pipelines):
            for microbatch in range(scenario.num_microbatches):
                value, labels = training.data(iteration, pipeline, microbatch)
                for stage, module in enumerate(modules):
                    torch.manual_seed(forward_seed(training.seed, iteration, stage, pipeline, microbatch))
                    value = module(value)
                found[pipeline, microbatch] = training.loss_fn(value, labels)
        torch.stack(list(found.values())).mean().backward()
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        losses.append({microbatch: float(loss.detach()) for microbatch, loss in found.items()})
    parameters = {
        f"{stage}.{name}": parameter.detach().numpy()
        for stage, module in enumerate(modules)
        for name, parameter in module.named_parameters()
    }
    return Trained(completed=scenario.num_iterations, parameters=parameters, losses=tuple(losses))
