#!/usr/bin/env bash
# Repeats the results in this folder: `bench/runs/2026-11-adaptsize-model/run.sh FOLDER-OF-TRACES`.
# Takes a few minutes; nothing in it depends on the machine or its load.
set -euo pipefail
traces=$1
out=$(cd "$(dirname "$0")" && pwd)
cd "$out/../../.."
cargo build --release -p edgeward-sim --example adaptsize_model
tool=${CARGO_TARGET_DIR:-target}/release/examples/adaptsize_model
MiB=$((1 << 20))
for what in curve tuner; do
	: >"$out/$what.csv"
	: >"$out/$what.txt"
	while read -r trace capacities; do
		# shellcheck disable=SC2086 # a list
		"$tool" "$what" "$traces/$trace.tr.zst" $capacities 2>>"$out/$what.txt" |
			if [ -s "$out/$what.csv" ]; then tail -n +2; else cat; fi >>"$out/$what.csv"
	done <<-END
		akamai-w-web $((256 * MiB)) $((2048 * MiB)) $((16384 * MiB))
		akamai-tc0-download $((256 * MiB)) $((2048 * MiB)) $((32768 * MiB))
		akamai-v-video $((4096 * MiB)) $((65536 * MiB)) $((524288 * MiB))
	END
done
