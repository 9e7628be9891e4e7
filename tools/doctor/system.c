/* SPDX-License-Identifier: MIT */

/*
 * What the kernel has and allows. Features are tried, as versions say little about a kernel that
 * somebody has patched or a container that filters calls. Limits are those of this process, which
 * programs that are started from here have too; those of the broker are read from /proc.
 */

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "tools/doctor/inside.h"
#include "tools/snapshot.h"

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77 /* Linux 6.5 */
#endif

#define MIB (1ull << 20)

/* ------------------------------------------------------------------------------------------- */
/* Kernel                                                                                      */

static bool can_seal(void)
{
	int fd = memfd_create("sharectl-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
	bool can = fd >= 0 && ftruncate(fd, 4096) == 0 &&
		   fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0 &&
		   fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE | F_SEAL_SEAL) == 0;

	if (fd >= 0)
		close(fd);
	return can;
}

static bool has_pidfd(void)
{
	int fd = (int)syscall(SYS_pidfd_open, getpid(), 0);

	if (fd >= 0)
		close(fd);
	return fd >= 0;
}

static bool has_peer_pidfd(void)
{
	socklen_t size = sizeof(int);
	int pair[2], fd = -1;

	if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
		return false;
	if (getsockopt(pair[0], SOL_SOCKET, SO_PEERPIDFD, &fd, &size) == 0 && fd >= 0)
		close(fd);
	close(pair[0]);
	close(pair[1]);
	return fd >= 0;
}

void examine_kernel(struct examination *e)
{
	bool seals = can_seal(), pidfd = has_pidfd();
	struct utsname name;

	uname(&name);
	if (!seals || !pidfd)
		found(e, "kernel", BAD, "a broker does not work here",
		      "use Linux 5.3 or later, and let containers call memfd_create() and "
		      "pidfd_open()",
		      "%s %s lacks %s", name.sysname, name.release,
		      seals ? "pidfd_open()" : "sealed memory (F_SEAL_FUTURE_WRITE)");
	else if (!has_peer_pidfd())
		found(e, "kernel", NOTE,
		      "who connects is identified by its pid, which a process that ends at that "
		      "moment can leave to another one",
		      "use Linux 6.5 or later", "%s %s lacks SO_PEERPIDFD", name.sysname,
		      name.release);
	else
		found(e, "kernel", OK, NULL, NULL, "%s %s has sealed memory and pidfds",
		      name.sysname, name.release);
}

/* ------------------------------------------------------------------------------------------- */
/* Limits                                                                                      */

/* Reads the soft limit of the broker's descriptors. Returns 0 when it is not known. */
static unsigned long long broker_descriptors(const struct examination *e)
{
	static const char heading[] = "Max open files";
	char path[64], text[4096], *line;

	snprintf(path, sizeof(path), "/proc/%lld/limits", e->broker_pid);
	if (!e->broker_pid || !read_text(e, path, text, sizeof(text)))
		return 0;
	line = strstr(text, heading);
	return line ? strtoull(line + strlen(heading), NULL, 10) : 0;
}

static void examine_descriptors(struct examination *e)
{
	unsigned long long broker = broker_descriptors(e);
	struct rlimit own = {0};

	getrlimit(RLIMIT_NOFILE, &own);
	if (broker > 0 && broker < 4096)
		found(e, "descriptors", NOTE,
		      "a connection takes 4 of the broker's, a membership in a channel 4, a "
		      "segment 2: users are refused when there are no more",
		      "LimitNOFILE= of its unit, or ulimit -Hn before it starts",
		      "the broker may have %llu (RLIMIT_NOFILE)", broker);
	else if (own.rlim_cur < 256)
		found(e, "descriptors", NOTE,
		      "a member of a channel takes some for each other member",
		      "ulimit -n 1024 before programs start",
		      "programs from here may have %llu (RLIMIT_NOFILE)",
		      (unsigned long long)own.rlim_cur);
	else if (broker > 0)
		found(e, "descriptors", OK, NULL, NULL,
		      "programs from here may have %llu (RLIMIT_NOFILE), the broker %llu",
		      (unsigned long long)own.rlim_cur, broker);
	else
		found(e, "descriptors", OK, NULL, NULL,
		      "programs from here may have %llu (RLIMIT_NOFILE)",
		      (unsigned long long)own.rlim_cur);
}

void examine_limits(struct examination *e)
{
	static const struct {
		int resource;
		const char *subject, *costs, *cure, *may, *option;
	} limits[] = {
	    {RLIMIT_MEMLOCK, "locked memory",
	     "mlock(), RDMA and io_uring can pin no more of a pool's memory than that",
	     "ulimit -l unlimited, LimitMEMLOCK=infinity of the unit, or memlock in "
	     "/etc/security/limits.conf",
	     "programs from here may lock", "ulimit -l"},
	    {RLIMIT_AS, "address space",
	     "a process that maps more of its pools gets SHARE_ENOMEM; CUDA does not work; with "
	     "less than some 17 GiB a broker that is started from here does not start",
	     "ulimit -v unlimited", "programs from here may map", "ulimit -v"},
	    {RLIMIT_FSIZE, "file size",
	     "a broker that is started from here has no larger segments, and with less than 2.1 "
	     "GiB it does not start",
	     "ulimit -f unlimited", "files from here may have", "ulimit -f"},
	};
	struct rlimit own;

	examine_descriptors(e);
	for (size_t i = 0; i < sizeof(limits) / sizeof(limits[0]); i++) {
		getrlimit((__rlimit_resource_t)limits[i].resource, &own);
		if (own.rlim_cur == RLIM_INFINITY)
			found(e, limits[i].subject, OK, NULL, NULL, "it is not limited (%s)",
			      limits[i].option);
		else
			found(e, limits[i].subject, NOTE, limits[i].costs, limits[i].cure,
			      "%s %llu KiB (%s)", limits[i].may,
			      (unsigned long long)own.rlim_cur / 1024, limits[i].option);
	}
}

/* ------------------------------------------------------------------------------------------- */
/* Memory                                                                                      */

static void examine_shm(struct examination *e)
{
	struct statvfs fs;
	char path[4096];

	if (snprintf(path, sizeof(path), "%s/dev/shm", e->root) >= (int)sizeof(path) ||
	    statvfs(path, &fs) < 0) {
		found(e, "/dev/shm", NOTE,
		      "nothing here, as pools are memfds; NCCL and torch's DataLoader need it",
		      "mount a tmpfs there", "there is none");
		return;
	}
	if (fs.f_blocks * fs.f_frsize < 1024 * MIB)
		found(e, "/dev/shm", NOTE,
		      "nothing here, as pools are memfds; NCCL and torch's DataLoader fail when it "
		      "is full",
		      "--shm-size of the container, or mount -o remount,size=8G /dev/shm",
		      "it has room for %llu MiB",
		      (unsigned long long)(fs.f_blocks * fs.f_frsize / MIB));
	else
		found(e, "/dev/shm", OK, NULL, NULL,
		      "it has room for %llu MiB; pools are not in it",
		      (unsigned long long)(fs.f_blocks * fs.f_frsize / MIB));
}

static void examine_huge_pages(struct examination *e)
{
	static const char path[] = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";
	char text[256] = "", *word = NULL;

	if (read_text(e, path, text, sizeof(text)))
		word = strchr(text, '[');
	if (word)
		word = strtok(word, "[]");
	if (word && (strcmp(word, "always") == 0 || strcmp(word, "within_size") == 0 ||
		     strcmp(word, "force") == 0))
		found(e, "huge pages", OK, NULL, NULL, "shared memory gets them (%s)", word);
	else if (word && strcmp(word, "advise") == 0)
		found(e, "huge pages", OK, NULL, NULL,
		      "pools whose \"huge_pages\" is \"advise\" get them (%s)", word);
	else
		found(
		    e, "huge pages", NOTE,
		    "host pools consist of pages of 4 KiB: more faults when memory is used first, "
		    "and more misses of the TLB",
		    "echo within_size >/sys/kernel/mm/transparent_hugepage/shmem_enabled, if the "
		    "other users of shared memory can do with it; or advise, for pools with "
		    "\"huge_pages\": \"advise\"",
		    "shared memory gets none (%s)", word ? word : "the kernel has no such setting");
}

/* For pools that take no others. */
static void examine_reserved_pages(struct examination *e)
{
	static const char path[] = "/sys/kernel/mm/hugepages/hugepages-2048kB/";
	char all[512], free_ones[512], n[32] = "0", left[32] = "0";

	snprintf(all, sizeof(all), "%snr_hugepages", path);
	snprintf(free_ones, sizeof(free_ones), "%sfree_hugepages", path);
	if (!read_text(e, all, n, sizeof(n)) || atol(n) == 0)
		found(e, "reserved pages", OK, NULL, NULL,
		      "no huge pages are set aside: pools whose \"huge_pages\" is \"require\" are "
		      "refused");
	else if (!read_text(e, free_ones, left, sizeof(left)) || atol(left) == 0)
		found(e, "reserved pages", NOTE,
		      "pools whose \"huge_pages\" is \"require\" get no more memory",
		      "sysctl vm.nr_hugepages=MORE", "none of %ld huge pages of 2 MiB are free",
		      atol(n));
	else
		found(e, "reserved pages", OK, NULL, NULL,
		      "%ld of %ld huge pages of 2 MiB are free, for pools whose \"huge_pages\" is "
		      "\"require\"",
		      atol(left), atol(n));
}

/* Puts the cgroup of a process, and what memory.max says there, into @group and @max. */
static void cgroup_of(const struct examination *e, const char *process, char group[512],
		      char max[64])
{
	char path[1024], text[2048], *line;

	strcpy(group, "");
	strcpy(max, "");
	snprintf(path, sizeof(path), "/proc/%s/cgroup", process);
	if (!read_text(e, path, text, sizeof(text)))
		return;
	line = strstr(text, "0::");
	if (!line)
		return;
	snprintf(group, 512, "%.500s", strtok(line + 3, "\n"));
	snprintf(path, sizeof(path), "/sys/fs/cgroup%s/memory.max", group);
	read_text(e, path, max, 64);
}

static void examine_cgroups(struct examination *e)
{
	static const char costs[] =
	    "a page of host memory is charged to the cgroup of the process that touches it first, "
	    "and stays there while others use it: that one can be killed for what all share";
	char group[512], max[64], broker[512] = "", broker_max[64] = "", pid[32];
	bool limited;

	cgroup_of(e, "self", group, max);
	snprintf(pid, sizeof(pid), "%lld", e->broker_pid);
	if (e->broker_pid)
		cgroup_of(e, pid, broker, broker_max);
	if (!*group) {
		found(e, "cgroup", OK, NULL, NULL, "this is no system with cgroups of version 2");
		return;
	}
	limited =
	    (*max && strcmp(max, "max") != 0) || (*broker_max && strcmp(broker_max, "max") != 0);
	found(e, "cgroup", limited ? NOTE : OK, costs,
	      limited
		  ? "raise MemoryMax= by what the pools may have, or start first what writes most"
		  : NULL,
	      "memory that programs from here touch first is paid by %s (memory.max: %s)%s%s%s%s%s",
	      group, *max ? max : "none here", *broker ? "; what the broker clears, by " : "",
	      broker, *broker ? " (memory.max: " : "",
	      *broker ? (*broker_max ? broker_max : "none here") : "", *broker ? ")" : "");
}

/* What users may have the broker remember, which its cgroup has to have room for. */
static void examine_broker_memory(struct examination *e)
{
	unsigned long long limit, wanted;
	const json_t *status;
	json_t *rows;

	if (!e->client || snapshot_rows(e->client, "status", &rows) != 0)
		return;
	status = json_array_get(rows, 0);
	limit =
	    (unsigned long long)json_integer_value(json_object_get(status, "broker_memory_limit"));
	wanted =
	    (unsigned long long)json_integer_value(json_object_get(status, "broker_memory_wanted"));
	json_decref(rows);
	if (limit == 0) /* a broker of a version before */
		return;
	if (limit < wanted)
		found(e, "broker memory", NOTE,
		      "users who need much of it are refused (SHARE_EQUOTA) sooner than "
		      "broker_memory says",
		      "MemoryMax= of its unit, or what limits its container: 48 MiB, and twice "
		      "broker_memory",
		      "the broker's cgroup leaves %llu of %llu MiB for what users have it remember",
		      limit / MIB, wanted / MIB);
	else
		found(e, "broker memory", OK, NULL, NULL,
		      "users may have the broker remember %llu MiB, for which there is room",
		      limit / MIB);
}

/* Pages of host memory are taken when they are first touched, so nobody notices before. */
static void examine_pools(struct examination *e)
{
	struct sysinfo info = {0};
	unsigned long long memory;
	json_t *pools, *pool;
	size_t i;

	if (!e->client || sysinfo(&info) < 0 || snapshot_rows(e->client, "pools", &pools) != 0)
		return;
	memory = ((unsigned long long)info.totalram + info.totalswap) * info.mem_unit;
	json_array_foreach (pools, i, pool) {
		const char *kind = json_string_value(json_object_get(pool, "kind"));
		unsigned long long limit =
		    (unsigned long long)json_integer_value(json_object_get(pool, "limit"));

		if (kind && strcmp(kind, "host") == 0 && limit > memory)
			found(
			    e, "pools", NOTE,
			    "when there is no more, the kernel ends processes, and not those "
			    "alone that use the pool",
			    "a lower \"limit\" of the pool",
			    "pool '%s' may have %llu MiB, and this machine has %llu MiB of memory "
			    "and swap",
			    json_string_value(json_object_get(pool, "name")), limit / MIB,
			    memory / MIB);
	}
	json_decref(pools);
}

/* CUDA's interprocess events go through files there, which who opens one has to see. */
static void examine_event_files(struct examination *e)
{
	char own[4096], broker[64];
	struct stat a, b;

	snprintf(own, sizeof(own), "%s/dev/shm", e->root);
	snprintf(broker, sizeof(broker), "/proc/%lld/root/dev/shm", e->broker_pid);
	if (!e->broker_pid || stat(own, &a) < 0 || stat(broker, &b) < 0)
		return;
	if (a.st_dev != b.st_dev || a.st_ino != b.st_ino)
		found(e, "interprocess events", NOTE,
		      "share_event_record() and share_event_wait() fail; memory and fences need no "
		      "/dev/shm",
		      "the same /dev/shm for the broker and its programs (-v /dev/shm:/dev/shm)",
		      "programs from here have another /dev/shm than the broker");
	else
		found(e, "interprocess events", OK, NULL, NULL,
		      "programs from here have the broker's /dev/shm");
}

void examine_memory(struct examination *e)
{
	examine_pools(e);
	examine_event_files(e);
	examine_shm(e);
	examine_huge_pages(e);
	examine_reserved_pages(e);
	examine_cgroups(e);
	examine_broker_memory(e);
}
