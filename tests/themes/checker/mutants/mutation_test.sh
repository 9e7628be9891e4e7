#!/bin/bash
# SPDX-License-Identifier: MIT
#
# Breaks the rules, four at a time, and expects that it is noticed: by the checker, which finds a wrong
# word or somebody who does not get on, or by a test of that rule. And that nothing is noticed where
# nothing is broken: by the checker, and by those tests that have failed, each once. (That all the
# others pass, too, says CTest.)
#
# usage: mutation_test.sh MUTANTS AGENT STANDIN
#
# The folder of the built mutants, the agent's program, and the folder of the stand-in driver ("none"
# where there is none).
set -euo pipefail

mutants=$1
standin=$3
whole=$(mktemp -d)
trap 'rm -rf "$whole"' EXIT
at_once=4 # each waits three quarters of its time
export SHARE_TEST_BIN=$mutants/bin SHARE_AGENT=$2
unset SHARE_BROKER SHARE_MUTATION

# Seconds until one that was broken on purpose has to be noticed. A rule breaks only where processes
# meet just so; with another seed they meet otherwise, so there are many short attempts.
limit=600
attempt=6
# So long the test of a rule that was broken waits for what does not come true any more.
patience_ms=10000

checker()
{
	"$mutants/share-checker-mutant" "$@" ${SHARE_MUTATION:+--steps 0 --seconds "$attempt"}
}

host()
{
	checker --steps 8000 --channels 20 --kill --hang-up "$@"
}

# Long work and short lives: the ones in the middle of a chain are killed, or hang up and live on.
short_lives()
{
	checker --steps 5000 --channels 0 --kill=15 --hang-up --pause 20000 --streams 6 --processes 6 "$@"
}

# Mostly channels; those who take part in them die, hang up and come back.
channels()
{
	checker --steps 10000 --channels 85 --kill=30 --hang-up --processes 5 "$@"
}

# Many more streams than there are connections, and work so long that many of them wait at once.
gpu()
{
	CUDA_DEVICE_MAX_CONNECTIONS=4 LD_LIBRARY_PATH=$standin checker --kind vmm --steps 3000 \
		--channels 0 --kill --hang-up --streams 24 --pause 20000 "$@"
}

host_fences()
{
	SHARE_HOST_FENCES=1 LD_LIBRARY_PATH=$standin checker --kind vmm --steps 3000 "$@"
}

# The tests of a rule, as CTest has them: of_rules PROGRAM [ARGUMENT...]
of_rules()
{
	case $1 in
	gpu_* | legacy_test | pinned_test) export LD_LIBRARY_PATH=$standin ;;
	esac
	case $1 in
	*magazine* | channel_*) ;;
	*) export SHARE_MAGAZINES=0 ;;
	esac
	[ -z "${SHARE_MUTATION:-}" ] || export SHARE_TEST_LIMIT_MS=$patience_ms
	"$mutants/$1-mutant" "${@:2}"
}

can_run()
{
	case $1 in
	gpu | host_fences) [ "$standin" != none ] ;;
	gpu_*_test | legacy_test | pinned_test) [ "$standin" != none ] && [ -x "$mutants/$1-mutant" ] ;;
	*_test) [ -x "$mutants/$1-mutant" ] ;;
	esac
}

export -f checker host short_lives channels gpu host_fences of_rules
export mutants standin attempt patience_ms

# run SECONDS COMMAND...: how it ended is in $code, what it said in $scratch/log
run()
{
	local seconds=$1
	shift

	code=0
	timeout -k 5 "$seconds" bash -c '"$@"' - "$@" >"$scratch/log" 2>&1 </dev/null || code=$?
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

# notice WHO [TEST]: again and again, until it is or the time is over. Who was broken gets stuck at once,
# or not at all.
notice()
{
	local end=$((SECONDS + limit)) seed=1

	found=
	while [ -z "$found" ] && [ "$SECONDS" -lt "$end" ]; do
		case $1 in
		*_test) run "$limit" of_rules "$1" --fail-fast ${2:+--filter "*/$2"} ;;
		*) run $((attempt + 30)) "$1" --stuck-after 4 --seed $seed ;;
		esac
		found=$(noticed || true)
		seed=$((seed + 1))
	done
}

# row RULE MUTATION WHO RESULT
row()
{
	printf '%-5s %-32s %-20s %s\n' "$@"
}

# fail WORDS...: ends this job
fail()
{
	echo "FAILED: $*"
	# without the words that CTest looks for
	tail -n 30 "$scratch/log" | sed 's/^/    | /; s/BUG:/BUG/; s/Sanitizer/ sanitizer/'
	exit 1
}

# unbroken WHO
unbroken()
{
	run "$limit" "$1"
	[ $code = 0 ] || fail "$1 without a mutation: exit code $code"
	row - "nothing is broken" "$1" "ok, $SECONDS s"
}

# broken WHO RULE MUTATION [TEST]
broken()
{
	local test

	SHARE_MUTATION=$3 notice "$1" "${4:-}"
	row "$2" "$3" "$1" "${found:-NOT NOTICED}, $SECONDS s"
	[ -n "$found" ] || fail "$3 was not noticed by $1 (exit code $code)"
	[[ $1 == *_test ]] || return 0
	# that test, and no other, when nothing is broken
	test=$(sed -nE 's/^(\[FAIL\] |.* The test `)([a-z0-9_]+)::([a-z0-9_]+).*/\2\/\3/p' "$scratch/log" |
		head -n 1)
	[ -n "$test" ] || fail "$1 does not say which of its tests noticed $3"
	mkdir "$whole/$1:${test/\//:}" 2>/dev/null || return 0 # as somebody else looks, or has looked
	run "$limit" of_rules "$1" --filter "$test"
	if [ $code != 0 ] || ! grep -qE 'Tested: [1-9]' "$scratch/log"; then
		fail "$1 $test without a mutation: exit code $code"
	fi
}

# job FUNCTION WHO ARGUMENT...: beside others. How it ends is in a file, with what it says.
jobs=0
job()
{
	if ! can_run "$2"; then
		row "${3:--}" "${4:-nothing is broken}" "$2" "cannot run here"
		return
	fi
	while [ "$(jobs -rp | wc -l)" -ge $at_once ]; do
		wait -n || true
	done
	jobs=$((jobs + 1))
	scratch=$whole/$jobs
	mkdir "$scratch"
	(
		SECONDS=0
		("$@") >"$scratch/said" 2>&1 && touch "$scratch/ok"
		cat "$scratch/said"
	) &
}

for who in host short_lives channels gpu host_fences; do
	job unbroken $who
done
# The first two may take longest: one ends by its test's own limit, one takes some luck. PROGRAM:TEST is
# that test alone, where the others take long.
while read -r rule mutation who; do
	for w in $who; do
		[[ $w == *:* ]] || w=$w:
		job broken "${w%%:*}" "$rule" "$mutation" "${w#*:}"
	done
done <<'MUTATIONS'
k late_is_forgotten               kept_test
6 writers_wait_for_the_giver_only fence_chain_test
1 skip_wait                       host
2 release_without_fence           host
3 hand_over_without_wait          host
4 free_before_fence               host
5 fence_before_signal             host gpu
5 signal_before_work              host
6 drop_leases_at_hang_up          host
6 poison_at_hang_up               short_lives
6 no_poison                       poison_test gpu
6 dead_is_reached                 host
6 trust_the_dying                 gpu_death_test
7 no_budget                       gpu gpu_budget_test
8 fallback_does_not_wait          host_fences
8 fallback_skips_wait             gpu
- reuse_busy_timeline             gpu_streams_test
- lost_is_handed_out              legacy_test
- lost_is_good                    legacy_test
l limit_of_the_device             pinned_test
- given_up_is_kept                gpu_adopt_plain_test
c free_before_ack                 channels
c any_version                     ring_plain_test channels
c ignore_ack_fences               channels
c ignore_given_fences             channel_reuse_test
c forget_retained                 channel_reuse_test
c drop_what_was_taken             channels
c left_behind_is_gone             channels
c lose_what_it_had                channels
c redeliver_unmarked              channels
c send_without_looking            channels
c take_nothing                    channels
c end_too_early                   channel_broker_test
c do_not_wait                     channel_broker_test
c give_row_away                   channel_rows_test
c abandon_without_keeping         channel_abandon_test
c recycle_abandoned               ring_members_test
c hand_on_what_is_held            ring_leaving_test
c stops_counting_twice            ring_leaving_test channels
c send_to_who_has_left            ring_leaving_test channels
c drop_though_somebody_is_there   ring_deserted_test channels
c hide_what_was_dropped           ring_deserted_test channels
c end_before_the_last             ring_end_test
c end_without_asking              channel_end_test
c end_without_hazards             hazard_test
c drop_in_vain                    ring_several_test ring_several_queue_test
c load_ends_with_ack              ring_several_direct_test
c load_of_who_was_before          ring_several_direct_test
c take_what_was_dropped           ring_drop_test ring_run_test
c acknowledge_unseen              ring_run_test
c pass_over_what_was_taken        ring_latest_test
c take_what_was_passed_over       ring_latest_test
c keep_what_is_older              ring_latest_test
c make_no_orphans                 channel_orphan_test
c mark_what_was_not_taken         channel_orphan_test
c forget_acknowledged             channel_orphan_test
c lane_again                      channel_orphan_test
c end_early                       channel_orphan_test
c slot_is_the_owner               orphan_hostile_test
c copy_of_no_lane                 ring_copies_test
c data_after_ticket               ring_far_test
c acknowledge_further_last        ring_several_test ring_several_direct_test ring_several_queue_test
c forget_further_retained         ring_several_test ring_several_direct_test channel_several_test
c passed_is_nonsense              ring_several_test
c ack_behind_work                 service_several_test
c further_is_a_message            ring_several_queue_test channel_several_queue_test
c first_buffer_alone              channel_several_queue_test
c keep_further_of_rejected        channel_several_queue_test
c mark_after_return               ring_copies_test
c rejected_is_acknowledged        ring_reject_test channels
c heed_old_rejection              ring_reject_test
c heed_who_has_refused            ring_reject_test
c give_back_to_who_rejected       ring_reject_test
c send_before_what_was_rejected   ring_reject_test
c reject_at_once                  channel_reject_test
c free_what_was_rejected          channel_broker_test
c note_rejected                   orphan_hostile_test
c trust_old_holes                 row_looks_test
w rest_unannounced                idle_test
r reclaim_without_order           reclaim_test
r reclaim_before_messages         reclaim_test
m magazine_without_wait           host gpu_magazine_test
m recycle_shared                  host
m note_first_use_only             gpu_magazine_test
m known_without_order             gpu_magazine_test
m forget_former_life              gpu_magazine_test
l wake_all_at_once                fairness_test
l ready_for_what_it_was           turns_test
l turn_before_work_left           turns_test
l take_the_rest                   account_test
l leave_no_part                   account_test
l cost_nothing                    broker_memory_test:nobody_waits_for_memory_of_the_broker_that_cannot_come
l holes_cost_nothing              broker_memory_test:what_a_user_leaves_full_of_holes_counts_for_all
l map_unpaid                      broker_memory_test:what_is_open_or_mapped_is_refused_beyond_what_its_user_may_have
l bear_all                        broker_memory_test:who_has_as_much_as_it_may_have_says_of_little_what_it_works_on
l open_unpaid                     broker_memory_test:what_is_open_or_mapped_is_refused_beyond_what_its_user_may_have
l remember_unpaid                 broker_memory_test:of_work_that_is_handed_over_no_more_is_remembered_than_is_paid_for
j lease_not_noted                 restart_memory_test
j gate_not_noted                  restart_memory_test
j name_not_noted                  restart_test
j waiting_not_noted               restart_test
j numbers_not_noted               restart_memory_test
j token_use_not_noted             restart_memory_test
j answer_not_noted                restart_request_test
j most_not_noted                  restart_memory_test
j lease_not_dropped               restart_memory_test
j leases_not_filed                restart_memory_test
j said_before_it_counts           restart_request_test
j answer_not_told_apart           restart_request_test
j inbox_handled_twice             restart_request_test
j inbox_lost                      restart_request_test
j believed_is_lost                gpu_restart_test
j deaths_unnoticed                restart_test
j token_is_lost                   restart_memory_test
j token_not_compared              restart_memory_test
j left_not_noted                  restart_memory_test
j fetch_not_noted                 restart_request_test
j return_not_noted                restart_request_test
t dropped_keep_tokens             token_left_test
t left_without_limit              token_left_test
t right_not_looked_at             token_left_test
j applied_before_it_counts        journal_crash_test
j group_not_applied_again         journal_crash_test
j emptied_while_it_counts         journal_test
j sum_not_compared                journal_damage_test
j way_back_stays                  upgrade_test
k kept_taken_twice                keeper_test
k kept_size_not_compared          keeper_test
k let_go_too_early                keeper_test restart_request_test
k begins_unknown                  deputy_test
k followed_before_dead            keeper_test
k asked_twice_done_twice          deputy_test
k unanswered_is_kept              deputy_test
k strays_stay_open                deputy_test
MUTATIONS

wait
well=$(find "$whole" -name ok | wc -l)
if [ "$well" != $jobs ]; then
	echo "mutation_test: FAILED: $((jobs - well)) of $jobs"
	exit 1
fi
echo "mutation_test: ok"
