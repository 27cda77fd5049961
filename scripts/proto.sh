#!/bin/sh
# Generate the gRPC stubs in scaler/keda/_pb from proto/externalscaler.proto.
#
#   scripts/proto.sh           write them
#   scripts/proto.sh --check   write nothing; fail if the tree differs (CI)
#
# The generators live in a venv of their own: they are older than what the scaler runs with, so that
# the stubs import at every version pyproject.toml allows.
set -eu
cd "$(dirname "$0")/.."

pins=requirements/proto.txt
venv=.venv-proto
stamp=$venv/pins
stubs=scaler/keda/_pb

if ! cmp -s "$pins" "$stamp"; then
    rm -rf "$venv"
    "${PYTHON:-python3}" -m venv "$venv"
    "$venv/bin/pip" install --quiet --require-hashes --requirement "$pins"
    cp "$pins" "$stamp"
fi

fresh=$(mktemp -d)
trap 'rm -rf "$fresh"' EXIT

# Mapping the include path gives the modules their package, so nothing has to be patched afterwards.
PATH=$venv/bin:$PATH "$venv/bin/python" -m grpc_tools.protoc "-I$stubs=proto" \
    "--python_out=$fresh" "--grpc_python_out=$fresh" \
    "--mypy_out=quiet:$fresh" "--mypy_grpc_out=only_async,quiet:$fresh" \
    "$stubs/externalscaler.proto"
printf '"""Generated from ``proto/externalscaler.proto`` by ``scripts/proto.sh``; only keda may import it."""\n' \
    >"$fresh/$stubs/__init__.py"

if [ "${1:-}" = --check ]; then
    if ! diff -ru --exclude=__pycache__ "$stubs" "$fresh/$stubs"; then
        echo "$stubs is not what proto/externalscaler.proto gives: run scripts/proto.sh" >&2
        exit 1
    fi
    echo "$stubs is current"
else
    cp "$fresh/$stubs"/* "$stubs/"
fi
