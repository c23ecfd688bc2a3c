"""The training loop for all tasks and what it needs: loss, optimizer, schedule, averages, checkpoints, logs, plan."""
