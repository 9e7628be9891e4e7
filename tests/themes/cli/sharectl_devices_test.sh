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

golden devices on devices=2 sharectl devices
golden devices-json on devices=2 sharectl --json devices
# known once somebody has asked
golden agents on devices=2 sh -c 'sharectl agents; sharectl devices >/dev/null; sharectl agents'
golden agents-metrics on devices=2 sh -c 'sharectl devices >/dev/null; sharectl metrics | grep -E "^share_(device|agent_)"'
golden devices-limited on devices=1,vmm=0,memops=0 sharectl devices
golden devices-none on devices=0 sharectl devices
golden devices-old-driver on driver=11040 sharectl devices
golden events-none on devices=1 sharectl events
golden devices-no-driver env LD_LIBRARY_PATH="$scratch/nowhere" share-run -- sharectl devices
finish
