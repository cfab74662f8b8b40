"""Writers of metrics: to TensorBoard event files, the console, CSV files and JSON lines.

`toile.metrics.tensorboard` has the SummaryWriter of `flax.metrics.tensorboard`, without TensorFlow;
`toile.metrics.writers` has one interface for all kinds of output. The metrics themselves
(`Accuracy`, `Average`, ...) are in `toile.training.metrics`.
"""
