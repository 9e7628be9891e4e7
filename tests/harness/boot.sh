# SPDX-License-Identifier: MIT
#
# For tests of what systemd runs, which source this file: this machine's files, in an overlay that is
# gone afterwards, are booted by systemd-nspawn, without a network, and the test runs once more inside
# of that. Takes root and systemd-nspawn; skipped where they, or what they need of the kernel, cannot
# be had.

skip()
{
	echo "SKIPPED: $*"
	exit 77
}

fail()
{
	echo "FAILED: $*"
	exit 1
}

groups=()
leave()
{
	for group in "${groups[@]}"; do
		echo $$ >"${group%/*}/cgroup.procs"
		find "$group" -depth -type d -exec rmdir {} +
	done
	umount -l "$scratch"
	rmdir "$scratch"
}

# make_root TEST ARGUMENT...: $root is what will be booted, $scratch is a folder beside it; the test
# itself is run again with these arguments, in a mount namespace of its own
make_root()
{
	[[ $(id -u) == 0 ]] || skip "only root can boot another root directory"
	command -v systemd-nspawn >/dev/null || skip "there is no systemd-nspawn"
	[[ ${SHARE_UNIT_TEST_MOUNTS:-} ]] ||
		SHARE_UNIT_TEST_MOUNTS=own exec unshare --mount "$@" ||
		skip "there are no mounts of one's own"

	scratch=$(mktemp -d)
	mount -t tmpfs none "$scratch"
	trap leave EXIT
	root=$scratch/root
	mkdir "$scratch/upper" "$scratch/work" "$root"
	mount -t overlay none -o "lowerdir=/,upperdir=$scratch/upper,workdir=$scratch/work" "$root" ||
		skip "there is no overlay of this root directory"
}

# boot_root SECONDS: boots it, runs "TEST inside" there and shows what that says
boot_root()
{
	local keep group code
	cp "$0" "$root/usr/bin/share-unit-test"
	mkdir "$root/usr/bin/harness"
	cp "${BASH_SOURCE[0]}" "$root/usr/bin/harness/"
	cat >"$root/etc/systemd/system/share-test.service" <<'END'
[Unit]
Requires=sysinit.target
After=sysinit.target
[Service]
Type=oneshot
ExecStart=/usr/bin/share-unit-test inside
StandardOutput=file:/share-test.log
StandardError=inherit
END

	# Where there is no systemd to ask for a control group, its own one.
	keep=()
	if [[ ! -d /run/systemd/system ]]; then
		keep=(--keep-unit)
		for group in /sys/fs/cgroup /sys/fs/cgroup/unified /sys/fs/cgroup/systemd; do
			[[ -e $group/cgroup.procs ]] && mkdir "$group/share-test-$$" || continue
			groups+=("$group/share-test-$$")
			echo $$ >"$group/share-test-$$/cgroup.procs"
		done
	fi
	code=0
	timeout --kill-after=5 "$1" systemd-nspawn --boot --directory="$root" --register=no "${keep[@]}" \
		--private-network --machine="share-test-$$" -- systemd.unit=share-test.service \
		>"$scratch/log" 2>&1 </dev/null || code=$?
	[[ -s $root/share-test.log ]] || { cat "$scratch/log" && skip "nothing could be booted here"; }
	cat "$root/share-test.log"
	[[ $code == 0 ]] || fail "exit code $code"
}
