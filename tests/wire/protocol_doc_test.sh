#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# docs/protocol.md is what the table in wire/messages.h says, and explains every enum and struct that it
# speaks of.
#
# usage: protocol_doc_test.sh SHARE-PROTOCOL-DOC [ROOT]

set -euo pipefail

generator=${1:?usage: protocol_doc_test.sh SHARE-PROTOCOL-DOC [ROOT]}
root=${2:-${SHARE_TEST_SOURCE:-$(dirname "$0")/../..}}

if ! diff -u --label docs/protocol.md --label wire/messages.h \
	"$root/docs/protocol.md" <("$generator"); then
	echo "docs/protocol.md is out of date: build the target protocol-doc"
	exit 1
fi

missing=$(grep -o '\(enum\|struct\) [a-z_]*' "$root/docs/protocol.md" | sort -u | while read -r type; do
	grep -q "^### $type\$" "$root/docs/protocol.md" || echo "$type"
done)
if [[ $missing ]]; then
	echo "docs/protocol.md does not say what these are:"
	echo "$missing"
	exit 1
fi
