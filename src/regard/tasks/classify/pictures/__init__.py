"""Pictures as the input of a classifier: the variant of the task for runs that read pictures."""
