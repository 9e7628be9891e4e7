#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The files for Kubernetes are what its schemas allow, with no key that they do not know, and the
# broker's configuration in them loads.
#
# usage: kubernetes_test.sh SOURCE_DIRECTORY

set -euo pipefail

source=${1:?usage: kubernetes_test.sh SOURCE_DIRECTORY}
files=("$source"/packaging/kubernetes/*.yaml)
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

sed -n '/broker\.json: |/,/^---/{/^    /s/^    //p}' "$source/packaging/kubernetes/daemonset.yaml" \
	>"$scratch/broker.json"
"$SHARE_TEST_BIN/share-broker" --check --socket="$scratch/s" --config="$scratch/broker.json"

validate=$source/.cache/python/bin/kubernetes-validate
if [[ ! -x $validate ]] && ! validate=$(command -v kubernetes-validate); then
	echo "SKIPPED: there is no kubernetes-validate; the configuration loads"
	exit 77
fi
"$validate" --strict "${files[@]}"
sed 's/hostPID:/hostPIDs:/' "${files[0]}" >"$scratch/wrong.yaml"
! "$validate" --strict "$scratch/wrong.yaml" >/dev/null 2>&1 || { echo "it accepts anything"; exit 1; }
