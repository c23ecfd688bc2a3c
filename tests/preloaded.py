"""What commands in processes of their own share (`tests.processes`): imported modules, and the measured machine."""

from importlib import import_module

for name in (
    "torch._dynamo",  # the first optimizer of a process imports it
    "torch.utils.flop_counter",
    "regard.cli.train",
    "regard.tasks.train",
    "regard.tasks.translate.training",
):
    import_module(name)
import_module("regard.training.device").measure_machine()
