"""Series of frames as the input of a classifier: the variant of the task for runs that read frames."""
