"""Looking inside: record what passes, then tensors to tensors."""
