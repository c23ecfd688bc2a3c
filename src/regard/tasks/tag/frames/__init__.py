"""Labels for the frames of series: the parts of the task "tag" for sensors and videos."""
