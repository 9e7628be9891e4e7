# SPDX-License-Identifier: MIT
# shellcheck shell=bash
#
# An MPS of one's own, for scripts that source this: with pipes and logs of its own, so that one that
# runs already, or other users, are left alone.

mps_folder=

# mps_start FOLDER: its pipes and logs go there. What is started after that, and is not told
# otherwise, can become a client by CUDA_MPS_PIPE_DIRECTORY=FOLDER. Says why when it does not start.
mps_start()
{
	if ! command -v nvidia-cuda-mps-control >/dev/null; then
		echo "there is no nvidia-cuda-mps-control"
		return 1
	fi
	mkdir -p "$1"
	mps_folder=$1
	if ! mps_control -d >"$1/started" 2>&1 </dev/null; then # a file: a daemon keeps its stdout
		mps_folder=
		echo "MPS does not start: $(tail -n 1 "$1/started")"
		return 1
	fi
}

mps_control()
{
	timeout -k 5 30 env "CUDA_MPS_PIPE_DIRECTORY=$mps_folder" \
		"CUDA_MPS_LOG_DIRECTORY=$mps_folder" nvidia-cuda-mps-control "$@"
}

# There is a server once there was a client.
mps_was_used()
{
	mps_control <<<get_server_list 2>&1 | grep -qE '^[0-9]+$'
}

mps_end()
{
	[ -n "$mps_folder" ] || return 0
	mps_control <<<quit >/dev/null 2>&1 || true
	mps_folder=
}
