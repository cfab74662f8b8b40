"""Where numbers go: TensorBoard event files, and writers for the console, CSV and JSON lines.

`toile.metrics.tensorboard` has flax.metrics.tensorboard's SummaryWriter without TensorFlow;
`toile.metrics.writers` has one interface over every kind of output. What is measured during
training (`Accuracy`, `Average` …) lives in `toile.training.metrics`.
"""
