#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# docs/protocol.md is what the table in wire/messages.h says.
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
