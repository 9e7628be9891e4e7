#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# What sharectl shows of GPUs, and what it says where there are none: over the stand-in driver, each
# time with a broker of its own.
#
# usage: sharectl_devices_test.sh STANDIN-DIRECTORY, with SHARE_TEST_BIN and SHARE_TEST_SOURCE set

. "$(dirname "$0")/lib.sh"

standin=$1
# not those of this machine
unset CUDA_VISIBLE_DEVICES CUDA_MPS_PIPE_DIRECTORY

# on MACHINE COMMAND...: with a broker on that machine.
on()
{
	LD_LIBRARY_PATH=$standin SHARE_STANDIN=$1 share-run -- "${@:2}"
}

# Of the agent that has the memory.
agent()
{
	sharectl --json agents | sed -nE 's/.*"agent":([0-9]+).*/\1/p'
}

# The broker learns of an agent's end in its own time.
is_gone_with_its_agent()
{
	! sharectl recipe second >/dev/null 2>"$scratch/gone" && grep -q "gone with its agent" "$scratch/gone"
}

recipe()
{
	coproc HOLD { exec cli-hold legacy; }
	local hold=$HOLD_PID handle offset size segment device
	read -r handle offset size segment device <&"${HOLD[0]}"
	read -r _ <&"${HOLD[0]}"

	check "a handle has 64 bytes" same "${#handle}" 128
	check "a recipe in JSON is that of share_get_recipe()" same "$(sharectl --json recipe second)" "[
{\"name\":\"second\",\"pool\":\"plain\",\"kind\":\"legacy\",\"device\":\"$device\",\"handle\":\"$handle\",\
\"offset\":$offset,\"size\":$size,\"segment_size\":$segment}
]"
	check "and for people" same "$(sharectl --bytes recipe second)" "second
  pool          plain
  kind          legacy
  device        $device
  handle        $handle
  offset        $(printf '0x%x' "$offset")
  size          $size
  segment_size  $segment"
	kill -KILL "$(agent)"
	check "memory that is gone with its agent has none" until_true is_gone_with_its_agent

	exec {HOLD[1]}>&-
	wait "$hold"
}

if [[ ${2-} == recipe ]]; then
	recipe
	finish
fi

golden devices on devices=2 sharectl devices
golden devices-json on devices=2 sharectl --json devices
# known once somebody has asked
golden agents on devices=2 sh -c 'sharectl agents; sharectl devices >/dev/null; sharectl agents'
golden agents-metrics on devices=2 sh -c 'sharectl devices >/dev/null; sharectl metrics | grep -E "^share_(device|agent_)"'
golden devices-limited on devices=1,vmm=0,memops=0 sharectl devices
golden devices-none on devices=0 sharectl devices
golden devices-old-driver on driver=11040 sharectl devices
golden events-none on devices=1 sharectl events
check "recipes have handles" on devices=1 "$0" "$standin" recipe
golden devices-no-driver env LD_LIBRARY_PATH="$scratch/nowhere" share-run -- sharectl devices
finish
