#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The files for Kubernetes are what its schemas allow, with no key that they do not know, and the
# broker's configuration in them loads. The pod without privileges is one that Pod Security "restricted" accepts,
# and the one with a folder of the node is not.
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

restricted="$source/packaging/kubernetes/pod-restricted.yaml"
if python3 -c 'import yaml' 2>/dev/null; then
	python=python3
elif [[ -x $source/.cache/python/bin/python ]]; then
	python=$source/.cache/python/bin/python # which has it for kubernetes-validate
else
	python=
fi
if [[ -n $python ]]; then
	"$python" "$source/tests/pod_security.py" test "$restricted"
	"$python" "$source/tests/pod_security.py" cdi "$source/packaging/share-cdi.json"
	! "$python" "$source/tests/pod_security.py" pod "$source/packaging/kubernetes/pod.yaml" 2>"$scratch/why" ||
		{ echo "a folder of the node is accepted" && exit 1; }
	grep -q "volume socket: hostPath" "$scratch/why"
	# the annotation leads to a device of the file, and the resource to what the plugin offers
	grep -q "share/broker=default" "$restricted"
	grep -q "share/broker: 1" "$restricted"
	grep -A1 -- "--domain" "$source/packaging/kubernetes/device-plugin.yaml" | grep -q -- "- share$"
	grep -q "name: broker$" "$source/packaging/kubernetes/device-plugin.yaml"
fi

validate=$source/.cache/python/bin/kubernetes-validate
if [[ ! -x $validate ]] && ! validate=$(command -v kubernetes-validate); then
	echo "SKIPPED: there is no kubernetes-validate; the configuration loads"
	exit 77
fi
"$validate" --strict "${files[@]}"
sed 's/hostPID:/hostPIDs:/' "${files[0]}" >"$scratch/wrong.yaml"
! "$validate" --strict "$scratch/wrong.yaml" >/dev/null 2>&1 || { echo "it accepts anything"; exit 1; }
