/* SPDX-License-Identifier: MIT */

/*
 * sharectl doctor on machines that are not this one: folders with the files of /proc, /sys and /dev
 * that it reads. What it tries by calls of the kernel is this machine's.
 */

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <criterion/criterion.h>
#include <criterion/new/assert.h>

#include "tools/doctor/doctor.h"

static char root[] = "/tmp/doctor-test-XXXXXX";

static void make_machine(void)
{
	unsetenv("CUDA_MPS_PIPE_DIRECTORY");
	cr_assert(mkdtemp(root) != NULL);
}

static void remove_machine(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", root);
	cr_assert(eq(int, system(command), 0));
}

TestSuite(doctor, .init = make_machine, .fini = remove_machine, .timeout = 30);

static void put(const char *path, const char *text)
{
	char command[512], whole[256];
	FILE *file;

	snprintf(whole, sizeof(whole), "%s%s", root, path);
	snprintf(command, sizeof(command), "mkdir -p $(dirname %s)", whole);
	cr_assert(eq(int, system(command), 0));
	file = fopen(whole, "w");
	cr_assert(file != NULL);
	fputs(text, file);
	fclose(file);
}

static json_t *examine(void)
{
	return doctor_examine(root, NULL, SHARE_ENOBROKER, "no broker answers");
}

static const json_t *about(const json_t *findings, const char *subject)
{
	json_t *finding;
	size_t i;

	json_array_foreach (findings, i, finding)
		if (strcmp(json_string_value(json_object_get(finding, "subject")), subject) == 0)
			return finding;
	return NULL;
}

/* What was found has @state and says @words. */
static void expect(const json_t *findings, const char *subject, const char *state,
		   const char *words)
{
	const json_t *finding = about(findings, subject);
	const char *found = json_string_value(json_object_get(finding, "found"));
	const char *is = json_string_value(json_object_get(finding, "state"));

	cr_assert(finding != NULL, "nothing about %s", subject);
	cr_expect(strcmp(is, state) == 0, "%s: %s, which is no %s: %s", subject, is, state, found);
	cr_expect(strstr(found, words) != NULL, "%s: not '%s' but '%s'", subject, words, found);
	cr_expect(strcmp(state, "ok") == 0 || json_string_value(json_object_get(finding, "costs")),
		  "%s: nobody says what it costs", subject);
}

Test(doctor, a_missing_broker_is_bad_and_a_missing_gpu_is_not)
{
	json_t *findings = examine();

	expect(findings, "broker", "bad", "no broker answers");
	expect(findings, "driver", "note", "there is none");
	expect(findings, "/dev/shm", "note", "there is none");
	expect(findings, "cgroup", "ok", "no system with cgroups");
	cr_expect(not(doctor_is_content(findings)));
	cr_expect(about(findings, "MIG") == NULL);
	json_array_remove(findings, 0);
	cr_expect(doctor_is_content(findings), "nothing but the broker is bad");
	json_decref(findings);
}

#define MAPPED                                                                                 \
	"7f0000000000-7f0000100000 rw-s 00000000 00:01 4711 /memfd:share-segment (deleted)\n"  \
	"7f0000200000-7f0000201000 r--s 00000000 00:01 4712 /memfd:share-timeline (deleted)\n" \
	"7f0000300000-7f0000400000 rw-s 00000000 00:01 4713 /memfd:other (deleted)\n"

Test(doctor, who_has_memory_of_no_broker_is_named_with_its_size)
{
	json_t *findings = examine();

	expect(findings, "old memory", "ok", "no program");
	json_decref(findings);
	put("/proc/12/comm", "small\n");
	put("/proc/12/maps", "7f0000200000-7f0000201000 r--s 0 00:01 4712 /memfd:share-timeline\n");
	put("/proc/34/comm", "with\tmuch\n");
	put("/proc/34/maps", MAPPED);
	put("/proc/56/comm", "without\n");
	put("/proc/56/maps", "7f0000300000-7f0000400000 rw-s 0 00:01 9 /memfd:other (deleted)\n");
	findings = examine();
	expect(findings, "old memory", "note", "2 programs have memory of a broker that is gone");
	expect(findings, "old memory", "note", "34 (with?much, uid ");
	expect(findings, "old memory", "note", "): 1028 KiB, 12 (small, uid ");
	json_decref(findings);
}

/* A process that hangs with its memory locked answers nobody. */
Test(doctor, who_does_not_answer_is_not_waited_for)
{
	json_t *findings;
	char path[64];

	put("/proc/12/comm", "hangs\n");
	snprintf(path, sizeof(path), "%s/proc/12/maps", root);
	cr_assert(eq(int, mkfifo(path, 0600), 0));
	findings = examine();
	expect(findings, "old memory", "ok", "not all programs could be looked at in time");
	json_decref(findings);
}

Test(doctor, pages_of_shared_memory_are_huge_when_the_kernel_says_so)
{
	static const char path[] = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
	json_t *findings;

	put(path, "always within_size advise [never] deny force\n");
	findings = examine();
	expect(findings, "huge pages", "note", "none (never)");
	json_decref(findings);
	put(path, "always [within_size] advise never deny force\n");
	findings = examine();
	expect(findings, "huge pages", "ok", "within_size");
	json_decref(findings);
	put(path, "always within_size [advise] never deny force\n");
	findings = examine();
	expect(findings, "huge pages", "ok", "pools whose \"huge_pages\" is \"advise\" get them");
	json_decref(findings);
}

Test(doctor, huge_pages_that_are_set_aside_are_counted)
{
	json_t *findings = examine();

	expect(findings, "reserved pages", "ok", "no huge pages are set aside");
	json_decref(findings);
	put("/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", "64\n");
	put("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "16\n");
	findings = examine();
	expect(findings, "reserved pages", "ok", "16 of 64 huge pages of 2 MiB are free");
	json_decref(findings);
	put("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "0\n");
	findings = examine();
	expect(findings, "reserved pages", "note", "none of 64 huge pages");
	json_decref(findings);
}

Test(doctor, the_cgroup_that_pays_is_named_with_its_limit)
{
	json_t *findings;

	put("/proc/self/cgroup", "1:name=systemd:/old\n0::/user.slice/job.scope\n");
	put("/sys/fs/cgroup/user.slice/job.scope/memory.max", "max\n");
	findings = examine();
	expect(findings, "cgroup", "ok", "/user.slice/job.scope (memory.max: max)");
	json_decref(findings);
	put("/sys/fs/cgroup/user.slice/job.scope/memory.max", "1073741824\n");
	findings = examine();
	expect(findings, "cgroup", "note", "/user.slice/job.scope (memory.max: 1073741824)");
	json_decref(findings);
}

Test(doctor, a_driver_without_its_device_files_is_bad)
{
	json_t *findings;

	put("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX Kernel Module 580\nGCC: 1\n");
	put("/dev/nvidiactl", "");
	findings = examine();
	expect(findings, "driver", "ok", "NVRM version: NVIDIA UNIX Kernel Module 580");
	expect(findings, "device files", "bad", "/dev/nvidia-uvm: No such file");
	json_decref(findings);
	put("/dev/nvidia-uvm", "");
	findings = examine();
	expect(findings, "device files", "ok", "");
	json_decref(findings);
}

Test(doctor, mps_and_mig_are_seen)
{
	json_t *findings;

	put("/proc/driver/nvidia/version", "NVRM version: 580\n");
	findings = examine();
	expect(findings, "MPS", "ok", "does not run");
	expect(findings, "MIG", "ok", "no GPU is split");
	json_decref(findings);
	put("/tmp/nvidia-mps/control", "");
	put("/proc/driver/nvidia/capabilities/gpu0/mig/gi1/access", "");
	put("/proc/driver/nvidia/capabilities/gpu0/mig/gi2/access", "");
	findings = examine();
	expect(findings, "MPS", "note", "/tmp/nvidia-mps/control");
	expect(findings, "MIG", "note", "2 GPU instances");
	json_decref(findings);
}

static void put_gpu(const char *driver, const char *model)
{
	char text[256];

	snprintf(
	    text, sizeof(text),
	    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  %s  Thu Nov 6\nGCC version: 12.2\n",
	    driver);
	put("/proc/driver/nvidia/version", text);
	snprintf(text, sizeof(text), "Model: \t\t %s\nIRQ: 1\n", model);
	put("/proc/driver/nvidia/gpus/0000:01:00.0/information", text);
}

static void expect_platform(const char *state, const char *words)
{
	json_t *findings = examine();

	expect(findings, "platform", state, words);
	json_decref(findings);
}

Test(doctor, the_worst_part_of_a_machine_says_its_tier)
{
	static const char debian[] = "PRETTY_NAME=\"Debian\"\nVERSION_ID=\"12\"\nID=debian\nX=1\n";

	put("/proc/sys/kernel/osrelease", "5.15.0-91-generic\n");
	expect_platform("note", "expected (another Linux with a glibc");
	put("/etc/os-release", debian);
	expect_platform("note",
			"expected (Debian 12, x86-64: tested; Linux 5.4 to 6.4: expected; ");
	put("/proc/sys/kernel/osrelease", "5.15.153.1-microsoft-standard-WSL2\n");
	expect_platform("note", "; WSL 2: expected; ");
	put("/proc/sys/kernel/osrelease", "4.19.0-26-amd64\n");
	expect_platform("note", "not (Debian 12, x86-64: tested; Linux before 5.4: not; ");
	put("/proc/sys/kernel/osrelease", "6.5.0\n");
	expect_platform("ok",
			"tested (Debian 12, x86-64: tested; Linux 6.5 and later: tested; no GPU");
	put_gpu("580.159.03", "NVIDIA H100 80GB HBM3");
	expect_platform("ok", "tried (Debian 12, x86-64: tested; ");
	expect_platform("ok", "; H100, H200, driver 580: tried)");
	put("/tmp/nvidia-mps/control", "");
	expect_platform("ok", "; MPS: tried)");
	put("/proc/driver/nvidia/capabilities/gpu0/mig/gi1/access", "");
	expect_platform("note", "; MIG: expected)");
	put("/proc/driver/nvidia/gpus/0000:02:00.0/information",
	    "Model: NVIDIA GeForce RTX 4090\n");
	expect_platform("note", "another GPU from Volta on, driver 525 or later: expected");
	put_gpu("470.82.01", "Tesla T4");
	expect_platform("note", "not (");
	expect_platform("note", "a driver before 525: not");
	put("/etc/nv_tegra_release", "# R36");
	expect_platform("note", "Jetson: unknown");
	put("/etc/os-release", "ID_LIKE=debian\nVERSION_ID=\"12\"\n");
	expect_platform("note", "another Linux");
}

Test(doctor, limits_of_programs_are_told)
{
	struct rlimit limit;
	json_t *findings;

	getrlimit(RLIMIT_MEMLOCK, &limit);
	limit.rlim_cur = 64 << 10;
	cr_assert(eq(int, setrlimit(RLIMIT_MEMLOCK, &limit), 0));
	getrlimit(RLIMIT_NOFILE, &limit);
	limit.rlim_cur = 100;
	cr_assert(eq(int, setrlimit(RLIMIT_NOFILE, &limit), 0));
	findings = examine();
	expect(findings, "locked memory", "note", "64 KiB");
	expect(findings, "descriptors", "note", "100 (RLIMIT_NOFILE)");
	json_decref(findings);
}
