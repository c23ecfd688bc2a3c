"""Analysis of trained models: attention, attribution, heads. Functions take tensors and return tensors."""
