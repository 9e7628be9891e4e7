#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The rooms of the house and who may enter which:
#
#   base                    knows nothing of ours; wire, pages, memory -> base; ring -> pages, base
#   broker, agent, libshare -> base, wire, pages, memory; libshare alone -> ring
#   tools, bridge, examples, bench, python  -> <share/...> and themselves; bench also those below, for its
#              floors, and bridge memory and base, for copies that go on beside it
#   docs                    -> wire, pages and memory, whose tables it prints
#   include/share           -> <share/...>
#   tests                   -> everything; nothing -> tests
#
# Large rooms have sub-rooms, from below to above, as knows() has them: each may include headers of
# those that are named beside it, and no others. A header that lies in the room itself is for all of
# it and below it ("broker/*.h"), a source there is above all ("broker/*.c"). From outside only such
# headers are included. And of the headers of those that it may include, a sub-room includes what
# faces() has, and nothing else. These have at most 100 lines each; and what a sub-room's files alone
# know of each other is in one header, inside.h.
#
# And four things that one room (or file) only knows: libevent the broker (and the exporter, which serves
# HTTP with it, and the bridge), SCM_RIGHTS wire/packet.c, mappings of what other processes have as
# well base/mapping.c (and the benchmarks and examples), CUDA memory/cuda, the examples and
# bench/driver*; and libshare, which programs with more rights than who has started them link as
# well, reads the environment by secure_getenv(). Tests are free to play a hostile peer or an event
# loop, so these four are not asked of them. Comments may say anything.
#
# The rules are first tried on a tree that breaks each of them: a rule that finds nothing there
# would find nothing here.
#
# usage: rooms_test.sh [ROOT]             says what is not as it should be
#        rooms_test.sh --arrows [ROOT]    says which sub-rooms know one above, and by how many includes

set -euo pipefail

rooms="agent base bench bridge broker docs examples include libshare memory pages python ring tests tools wire"

# The rooms whose headers a room may include.
neighbours()
{
	case $1 in
	libshare) echo "libshare base wire pages ring memory" ;;
	broker | agent) echo "$1 base wire pages memory" ;;
	ring) echo "ring base pages" ;;
	wire | pages) echo "$1 base" ;;
	memory) echo "memory base" ;;
	base | tools | examples | python) echo "$1" ;;
	bridge) echo "bridge base memory" ;;
	bench) echo "bench base wire pages memory" ;;
	docs) echo "docs base wire pages memory" ;;
	tests) echo "$rooms" ;;
	include) ;;
	esac
}

# The sub-rooms whose headers a sub-room may include, beside its own.
knows()
{
	case $1 in
	'broker/*.h') echo "broker/config broker/log broker/journal broker/keeper" ;;
	broker/journal | broker/keeper) echo "broker/log" ;;
	broker/log) echo "broker/config" ;;
	broker/client) echo "broker/*.h broker/config broker/log broker/journal broker/keeper" ;;
	broker/monitor) echo "broker/*.h broker/config broker/client" ;;
	broker/device) echo "broker/*.h broker/log broker/client broker/journal broker/keeper" ;;
	broker/memory) echo "broker/suballocator broker/*.h broker/config broker/log broker/client broker/monitor broker/device broker/journal broker/keeper" ;;
	broker/buffer) echo "broker/suballocator broker/*.h broker/config broker/log broker/client broker/monitor broker/device broker/memory broker/journal broker/keeper" ;;
	broker/channel) echo "broker/suballocator broker/*.h broker/config broker/log broker/client broker/monitor broker/device broker/memory broker/buffer broker/journal broker/keeper" ;;
	broker/names) echo "broker/*.h broker/config broker/log broker/client broker/monitor broker/memory broker/buffer broker/journal broker/keeper" ;;
	broker/request)
		echo "broker/*.h broker/config broker/client broker/journal broker/keeper broker/device broker/memory broker/channel broker/names"
		;;
	broker/report)
		echo "broker/*.h broker/journal broker/keeper broker/client broker/device broker/memory broker/buffer broker/channel broker/names"
		;;
	'broker/*.c')
		echo "broker/*.h broker/config broker/log broker/journal broker/keeper broker/client broker/monitor broker/device"
		echo "broker/memory broker/buffer broker/channel broker/names broker/request broker/report"
		;;
	libshare/order) echo "libshare/client" ;;
	libshare/buffer) echo "libshare/client libshare/order" ;;
	libshare/channel) echo "libshare/client libshare/order libshare/buffer" ;;
	'libshare/*.c') echo "libshare/client libshare/order libshare/buffer libshare/channel" ;;
	libshare/service) echo "libshare/client libshare/buffer libshare/channel" ;;
	memory/host | memory/cuda | 'memory/*.c') echo "memory/*.h" ;;
	esac
}

# The headers of a sub-room that others may include: its face. What else it has is for itself. Where
# nothing is said, all are.
faces()
{
	case $1 in
	libshare/client) echo "client dispatch error inspect operation range room rpc" ;;
	libshare/order) echo "gpu_late order" ;;
	libshare/buffer) echo "buffer segment uses" ;;
	libshare/channel) echo "channel" ;;
	libshare/service) echo "" ;; # nobody needs one
	broker/log) echo "log" ;;
	broker/journal) echo "generations journal record_types" ;;
	broker/keeper) echo "keeper kept" ;;
	broker/config) echo "access change config reader right size text" ;;
	broker/client) echo "account client clients closer connection conversation deferred peer records request turns wait" ;;
	broker/monitor) echo "monitor" ;;
	broker/device) echo "agent choice device ipc_event" ;;
	broker/memory) echo "client_memory fence memory pool pool_user pools records reuse segment trim" ;;
	broker/suballocator) echo "block suballocator" ;;
	broker/buffer) echo "buffer grant lease records scrub" ;;
	broker/names) echo "names name token" ;;
	broker/channel) echo "channel" ;;
	broker/request) echo "dispatch" ;;
	broker/report) echo "report" ;;
	*) echo "*" ;;
	esac
}

# FILE without comments, line by line as it was.
code_of()
{
	awk '{
		line = $0
		out = ""
		while (line != "") {
			if (comment) {
				end = index(line, "*/")
				if (!end)
					break
				line = substr(line, end + 2)
				comment = 0
			} else {
				start = index(line, "/*")
				slashes = index(line, "//")
				if (slashes && (!start || slashes < start)) {
					out = out substr(line, 1, slashes - 1)
					break
				}
				if (!start) {
					out = out line
					break
				}
				out = out substr(line, 1, start - 1) " "
				line = substr(line, start + 2)
				comment = 1
			}
		}
		print out
	}' "$1"
}

# Each line of stdin that matches $3 becomes an offence of file $1: "$2".
offences()
{
	grep -nE "$3" | while IFS=: read -r line text; do
		echo "$1:$line: $2: $text"
	done || true
}

# Each call of mmap() in FILE that is for more than private memory of zeros, on a line of its own.
shared_mappings()
{
	grep -qw mmap "$1" || return 0
	code_of "$1" | tr '\n' ' ' | { grep -oE '\bmmap *\([^;]*' || true; } |
		sed -E '/MAP_PRIVATE[^,]*MAP_ANONYMOUS/d'
}

includes()
{
	sed -nE 's/^[[:space:]]*#[[:space:]]*include[[:space:]]*([<"][^>"]*[>"]).*/\1/p'
}

check_includes()
{
	local file=$1 room=$2 header of inner

	code_of "$file" | includes | while read -r header; do
		of=${header#[<\"]}
		of=${of%[>\"]}
		case $of in
		../* | */../*) echo "$file: $header climbs out of its room" ;;
		share/*) [[ $header == \<* ]] || echo "$file: $header is an installed header: <$of>" ;;
		event2/* | event.h | evutil.h)
			[[ $room == broker || $room == bridge || $room == examples || $room == tests || $file == tools/exporter/* ]] ||
				echo "$file: $header: only the broker, the bridge and the exporter know libevent"
			;;
		*/*)
			of=${of%%/*}
			inner=${header:1:-1}
			if [[ $inner == memory/*/* && $room != memory && $room != tests && $file != bench/driver* ]] ||
				[[ ($inner == broker/*/* || $inner == libshare/*/*) && $room != "$of" && $room != tests ]]; then
				echo "$file: $header is inside of $of"
			elif [[ " $rooms " == *" $of "* && " $(neighbours "$room") " != *" $of "* ]]; then
				echo "$file: $header: $room does not know $of"
			elif [[ $header == \"* && " $rooms " != *" $of "* ]]; then
				echo "$file: $header: there is no such room"
			elif [[ $header == \<* && " $rooms " == *" $of "* ]]; then
				echo "$file: $header is not installed: \"${header:1:-1}\""
			fi
			;;
		*)
			# examples are installed, and built where there is no such root
			[[ $header == \<* || $room == examples ]] ||
				echo "$file: $header: includes start at the root"
			;;
		esac
	done
}

# FROM TO FILE HEADER of each include from one sub-room into another that its table does not name.
find_arrows()
{
	local file header from to known

	find broker/ libshare/ memory/ -name '*.[ch]' | sort | while read -r file; do
		sub_room "$file"
		from=$of known=" $(knows "$of" | tr '\n' ' ')"
		while read -r header; do
			header=${header:1:-1}
			sub_room "$header"
			to=$of
			[[ -z $to || $from == "$to" || ${from%%/*} != "${to%%/*}" || $known == *" $to "* ]] ||
				echo "$from $to $file $header"
		done < <(code_of "$file" | includes)
	done
}

# Includes of what another sub-room has for itself.
check_faces()
{
	local file header from to face

	find broker/ libshare/ memory/ -name '*.[ch]' | sort | while read -r file; do
		sub_room "$file"
		from=$of
		while read -r header; do
			header=${header:1:-1}
			sub_room "$header"
			to=$of
			[[ -n $to && $from != "$to" && ${from%%/*} == "${to%%/*}" ]] || continue
			set -f
			face=" $(faces "$to") "
			set +f
			header=${header##*/}
			[[ $face == " * " || $face == *" ${header%.h} "* ]] ||
				echo "$file: \"$to/$header\" is $to's own"
		done < <(code_of "$file" | includes)
	done
}

# Faces that are too long to be read at once, and rooms with an inside beside inside.h.
check_size()
{
	local sub_room face lines header

	for sub_room in broker/*/ libshare/*/; do
		[[ -d $sub_room ]] || continue
		set -f
		for face in $(faces "${sub_room%/}"); do
			face=$sub_room$face.h
			[[ -f $face ]] || continue
			lines=$(wc -l <"$face")
			((lines <= 100)) || echo "$face: $lines lines; a face has at most 100"
		done
		set +f
		for header in "$sub_room"*_inside.h; do
			[[ ! -f $header ]] || echo "$header: a sub-room has one inside, inside.h"
		done
	done
}

# Sets `of` to the sub-room of a file or header; to nothing where there are none.
sub_room()
{
	case $1 in
	broker/*/* | libshare/*/* | memory/*/*) of=${1%/*} ;;
	broker/* | libshare/* | memory/*) of="${1%%/*}/*.${1##*.}" ;;
	*) of= ;;
	esac
}

# FROM TO NUMBER of what find_arrows() says.
count_arrows()
{
	cut -d' ' -f1,2 | sort | uniq -c | awk '{ print $2, $3, $1 }'
}

# Includes between sub-rooms that the table does not name.
check_sub_rooms()
{
	local from to file header

	find_arrows | while read -r from to file header; do
		echo "$file: \"$header\": $from does not know $to"
	done
}

# Prints every offence in the tree.
check()
{
	local file room

	cd "$1"
	for room in $rooms; do
		[[ -d $room ]] || continue
		find "$room/" -type f \( -name '*.[ch]' -o -name '*.cc' -o -name '*.cpp' \
			-o -name '*.hpp' -o -name '*.cu' -o -name '*.cuh' -o -name '*.in' \) |
			sort | while read -r file; do
			check_includes "$file" "$room"
			[[ $room == tests ]] && continue
			[[ $file == wire/packet.c ]] ||
				code_of "$file" |
				offences "$file" "only wire/packet.c passes descriptors" '\bSCM_RIGHTS\b'
			[[ $room != libshare ]] ||
				code_of "$file" |
				offences "$file" "the environment may be a stranger's: secure_getenv()" \
					'(^|[^_[:alnum:]])getenv *\('
			[[ $file == base/mapping.c || $room == bench || $room == examples ]] ||
				shared_mappings "$file" |
				offences "$file" "only base/mapping.c maps what others have as well" 'mmap'
			[[ $file == memory/cuda/* || $room == examples || $file == bench/driver* ]] && continue
			# a text may name what the code must not call
			code_of "$file" | sed '/# *include/!s/"[^"]*"/""/g' |
				offences "$file" "only memory/cuda, examples and bench/driver* know CUDA" \
					'include *[<"](cuda|nvml)|\b(cu|cuda)[A-Z][A-Za-z0-9]+\b|\bCU[a-z_][A-Za-z0-9_]*\b'
			# the doctor asks NVML, without a broker and an agent, what may be wrong with them
			[[ $file != tools/doctor/gpus.c ]] || continue
			code_of "$file" |
				offences "$file" "only memory/cuda, examples and the doctor load drivers" '"lib(cuda|nvidia)'
		done
	done
	check_sub_rooms
	check_faces
	check_size
}

# A tree with an offence in each file called bad* and in the face of broker/log, which is too long,
# and none in the others.
make_offences()
{
	mkdir -p include/share agent base bench broker/{client,config,log} docs examples libshare/{client,order}
	mkdir -p memory/{cuda,host} pages python ring tests tools wire
	echo '#include "wire/wire.h"' | tee memory/bad.c tools/bad.c examples/bad.c python/bad.c >include/share/bad.h
	echo '#include "memory/kind.h"' | tee wire/bad1.c tools/bad3.c python/bad2.c >/dev/null
	echo '#include "broker/config/text.h"' | tee wire/bad2.c libshare/bad1.c agent/bad1.c docs/bad.c >/dev/null
	echo '#include "libshare/client/client.h"' | tee broker/bad1.c bench/bad2.c tools/bad2.c >/dev/null
	echo '#include "tests/tree.h"' | tee broker/bad2.c examples/bad2.c >/dev/null
	echo '#include <event2/event.h>' | tee libshare/bad2.c wire/bad3.c agent/bad2.c >/dev/null
	echo '#include <wire/wire.h>' >broker/bad3.c
	echo '#include "../wire/wire.h"' >broker/bad4.c
	echo '#include "wire.h"' >wire/bad4.c
	echo '#include "share/share.h"' >broker/bad5.c
	echo 'int type = SCM_RIGHTS; /* why */' >wire/bad5.c
	echo '#include <cuda.h>' | tee agent/bad3.c >python/bad3.c
	echo 'int r = cuInit(0);' >libshare/bad3.c
	echo '/* a */ CUstream s; /* b */' >broker/bad6.c
	echo 'dlopen("libcuda.so.1", RTLD_NOW);' >wire/bad6.c

	echo 'path = getenv("PATH");' >libshare/bad4.c
	echo '#include "broker/broker.h"' >agent/bad4.c
	echo '#include "memory/cuda/driver.h"' | tee libshare/bad5.c bench/bad4.c >memory/host/bad.c
	echo '#include "broker/client/client.h"' | tee broker/config/bad.c >broker/log/bad.c
	echo '#include "broker/names/name.h"' >broker/client/bad.c
	echo '#include "libshare/order/order.h"' >libshare/client/bad.c
	echo '#include "libshare/client/inside.h"' >libshare/order/bad.c
	echo 'int r = cuInit(0);' >memory/bad2.c
	echo 'int inner;' >broker/client/bad_inside.h

	echo 'p = mmap(NULL, 1, PROT_READ, MAP_SHARED, fd, 0);' | tee libshare/bad6.c >broker/log/bad2.c
	echo 'p = mmap(NULL, 1, PROT_READ, MAP_PRIVATE, fd, 0);' >base/bad.c

	echo 'path = secure_getenv("PATH");' >libshare/good.c
	printf '%s\n' 'p = mmap(NULL, 1,' 'PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);' >libshare/good2.c
	echo 'p = mmap(NULL, 1, PROT_READ, MAP_SHARED, fd, 0);' | tee base/mapping.c >bench/good3.c
	echo 'path = getenv("PATH");' >broker/good4.c
	printf '%s\n' '#include <share/share.h>' '#include <stdio.h>' '#include <sys/types.h>' |
		tee tools/good.c examples/good.c bench/good.c broker/good.c python/good.c >/dev/null
	printf '%s\n' '#include <event2/event.h>' '#include "wire/wire.h"' '#include "memory/kind.h"' \
		>broker/good2.c
	printf '%s\n' '/*' ' * SCM_RIGHTS is passed by others, cuInit() called by others.' ' */' \
		'// #include <cuda.h>' 'int cursor, custom, CURRENT;' >broker/good3.c
	printf '%s\n' '#include <cuda.h>' 'CUresult r;' 'void *cuInit;' | tee memory/cuda/good.c >examples/good2.c
	printf '%s\n' '#include "broker/config/text.h"' 'SCM_RIGHTS' >tests/good.c
	echo 'SCM_RIGHTS' >wire/packet.c
	printf '%s\n' '#include "wire/wire.h"' '#include "memory/kind.h"' >bench/good2.c
	echo '#include "memory/cuda/driver.h"' >bench/driver_good.c
	printf '%s\n' '#include "broker/broker.h"' '#include "broker/log/log.h"' >broker/client/good.c
	printf '%s\n' '#include "libshare/client/client.h"' '#include "libshare/order/inside.h"' >libshare/order/good.c
	yes 'int line;' 2>/dev/null | head -101 >broker/log/log.h || true
	head -100 broker/log/log.h >broker/client/client.h
	cp broker/log/log.h broker/log/sink.h
	echo 'CUresult r;' | tee bench/bad3.c bench/driver_stream.c >bench/driver.c
}

only_arrows=
[[ ${1-} != --arrows ]] || { only_arrows=yes && shift; }
root=$(cd "${1:-$(dirname "$0")/..}" && pwd)
if [[ $only_arrows ]]; then
	cd "$root" && find_arrows | count_arrows
	exit
fi
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

(cd "$scratch" && make_offences)
if ! diff <(cd "$scratch" && find . -name 'bad*' -o -path ./broker/log/log.h | sed 's|^\./||' | sort) \
	<(check "$scratch" | cut -d: -f1 | sort); then
	echo "the rules do not find what they are for (<: missed, >: found for nothing)"
	exit 1
fi

check "$root" >"$scratch/offences"
if [[ -s $scratch/offences ]]; then
	cat "$scratch/offences"
	exit 1
fi
echo "every room keeps to itself"
