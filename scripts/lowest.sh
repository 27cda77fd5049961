#!/bin/sh
# Prove that the stubs import and answer at the lowest gRPC and protobuf that pyproject.toml allows.
#
# Stubs refuse a runtime older than their generator, and only at import: without this the mistake
# shows first in somebody's production. The newest versions are what every other test runs with.
set -eu
cd "$(dirname "$0")/.."

venv=.venv-lowest
python=${PYTHON:-python3}
lowest=$("$python" - <<'EOF'
import re, tomllib
with open("pyproject.toml", "rb") as file:
    dependencies = tomllib.load(file)["project"]["dependencies"]
ranges = [re.fullmatch(r"((?:grpcio|protobuf)[a-z-]*)>=([0-9.]+)", d) for d in dependencies]
print(" ".join(f"{m[1]}=={m[2]}" for m in ranges if m))
EOF
)

if [ "$(cat "$venv/lowest" 2>/dev/null)" != "$lowest" ]; then
    rm -rf "$venv"
    "$python" -m venv "$venv"
    # shellcheck disable=SC2086 # one word a requirement
    "$venv/bin/pip" install --quiet --only-binary=:all: $lowest
    echo "$lowest" >"$venv/lowest"
fi
PYTHONPATH=. "$venv/bin/python" -W error tests/keda/lowest.py
