"""A program with mujoco.mjx; `results` are compared with those on JAX."""

import jax
import mujoco
from mujoco import mjx

m = mujoco.MjModel.from_xml_string(
    '<mujoco><worldbody><body pos="0 0 1"><freejoint/><geom size=".1"/></body></worldbody></mujoco>'
)
mx = mjx.put_model(m)
dx = mjx.make_data(mx)
step = jax.jit(mjx.step)
for _ in range(5):
    dx = step(mx, dx)
results = [dx.qpos, dx.qvel]
