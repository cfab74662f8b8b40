"""Projections, perturbed functions, assignments and curvature: rows for each function of Optax."""

import numpy as np

from tests.optim.recorded import case, normal

A, B = normal(3, 4), normal(5, seed=1)
V = {"a": normal(3, 4, seed=2), "b": normal(5, seed=3)}

case("non_negative", lambda L, a, b: L.projections.projection_non_negative({"a": a, "b": b}), A, B,
     bf16=True)  # fmt: skip
case("box", lambda L, a: L.projections.projection_box(a, -0.5, 0.5), A)
case("box_trees", lambda L, a, b: L.projections.projection_box(
    {"a": a, "b": b}, {"a": -a, "b": -0.1}, {"a": 2 * a, "b": 0.3}), np.abs(A), B)  # fmt: skip
case("hypercube", lambda L, a: L.projections.projection_hypercube(a), A, bf16=True)
case("hypercube_scale", lambda L, a: L.projections.projection_hypercube(a, 0.25), A)
case("simplex", lambda L, b: L.projections.projection_simplex(b), B)
case("simplex_values", lambda L, b: L.projections.projection_simplex(b), B, bf16=True, grad=False)
case("simplex_tree", lambda L, a, b: L.projections.projection_simplex({"a": a, "b": b}, 2.5), A, B)
case("simplex_inside", lambda L, b: L.projections.projection_simplex(b), np.float32([0.25] * 4))
case("simplex_one", lambda L, b: L.projections.projection_simplex(b), B[:1])
case("simplex_ties", lambda L, b: L.projections.projection_simplex(b), np.float32([1, 1, 1, 0]))
PAIR = lambda a, b: {"a": a, "b": b}
for scale in (0.5, 100.0):
    case(f"l1_sphere_{scale}",
         lambda L, a, b, scale=scale: L.projections.projection_l1_sphere((a, b), scale), A,
         B)  # fmt: skip
    case(f"l1_ball_{scale}",
         lambda L, a, b, scale=scale: L.projections.projection_l1_ball({"a": a, "b": b}, scale), A,
         B)  # fmt: skip
    case(f"l2_sphere_{scale}",
         lambda L, a, b, scale=scale: L.projections.projection_l2_sphere((a, b), scale), A, B,
         bf16=True)  # fmt: skip
    case(f"l2_ball_{scale}",
         lambda L, a, b, scale=scale: L.projections.projection_l2_ball((a, b), scale), A, B,
         bf16=True)  # fmt: skip
    case(f"linf_ball_{scale}",
         lambda L, a, b, scale=scale: L.projections.projection_linf_ball((a, b), scale), A,
         B)  # fmt: skip
case("vector", lambda L, a, b: L.projections.projection_vector({"a": a, "b": b}, V), A, B,
     bf16=True)  # fmt: skip
case("hyperplane", lambda L, a, b: L.projections.projection_hyperplane({"a": a, "b": b}, V, 0.3), A,
     B)  # fmt: skip
for bound in (-5.0, 20.0):
    case(f"halfspace_{bound}",
         lambda L, a, b, bound=bound: L.projections.projection_halfspace(PAIR(a, b), V, bound), A,
         B)  # fmt: skip

# Perturbed functions: the samples are those of the same keys.
case("perturbed", lambda L, b: L.perturbations.make_perturbed_fun(
    lambda x: L.jnp.sum(L.jnp.maximum(x, 0.0)), 40)(L.random.key(0), b), B,
    rtol=1e-3, atol=1e-4)  # fmt: skip
case("perturbed_tree", lambda L, a, b: L.perturbations.make_perturbed_fun(
    lambda t: {"first": L.nn.one_hot(L.jnp.argmax(t["b"]), 5), "sign": L.jnp.sign(t["a"])}, 10, 0.7,
    L.perturbations.Normal(), use_baseline=False)(L.random.key(1), {"a": a, "b": b}), A, B,
    rtol=1e-3, atol=1e-4)  # fmt: skip
case("noise", lambda L: [n().sample(L.random.key(2), (3,)) for n in (
    L.perturbations.Normal, L.perturbations.Gumbel)], grad=False)  # fmt: skip
case("log_prob", lambda L, b: [n().log_prob(b) for n in (
    L.perturbations.Normal, L.perturbations.Gumbel)], B)  # fmt: skip

# Assignments; integers make ties.
for rows, columns in ((4, 4), (3, 6), (6, 3), (1, 5), (0, 3), (9, 9)):
    for kind in ("float", "ties"):
        cost = normal(rows, columns, seed=rows)
        cost = cost if kind == "float" else (3 * cost).astype(np.int32)
        for name in ("hungarian_algorithm", "base_hungarian_algorithm"):
            case(f"{name}_{rows}_{columns}_{kind}",
                 lambda L, c, name=name: getattr(L.assignment, name)(c), cost,
                 grad=False)  # fmt: skip

# Curvature.
loss = lambda L: lambda p, x, y: L.jnp.sum((L.jnp.tanh(x @ p["w"]) + p["b"] - y) ** 2)
DATA = normal(6, 3), normal(6, 2, seed=4)
PARAMS = {"b": normal(2, seed=5), "w": normal(3, 2, seed=6)}
case("hvp", lambda L, v, x, y: L.second_order.hvp(loss(L), v, PARAMS, x, y), normal(8), *DATA,
     grad=False)  # fmt: skip
case("hessian_diag", lambda L, x, y: L.second_order.hessian_diag(loss(L), PARAMS, x, y), *DATA,
     grad=False)  # fmt: skip
case("fisher_diag", lambda L, x, y: L.second_order.fisher_diag(loss(L), PARAMS, x, y), *DATA,
     grad=False)  # fmt: skip
