"""Writers of metrics to TensorBoard event files, the console, CSV files and JSON lines.

`toile.metrics.tensorboard` contains a SummaryWriter like that of `flax.metrics.tensorboard`, which
does not need TensorFlow. `toile.metrics.writers` contains one interface for all kinds of output.
The metrics themselves (`Accuracy`, `Average`, ...) are in `toile.training.metrics`.
"""
