#!/bin/sh
# make_venv.sh DIR [PYTHON]: a virtual environment in DIR from the first Python >= 3.11 found.
# Where the standard venv cannot install pip (Debian without python3-venv), virtualenv does it.
set -eu

dir=$1
wanted=${2:-}

usable() {  # a name on PATH may be a wrapper with nothing behind it, so it has to run
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1
}

python=
if [ -n "$wanted" ]; then
    usable "$wanted" && python=$wanted
else
    for name in python3.13 python3.12 python3.11 python3 python; do
        if usable "$name"; then python=$name; break; fi
    done
fi
if [ -z "$python" ]; then
    echo "toile needs Python 3.11 or newer, and found none${wanted:+ at $wanted}." >&2
    echo "Install one, or name one: make PYTHON=/path/to/python3.12 ..." >&2
    exit 1
fi

echo "creating $dir with $("$python" --version) ($("$python" -c 'import sys; print(sys.executable)'))"
if "$python" -c 'import ensurepip, venv' >/dev/null 2>&1 \
        && "$python" -m venv --clear "$dir" >/dev/null 2>&1; then
    exit 0
fi

echo "this Python cannot make environments with pip by itself: using virtualenv"
rm -rf "$dir"
if "$python" -m virtualenv --version >/dev/null 2>&1; then
    exec "$python" -m virtualenv --quiet "$dir"
fi
if ! "$python" -m pip --version >/dev/null 2>&1; then
    echo "neither venv, virtualenv nor pip works in $python: install one of them" >&2
    exit 1
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$python" -m pip install --quiet --disable-pip-version-check --target "$scratch" virtualenv
PYTHONPATH=$scratch "$python" -m virtualenv --quiet "$dir"
