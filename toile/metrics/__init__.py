"""Writers that send metrics to TensorBoard, the console, CSV files and JSON Lines files.

`toile.metrics.tensorboard` contains a SummaryWriter that has the methods of
`flax.metrics.tensorboard` but does not need TensorFlow. `toile.metrics.writers` provides one
interface to all kinds of output. The metrics themselves (`Accuracy`, `Average`, ...) are in
`toile.training.metrics`.
"""
