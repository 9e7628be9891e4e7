/* SPDX-License-Identifier: MIT */

/*
 * service: libshare in somebody else's event loop, here libevent's.
 *
 * A job is an array of int32, published as `jobs/<job>`. The service sorts it and publishes
 * `results/<job>`; when the job's name goes, it takes the result away. The loop needs two things of
 * the library: share_get_fd() says when there is something to do, share_dispatch() does it and runs
 * the callbacks. Nothing here waits for another process: jobs are looked up asynchronously.
 *
 * SIGTERM and SIGINT end it. service_client is the other side.
 *
 *   share-run -- sh -c 'service & service_client; kill $!; wait'
 */

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>

#include <event2/event.h>
#include <share/share.h>

#define JOBS    "jobs/"
#define RESULTS "results/"

struct service {
	struct event_base *base;
	share_client *client;
	share_pool *pool;
	share_watch *watch;
	LIST_HEAD(, job) jobs;
	unsigned listed; /* how often all names were listed */
	int done;
	int failed;
};

/* A name that is published now, and the version of it that was taken up. */
struct job {
	LIST_ENTRY(job) link;
	struct service *service;
	share_operation *lookup;
	uint64_t version;
	unsigned listed;                 /* when it was there last */
	char name[SHARE_NAME_MAX + 1];   /* "jobs/7" */
	char result[SHARE_NAME_MAX + 8]; /* "results/7" */
};

static void check(int fine, const char *what)
{
	if (fine)
		return;
	fprintf(stderr, "service: %s (%s)\n", what, share_error_detail());
	exit(1);
}

/* ------------------------------------------------------------------------------------------- */
/* The work                                                                                    */

static int compare(const void *one, const void *other)
{
	int32_t a, b;

	memcpy(&a, one, sizeof(a));
	memcpy(&b, other, sizeof(b));
	return (a > b) - (a < b);
}

/* Whoever publishes a job decides what is in it: nothing that is wrong with it may end us. */
static int sort(struct job *job, share_buffer *numbers)
{
	share_buffer *sorted;
	share_tensor tensor;
	size_t size;
	int r;

	r = share_tensor_get(numbers, &tensor);
	if (r != 0)
		return r;
	if (tensor.dtype != SHARE_INT32 || tensor.ndim != 1 || tensor.strides[0] != 1 ||
	    tensor.shape[0] == 0)
		return SHARE_EINVAL;
	size = (size_t)tensor.shape[0] * sizeof(int32_t);
	r = share_alloc(job->service->pool, size, NULL, &sorted);
	if (r != 0)
		return r;
	memcpy(share_ptr(sorted), (const char *)share_ptr(numbers) + tensor.offset, size);
	qsort(share_ptr(sorted), (size_t)tensor.shape[0], sizeof(int32_t), compare);
	tensor.offset = 0;
	r = share_tensor_set(sorted, &tensor);
	if (r == 0)
		r = share_publish(sorted, job->result, NULL);
	share_release(sorted, NULL);
	return r;
}

/* ------------------------------------------------------------------------------------------- */
/* Jobs                                                                                        */

static struct job *find_job(struct service *s, const char *name)
{
	struct job *job;

	LIST_FOREACH (job, &s->jobs, link)
		if (strcmp(job->name, name) == 0)
			return job;
	return NULL;
}

static struct job *add_job(struct service *s, const char *name)
{
	struct job *job = calloc(1, sizeof(*job));

	check(job != NULL, "out of memory");
	job->service = s;
	snprintf(job->name, sizeof(job->name), "%s", name);
	snprintf(job->result, sizeof(job->result), RESULTS "%s", name + strlen(JOBS));
	LIST_INSERT_HEAD(&s->jobs, job, link);
	return job;
}

/* A look-up that is not over is canceled, and its callback does not run any more. */
static void remove_job(struct job *job)
{
	share_cancel(job->lookup);
	LIST_REMOVE(job, link);
	share_unpublish(job->service->client, job->result); /* which may not be there yet */
	free(job);
}

static void on_looked_up(share_buffer *numbers, int error, void *data)
{
	struct job *job = data;
	int r = error;

	if (r == 0) {
		r = sort(job, numbers);
		share_release(numbers, NULL);
	}
	if (r == 0)
		job->service->done++;
	else if (r != SHARE_ENOENT && r != SHARE_EDISCONNECTED) /* withdrawn; told elsewhere */
		fprintf(stderr, "service: %s: %s\n", job->name, share_strerror(r));
}

static void take_up(struct service *s, const char *name, uint64_t version)
{
	struct job *job = find_job(s, name);
	int r;

	if (!job)
		job = add_job(s, name);
	job->listed = s->listed;
	if (job->version >= version) /* listed, and then reported as well */
		return;
	job->version = version;
	share_cancel(job->lookup);
	job->lookup = NULL;
	r = share_lookup_async(s->client, name, SHARE_RDONLY, 0, NULL, on_looked_up, job,
			       &job->lookup);
	check(r == 0, "share_lookup_async");
}

static int on_listed(const share_name_info *info, void *data)
{
	take_up(data, info->name, info->version);
	return 0;
}

/* Takes up what is new, and removes what is gone. */
static void list_jobs(struct service *s)
{
	struct job *job, *next;

	s->listed++;
	check(share_list(s->client, JOBS, on_listed, s) == 0, "share_list");
	for (job = LIST_FIRST(&s->jobs); job; job = next) {
		next = LIST_NEXT(job, link);
		if (job->listed != s->listed)
			remove_job(job);
	}
}

static void on_change(const share_name_event *event, void *data)
{
	struct service *s = data;
	struct job *job;

	switch (event->change) {
	case SHARE_PUBLISHED:
	case SHARE_REPLACED:
		take_up(s, event->name, event->version);
		break;
	case SHARE_UNPUBLISHED:
		job = find_job(s, event->name);
		if (job)
			remove_job(job);
		break;
	case SHARE_OVERFLOW: /* while we sorted, more happened than is kept for us */
		list_jobs(s);
		break;
	}
}

/* ------------------------------------------------------------------------------------------- */
/* The loop                                                                                    */

static void on_readable(evutil_socket_t fd, short what, void *data)
{
	struct service *s = data;

	(void)fd, (void)what;
	if (share_dispatch(s->client) >= 0)
		return;
	/* the descriptor stays readable from now on, and without a broker there is nothing to do */
	fprintf(stderr, "service: %s\n", share_error_detail());
	s->failed = 1;
	event_base_loopbreak(s->base);
}

static void on_signal(evutil_socket_t number, short what, void *data)
{
	struct service *s = data;

	(void)number, (void)what;
	event_base_loopbreak(s->base);
}

/* Service and clients make it, whoever comes first. Of host memory: they read and write it. */
static share_pool *open_pool(share_client *client)
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;
	share_pool *pool;
	int r;

	options.kind = "host";
	options.flags = SHARE_POOL_PERSISTENT;
	r = share_pool_create(client, "service", &options, &pool);
	if (r == SHARE_EEXIST)
		r = share_pool_open(client, "service", &pool);
	check(r == 0, "share_pool_create");
	return pool;
}

int main(void)
{
	struct service s = {.done = 0};
	struct event *readable, *terminate, *interrupt;
	struct job *job;

	setvbuf(stdout, NULL, _IOLBF, 0);
	LIST_INIT(&s.jobs);
	check(share_connect(NULL, &s.client) == 0, "share_connect");
	s.pool = open_pool(s.client);

	s.base = event_base_new();
	check(s.base != NULL, "event_base_new");
	readable = event_new(s.base, share_get_fd(s.client), EV_READ | EV_PERSIST, on_readable, &s);
	terminate = evsignal_new(s.base, SIGTERM, on_signal, &s);
	interrupt = evsignal_new(s.base, SIGINT, on_signal, &s);
	check(readable && terminate && interrupt, "event_new");
	check(event_add(readable, NULL) == 0 && event_add(terminate, NULL) == 0 &&
		  event_add(interrupt, NULL) == 0,
	      "event_add");

	/* watch first, then list: what is published in between is seen twice rather than never */
	check(share_watch_names(s.client, JOBS, on_change, &s, &s.watch) == 0, "share_watch_names");
	list_jobs(&s);
	printf("service: ready\n");
	check(event_base_dispatch(s.base) == 0, "event_base_dispatch");

	share_unwatch(s.watch);
	while ((job = LIST_FIRST(&s.jobs)))
		remove_job(job);
	event_free(readable);
	event_free(terminate);
	event_free(interrupt);
	event_base_free(s.base);
	share_pool_close(s.pool);
	share_disconnect(s.client);
	printf("service: ended jobs=%d\n", s.done);
	return s.failed;
}
