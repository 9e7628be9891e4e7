#!/bin/sh
# SPDX-License-Identifier: MIT

# waits.sh COMPILER INCLUDE: the functions of the public headers that take a time limit, as a list in C.

set -eu

printf '#include <share/admin.h>\n#include <share/service.h>\n' | "$1" -E -P -I "$2" -x c - | tr -s ' \n\t' '   ' | tr ';' '\n' |
	sed -nE 's/^.*[ *](share_[a-z_]+)\([^()]*(\([^()]*\)\([^()]*\)[^()]*)*int timeout_ms.*/\tX(\1)/p' |
	{
		printf '#define TIME_LIMITS(X) \\\n'
		sed 's/$/ \\/'
		echo
	}
