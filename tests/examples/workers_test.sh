#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# workers have one copy of the weights between them, as the kernel counts, and answer correctly, all
# of them though one is killed. Twice on one broker: what was loaded is unloaded at the end.

set -euo pipefail
. "$(dirname "$0")/lib.sh"

# at -O0 and with a sanitizer, a request takes its time
run_example workers 3 2
expect 0 '^workers: ok workers=3 killed=1 requests=12 model=32.0MiB rss=9[67]\.[0-9]MiB pss=3[23]\.[0-9]MiB$'
run_example share-run -- sh -c 'workers 1 1 && workers 2 1'
expect 0 '^workers: ok workers=2 killed=1 requests=4 '

run_example workers 0
expect 1 '^$'
run_example workers --help
expect 0 .
