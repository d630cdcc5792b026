#!/bin/sh
# Trains both runs: sh examples/transfer/run.sh [tanren [folder [options of the second run]]]
set -e
here=$(cd "$(dirname "$0")" && pwd)
tanren=${1:-tanren}
runs=${2:-runs}
[ $# -le 2 ] && set -- || shift 2
"$tanren" run "$here/base.toml" --out "$runs/transfer_base"
"$tanren" run "$here/head.toml" --out "$runs/transfer_head" \
  --set model.init_from="$runs/transfer_base" "$@"
