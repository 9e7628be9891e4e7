#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# hello says what its parent wrote: with a private broker, and with the one of share-run.

set -euo pipefail
. "$(dirname "$0")/lib.sh"

said='^child [0-9]+ reads: hello from [0-9]+$'
run_example hello
expect 0 "$said"
run_example share-run -- hello
expect 0 "$said"
