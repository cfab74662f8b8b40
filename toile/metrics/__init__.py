"""Writers of metrics to TensorBoard event files, the console, CSV files and JSON lines.

`toile.metrics.tensorboard` contains a SummaryWriter with the methods of `flax.metrics.tensorboard`,
but without TensorFlow. `toile.metrics.writers` contains one interface for all kinds of output. The
metrics themselves (`Accuracy`, `Average`, ...) are in `toile.training.metrics`.
"""
