#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The broker's own list of system calls (broker/life/confine.c) is part of the unit's: what runs under one
# runs under the other. Skipped without systemd-analyze, which knows what is in the unit's sets.
#
# usage: unit_filter_test.sh ROOT

set -euo pipefail

root=$1
unit=$root/packaging/share-broker.service.in
command -v systemd-analyze >/dev/null || { echo "no systemd-analyze here" && exit 77; }
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

members()
{
	systemd-analyze syscall-filter "$1" | sed '1d;s/^ *//;/^#/d;/^$/d' | while read -r name; do
		case $name in
		@*) members "$name" ;;
		*) echo "$name" ;;
		esac
	done
}

sed -n 's/^SystemCallFilter=//p' "$unit" | tr ' ' '\n' | while read -r set; do members "$set"; done |
	sort -u >"$scratch/unit"
grep -o 'CALL([a-z0-9_]*)' "$root/broker/life/confine.c" | sed 's/CALL(//;s/)//;/^name$/d' | sort -u \
	>"$scratch/broker"
for list in unit broker; do
	[[ $(wc -l <"$scratch/$list") -gt 100 ]] || { echo "the list of the $list was not understood" && exit 1; }
done
comm -13 "$scratch/unit" "$scratch/broker" >"$scratch/beyond"
if [[ -s $scratch/beyond ]]; then
	echo "the unit refuses what the broker allows itself:"
	cat "$scratch/beyond"
	exit 1
fi
grep -q '^RestrictAddressFamilies=AF_UNIX$' "$unit" || { echo "the unit allows other sockets" && exit 1; }
echo "what the broker allows itself the unit allows"
