#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# workers have one copy of the weights between them, as the kernel counts, and answer correctly.
# Twice on one broker: what was loaded is unloaded at the end.

set -euo pipefail
. "$(dirname "$0")/lib.sh"

# at -O0 and with a sanitizer, a request takes its time
run_example workers --workers 3 --rounds 2
expect 0 '^workers: ok workers=3 requests=6 model=32.0MiB rss=9[67]\.[0-9]MiB pss=3[23]\.[0-9]MiB$'
run_example share-run -- sh -c 'workers --workers 1 --rounds 1 && workers --workers 2 --rounds 1'
expect 0 '^workers: ok workers=2 requests=2 '
