"""`python -m tests.drawn arrays --count 1000 --seed 3`: runs cases and prints what is wrong."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
import traceback

os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 "
                      "--xla_llvm_disable_expensive_passes=true "
                      "--xla_cpu_parallel_codegen_split_count=1")
for name, value in (("JAX_PLATFORMS", "cpu"), ("TOILE_OPTIMIZE", "0"), ("TOILE_PLANS", "off"),
                    ("TOILE_DEBUG", "verify")):
    os.environ.setdefault(name, value)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("subject")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", default="", help="a family of the subject")
    parser.add_argument("--alone", action="store_true", help="without JAX")
    parser.add_argument("--shapes", action="store_true", help="only compare shapes and dtypes")
    parser.add_argument("--index", type=int, default=None, help="one case")
    args = parser.parse_args()
    import jax

    from tests.drawn import calls

    subject = importlib.import_module(f"tests.drawn.{args.subject}")
    indices = range(args.count) if args.index is None else [args.index]
    failed, start = 0, time.time()
    for i in indices:
        family, found = "?", []
        try:
            family, case = subject.draw(args.seed, i, args.only)
            examine = calls.examine_shapes if args.shapes else (
                calls.examine_alone if args.alone else subject.examine)
            found = examine(case)
        except Exception:
            found = ["broken: " + traceback.format_exc(limit=-6)]
            case = locals().get("case")
        if i % 100 == 99:
            jax.clear_caches()
        if found:
            failed += 1
            print(f"[{i}] {family}: {case}")
            for line in found:
                print(f"      {line}")
            sys.stdout.flush()
    print(f"{len(indices)} cases, {failed} failed, {time.time() - start:.0f} s")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
