"""One training loop for every task, and what it needs: loss, schedule, averages, states to resume from."""
