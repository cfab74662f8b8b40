"""A program with ott; `results` are compared with those on JAX."""

import jax
from ott.geometry import pointcloud
from ott.problems.linear import linear_problem
from ott.solvers.linear import sinkhorn

g = pointcloud.PointCloud(
    jax.random.normal(jax.random.PRNGKey(0), (6, 2)),
    jax.random.normal(jax.random.PRNGKey(1), (5, 2)),
    epsilon=0.5,
)
o = sinkhorn.Sinkhorn()(linear_problem.LinearProblem(g))
results = [o.matrix, o.reg_ot_cost]
