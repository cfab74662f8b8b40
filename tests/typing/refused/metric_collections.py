"""Mistakes in the use of metrics."""
from toile.training import metrics

Metrics = metrics.Collection.create(loss=metrics.Average.from_output("loss"))

metrics.Collection.create(loss=1.0)  # error: no metric
metrics.Collection.create(loss=metrics.Average.from_output(3))  # error: no name
Metrics.emtpy()  # error: misspelled
Metrics.empty().merge(3)  # error: no collection
