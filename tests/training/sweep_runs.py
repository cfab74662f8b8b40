"""Training functions for the tests of sweeps, which other processes import."""

import json
import os
import signal
import time
from pathlib import Path


def parabola(config, folder):
    """A minimum at rate=3; what is at rate=13 fails, at 14 dies, at 15 has no number."""
    rate = config["rate"]
    print(f"rate {rate}")
    with open(Path(folder).parent / "calls.txt", "a") as file:
        file.write(f"{rate}\n")
    if rate == 13:
        raise RuntimeError("diverged\nin the second step")
    if rate == 14:
        os.kill(os.getpid(), signal.SIGKILL)
    if rate == 15:
        return {"loss": float("nan")}
    return {"loss": (rate - 3) ** 2, "model": "parabola", "slot": int(os.environ["SLOT"])}


def writes_metrics(config, folder):
    """Metrics by a file, as the examples leave them; settings may be a dataclass."""
    entries = [{"step": s, "time": 0.0, "eval_loss": config.model.width / s} for s in (1, 2)]
    text = "".join(json.dumps(entry) + "\n" for entry in entries)
    (Path(folder) / "metrics.jsonl").write_text(text)


def waits(config, folder):
    """Says that it runs, and waits to be asked to stop."""

    def stop(*_):
        (Path(folder) / "stopped").write_text("")
        os._exit(0)

    signal.signal(signal.SIGTERM, stop)
    (Path(folder) / "running").write_text(str(os.getpid()))
    time.sleep(60)
