#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Breaks the rules one after the other, and expects that it is noticed: by the checker, which finds a
# wrong word or somebody who does not get on, or by the tests of that rule. And that nothing is
# noticed where nothing is broken.
#
# usage: mutation_test.sh MUTANTS AGENT STANDIN SANITIZERS
#
# The folder of the built mutants, the agent's program, the folder of the stand-in driver, and what
# all was built with; "none" where there is none.
set -euo pipefail

mutants=$1
standin=$3
sanitizers=$4
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
export SHARE_TEST_BIN=$mutants/bin SHARE_AGENT=$2
unset SHARE_BROKER SHARE_MUTATION

limit=100 # seconds

# With a broken rule it ends when that is noticed, so there may be more.
steps()
{
	echo "$1${SHARE_MUTATION:+0}"
}

host()
{
	"$mutants/share-checker-mutant" --steps "$(steps 30000)" --channels 20 --kill --hang-up "$@"
}

# Long work and short lives: the ones in the middle of a chain are killed. Too slow under a sanitizer
# to get far.
short_lives()
{
	"$mutants/share-checker-mutant" --steps "$(steps 20000)" --channels 0 --kill=15 --pause 20000 --streams 6 \
		--processes 6 "$@"
}

# Mostly channels; those who take part in them die, hang up and come back.
channels()
{
	"$mutants/share-checker-mutant" --steps "$(steps 40000)" --channels 85 --kill=30 --hang-up \
		--processes 5 "$@"
}

# As many streams as there are connections, and more.
gpu()
{
	LD_LIBRARY_PATH=$standin "$mutants/share-checker-mutant" --kind vmm --steps "$(steps 5000)" \
		--channels 0 --kill --hang-up --streams 12 "$@"
}

host_fences()
{
	SHARE_HOST_FENCES=1 LD_LIBRARY_PATH=$standin "$mutants/share-checker-mutant" --kind vmm \
		--steps "$(steps 4000)" "$@"
}

# The tests of a rule, as CTest has them.
of_rules()
{
	case $1 in
	gpu_*) export LD_LIBRARY_PATH=$standin ;;
	esac
	case $1 in
	*magazine*) ;;
	*) export SHARE_MAGAZINES=0 ;;
	esac
	"$mutants/$1-mutant" -j2
}

# Those that were broken on purpose get stuck at once, or not at all.
command_of()
{
	case $1 in
	*_test) echo of_rules "$1" ;;
	*) echo "$1" --stuck-after "$2" ;;
	esac
}

can_run()
{
	case $1 in
	gpu | host_fences) [ "$standin" != none ] ;;
	gpu_*_test) [ "$standin" != none ] && [ -x "$mutants/$1-mutant" ] ;;
	short_lives) [ "$sanitizers" = none ] ;;
	*_test) [ -x "$mutants/$1-mutant" ] ;;
	esac
}

export -f steps host short_lives channels gpu host_fences of_rules
export mutants standin

# run WHO STUCK-AFTER: how it ended is in $code
run()
{
	local start end

	start=$(date +%s%N)
	code=0
	# shellcheck disable=SC2046 # words
	timeout -k 5 "$limit" bash -c '"$@"' - $(command_of "$1" "$2") >"$scratch/log" 2>&1 </dev/null ||
		code=$?
	end=$(date +%s%N)
	ms=$(((end - start) / 1000000))
}

# What was noticed; nothing when it was not, or when something else went wrong.
noticed()
{
	case $code in
	0 | 64 | 77 | 124 | 126 | 127 | 137) ;;
	*) grep -oE '^(WRONG|STUCK|FAILED)|Failing: [1-9][0-9]*|Crashing: [1-9][0-9]*' "$scratch/log" |
		head -n 1 ;;
	esac
}

failures=0
fail()
{
	echo "FAILED: $*"
	# without the words that CTest looks for
	tail -n 30 "$scratch/log" | sed 's/^/    | /; s/BUG:/BUG/; s/Sanitizer/ sanitizer/'
	failures=$((failures + 1))
}

for who in host short_lives channels gpu host_fences poison_test gpu_death_test gpu_streams_test \
	gpu_magazine_test fence_chain_test channel_abandon_test channel_broker_test channel_reuse_test \
	ring_drop_test ring_members_test; do
	if ! can_run $who; then
		printf '%-5s %-32s %-18s %s\n' - "nothing is broken" $who "cannot run here"
		continue
	fi
	run $who 40
	printf '%-5s %-32s %-18s %s\n' - "nothing is broken" $who "$([ $code = 0 ] && echo ok || echo "exit code $code"), $ms ms"
	[ $code = 0 ] || fail "$who without a mutation: exit code $code"
done

while read -r rule mutation who; do
	for w in $who; do
		if ! can_run "$w"; then
			printf '%-5s %-32s %-18s %s\n' "$rule" "$mutation" "$w" "cannot run here"
			continue
		fi
		SHARE_MUTATION=$mutation run "$w" 4
		found=$(noticed || true)
		printf '%-5s %-32s %-18s %s\n' "$rule" "$mutation" "$w" \
			"${found:-NOT NOTICED}, $ms ms"
		[ -n "$found" ] || fail "$mutation was not noticed by $w (exit code $code)"
	done
done <<'MUTATIONS'
1 skip_wait                       host
2 release_without_fence           host
3 hand_over_without_wait          host
4 free_before_fence               host
5 fence_before_signal             host gpu
5 signal_before_work              host
6 drop_leases_at_hang_up          host
6 poison_at_hang_up               host
6 no_poison                       poison_test gpu
6 dead_is_reached                 host
6 trust_the_dying                 gpu_death_test
6 writers_wait_for_the_giver_only short_lives fence_chain_test
7 no_budget                       gpu
8 fallback_does_not_wait          host_fences
8 fallback_skips_wait             gpu
- reuse_busy_timeline             gpu_streams_test
c free_before_ack                 channels
c any_version                     channels
c ignore_ack_fences               channels
c ignore_given_fences             channel_reuse_test
c forget_retained                 channels
c drop_what_was_taken             channels
c left_behind_is_gone             channels
c lose_what_it_had                channels
c redeliver_unmarked              channels
c send_without_looking            channels
c forget_estate                   channels
c forget_departures               channel_broker_test
c abandon_without_keeping         channel_abandon_test
c recycle_abandoned               ring_members_test
c hand_on_what_is_held            ring_leaving_test
c take_what_was_dropped           ring_drop_test
m magazine_without_wait           host gpu_magazine_test
m recycle_shared                  host
m note_first_use_only             gpu_magazine_test
m known_without_order             gpu_magazine_test
m forget_former_life              gpu_magazine_test
MUTATIONS

[ $failures = 0 ] || exit 1
echo "mutation_test: ok"
