/* SPDX-License-Identifier: MIT */

/*
 * Events. An event counts how often it was recorded and which of these records is done; a wait is
 * for the records there were when it was called. The counts of interprocess events lie in a memfd
 * of their creator, one table for all of them: the handle says whose it is and where, and openers
 * map it through /proc.
 *
 * A record by a process that is gone is never done, and its creator hangs when it records the event
 * again: FACTS, "the process that recorded an event is killed".
 */

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/standin/standin.h"

/* On a line of its own in the table. */
struct counts {
	_Atomic uint64_t recorded, done;
	_Atomic uint32_t generation, recorder;
	unsigned char unused[40];
};
_Static_assert(sizeof(struct counts) == 64, "a line");

struct CUevent_st {
	struct CUevent_st *next;
	_Atomic unsigned references; /* the handle's and one of each operation */
	CUcontext context;
	struct counts *counts;
	struct counts own;
	uint32_t generation, slot;
	bool interprocess, opened;
};

struct event_handle {
	char magic[8];
	int32_t pid, fd;
	uint32_t slot, generation;
	unsigned char unused[40];
};
_Static_assert(sizeof(struct event_handle) == sizeof(CUipcEventHandle), "64 bytes");

/* A table of another process, mapped once. */
struct foreign {
	struct foreign *next;
	pid_t pid;
	ino_t inode;
	struct counts *table;
};

static struct CUevent_st *events;
static struct counts *table; /* ours */
static int table_fd = -1;
static bool *taken;
static struct foreign *foreigns;

static struct CUevent_st *find(CUevent event)
{
	for (struct CUevent_st *e = events; e; e = e->next)
		if (e == event)
			return e;
	return NULL;
}

/* A reference, or NULL. */
static struct CUevent_st *get(CUevent event)
{
	struct CUevent_st *e;

	pthread_mutex_lock(&standin_lock);
	e = find(event);
	if (e)
		atomic_fetch_add(&e->references, 1);
	pthread_mutex_unlock(&standin_lock);
	return e;
}

static void put(struct CUevent_st *e)
{
	if (atomic_fetch_sub(&e->references, 1) == 1)
		free(e);
}

static CUresult open_table(void)
{
	size_t size = machine.events * sizeof(*table);
	void *p = MAP_FAILED;
	int fd;

	if (table)
		return CUDA_SUCCESS;
	fd = memfd_create("standin-events", MFD_CLOEXEC);
	if (fd >= 0 && ftruncate(fd, (off_t)size) == 0)
		p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (p == MAP_FAILED) {
		if (fd >= 0)
			close(fd);
		return CUDA_ERROR_OPERATING_SYSTEM;
	}
	taken = calloc(machine.events, sizeof(*taken));
	if (!taken)
		abort();
	table = p;
	table_fd = fd;
	return CUDA_SUCCESS;
}

static CUresult take_slot(struct CUevent_st *e)
{
	CUresult result = open_table();

	if (result != CUDA_SUCCESS)
		return result;
	for (uint32_t i = 0; i < machine.events; i++)
		if (!taken[i]) {
			taken[i] = true;
			e->slot = i;
			e->counts = &table[i];
			e->counts->recorded = e->counts->done = 0;
			e->counts->recorder = 0;
			e->generation = ++e->counts->generation;
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static struct CUevent_st *create(void)
{
	struct CUevent_st *e = calloc(1, sizeof(*e));

	if (!e)
		abort();
	e->references = 1;
	e->context = context_current();
	e->counts = &e->own;
	return e;
}

static void add(struct CUevent_st *e)
{
	e->next = events;
	events = e;
}

CUresult cuEventCreate(CUevent *out, unsigned flags)
{
	const unsigned known =
	    CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | CU_EVENT_INTERPROCESS;
	CUresult result = CUDA_SUCCESS;
	struct CUevent_st *e;

	ENTER(cuEventCreate, NEEDS_CONTEXT);
	if (!out || (flags & ~known) ||
	    ((flags & CU_EVENT_INTERPROCESS) && !(flags & CU_EVENT_DISABLE_TIMING)))
		return CUDA_ERROR_INVALID_VALUE;
	e = create();
	e->interprocess = flags & CU_EVENT_INTERPROCESS;
	pthread_mutex_lock(&standin_lock);
	if (e->interprocess)
		result = take_slot(e);
	if (result == CUDA_SUCCESS)
		add(e);
	pthread_mutex_unlock(&standin_lock);
	if (result != CUDA_SUCCESS) {
		free(e);
		return result;
	}
	*out = e;
	return CUDA_SUCCESS;
}

CUresult cuEventDestroy_v2(CUevent event)
{
	struct CUevent_st *e = NULL;

	ENTER(cuEventDestroy_v2, NEEDS_CONTEXT);
	pthread_mutex_lock(&standin_lock);
	for (struct CUevent_st **at = &events; *at; at = &(*at)->next)
		if (*at == event) {
			e = *at;
			*at = e->next;
			break;
		}
	if (e && e->interprocess && !e->opened) {
		e->counts->generation++; /* whoever waits for it need not any more */
		taken[e->slot] = false;
	}
	pthread_mutex_unlock(&standin_lock);
	if (!e)
		return CUDA_ERROR_INVALID_HANDLE;
	put(e);
	return CUDA_SUCCESS;
}

static bool reached(const struct CUevent_st *e, uint64_t record)
{
	return e->counts->done >= record ||
	       (e->interprocess && e->counts->generation != e->generation);
}

static bool process_gone(pid_t pid)
{
	char path[64], state = 'Z';
	FILE *f;

	snprintf(path, sizeof(path), "/proc/%d/stat", pid);
	f = fopen(path, "re");
	if (!f)
		return true;
	if (fscanf(f, "%*d (%*[^)]) %c", &state) != 1)
		state = 'Z';
	fclose(f);
	return state == 'Z' || state == 'X';
}

static void drop_event(struct operation *o)
{
	put(o->event);
}

static CUresult record_now(struct operation *o, CUcontext context)
{
	struct CUevent_st *e = o->event;
	uint64_t done = e->counts->done;

	(void)context;
	while (done < o->value && !atomic_compare_exchange_weak(&e->counts->done, &done, o->value))
		;
	return CUDA_SUCCESS;
}

CUresult cuEventRecord(CUevent event, CUstream stream)
{
	struct CUevent_st *e;
	struct CUstream_st *s;
	struct operation *o;

	ENTER(cuEventRecord, NEEDS_CONTEXT);
	s = stream_find(stream);
	e = get(event);
	if (!e || !s || e->context != stream_context(s)) {
		if (e)
			put(e);
		return CUDA_ERROR_INVALID_HANDLE;
	}
	if (e->interprocess && !e->opened && !reached(e, e->counts->recorded) &&
	    process_gone((pid_t)e->counts->recorder))
		for (;;)
			pause();
	o = operation_create(record_now);
	o->release = drop_event;
	o->event = e;
	if (!stream_capture(s)->active) {
		e->counts->recorder = (uint32_t)getpid();
		o->value = atomic_fetch_add(&e->counts->recorded, 1) + 1;
	}
	return stream_enqueue(stream, o);
}

CUresult cuEventQuery(CUevent event)
{
	struct CUevent_st *e;
	bool done;

	ENTER(cuEventQuery, NEEDS_CONTEXT);
	UNSAFE_IN_CAPTURE();
	e = get(event);
	if (!e)
		return CUDA_ERROR_INVALID_HANDLE;
	done = reached(e, e->counts->recorded);
	put(e);
	return done ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

CUresult cuEventSynchronize(CUevent event)
{
	struct CUevent_st *e;
	uint64_t record;

	ENTER(cuEventSynchronize, NEEDS_CONTEXT);
	e = get(event);
	if (!e)
		return CUDA_ERROR_INVALID_HANDLE;
	record = e->counts->recorded;
	for (unsigned round = 0; !reached(e, record) && e->context->sticky == CUDA_SUCCESS; round++)
		stream_poll(round);
	put(e);
	return (CUresult)context_current()->sticky;
}

/* Waits for other processes are those that park a stream. */
static CUresult wait_now(struct operation *o, CUcontext context)
{
	struct CUevent_st *e = o->event;

	if (reached(e, o->value))
		return CUDA_SUCCESS;
	if (e->interprocess)
		stream_park();
	for (unsigned round = 0; !reached(e, o->value) && context->sticky == CUDA_SUCCESS; round++)
		stream_poll(round);
	if (e->interprocess)
		stream_unpark();
	return CUDA_SUCCESS;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
	struct CUstream_st *s;
	struct CUevent_st *e;
	struct operation *o;

	ENTER(cuStreamWaitEvent, NEEDS_CONTEXT);
	if (flags & ~CU_EVENT_WAIT_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	e = get(event);
	if (!e)
		return CUDA_ERROR_INVALID_HANDLE;
	s = stream_find(stream);
	if (s && e->opened && e->context->device != stream_context(s)->device) {
		fprintf(stderr,
			"the driver crashes when a stream of another device waits for an "
			"interprocess event\n");
		abort();
	}
	o = operation_create(wait_now);
	o->release = drop_event;
	o->event = e;
	o->value = e->counts->recorded;
	return stream_enqueue(stream, o);
}

CUresult cuIpcGetEventHandle(CUipcEventHandle *out, CUevent event)
{
	struct event_handle handle = {.magic = "standin"};
	CUresult result = CUDA_ERROR_INVALID_HANDLE;
	struct CUevent_st *e;

	ENTER(cuIpcGetEventHandle, NEEDS_CONTEXT);
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&standin_lock);
	e = find(event);
	if (e && e->interprocess && !e->opened) {
		handle.pid = (int32_t)getpid();
		handle.fd = table_fd;
		handle.slot = e->slot;
		handle.generation = e->generation;
		memcpy(out, &handle, sizeof(handle));
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&standin_lock);
	return result;
}

/* The table of that process; NULL when it is gone or the descriptor is something else. */
static struct counts *foreign_table(pid_t pid, int fd)
{
	char path[64], link[64];
	struct foreign *f;
	struct stat st;
	ssize_t n;
	int own;
	void *p;

	snprintf(path, sizeof(path), "/proc/%d/fd/%d", pid, fd);
	n = readlink(path, link, sizeof(link));
	if (n < 0 || strncmp(link, "/memfd:standin-events", 21) != 0)
		return NULL;
	own = open(path, O_RDWR | O_CLOEXEC);
	if (own < 0)
		return NULL;
	if (fstat(own, &st) != 0)
		abort();
	for (f = foreigns; f && !(f->pid == pid && f->inode == st.st_ino); f = f->next)
		;
	if (!f) {
		p = mmap(NULL, (size_t)st.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, own, 0);
		f = calloc(1, sizeof(*f));
		if (p == MAP_FAILED || !f)
			abort();
		f->pid = pid;
		f->inode = st.st_ino;
		f->table = p;
		f->next = foreigns;
		foreigns = f;
	}
	close(own);
	return f->table;
}

CUresult cuIpcOpenEventHandle(CUevent *out, CUipcEventHandle given)
{
	struct event_handle handle;
	struct counts *counts;
	struct CUevent_st *e;

	ENTER(cuIpcOpenEventHandle, NEEDS_CONTEXT);
	memcpy(&handle, &given, sizeof(handle));
	if (!out || memcmp(handle.magic, "standin", 8) != 0 || handle.slot >= machine.events)
		return CUDA_ERROR_INVALID_VALUE;
	if (handle.pid == (int32_t)getpid())
		return CUDA_ERROR_INVALID_CONTEXT;
	pthread_mutex_lock(&standin_lock);
	counts = foreign_table(handle.pid, handle.fd);
	pthread_mutex_unlock(&standin_lock);
	if (!counts)
		return CUDA_ERROR_MAP_FAILED;
	counts += handle.slot;
	if (counts->generation != handle.generation)
		return CUDA_ERROR_INVALID_HANDLE;
	e = create();
	e->interprocess = e->opened = true;
	e->counts = counts;
	e->generation = handle.generation;
	pthread_mutex_lock(&standin_lock);
	add(e);
	pthread_mutex_unlock(&standin_lock);
	*out = e;
	return CUDA_SUCCESS;
}
