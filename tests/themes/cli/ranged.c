/* SPDX-License-Identifier: MIT */

/*
 * A program that draws ranges of its own, and has libshare and NVTX in itself: both use one NVTX
 * then. Its calls fail, on another thread as well; or they are those of a program that works, with
 * a broker. It says how many libraries have come since it began.
 *
 * usage: cli-ranged [thread|work]
 */

#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <nvtx3/nvToolsExt.h>

#include <share/channel.h>
#include <share/service.h>

static int count(struct dl_phdr_info *info, size_t size, void *data)
{
	(void)info, (void)size;
	++*(int *)data;
	return 0;
}

static int libraries(void)
{
	int n = 0;

	dl_iterate_phdr(count, &n);
	return n;
}

static void *fail(void *unused)
{
	share_message message = SHARE_MESSAGE_INIT;
	share_client *client;

	(void)unused;
	share_connect("/nowhere", &client);
	share_recv(NULL, -1, NULL, &message);
	share_release(NULL, NULL);
	return NULL;
}

static void must(int r, int wanted, const char *what)
{
	if (r == wanted)
		return;
	fprintf(stderr, "%s: %s: %s\n", what, share_strerror(r), share_error_detail());
	exit(1);
}

static void exchange(share_client *client, share_buffer *buffer)
{
	share_buffer *same;
	share_token token;

	must(share_lookup(client, "ranged", SHARE_RDONLY, 0, NULL, &same), SHARE_ENOENT, "no name");
	must(share_publish(buffer, "ranged", NULL), 0, "publish");
	must(share_lookup(client, "ranged", SHARE_RDONLY, 0, NULL, &same), 0, "look-up");
	must(share_release(same, NULL), 0, "release");
	must(share_export(buffer, NULL, &token), 0, "export");
	must(share_import(client, &token, SHARE_RDONLY, NULL, &same), 0, "import");
	must(share_release(same, NULL), 0, "release");
}

static void call(share_client *client)
{
	share_message request = SHARE_MESSAGE_INIT, answer = SHARE_MESSAGE_INIT;
	share_service *worker, *caller;
	share_pending *pending;

	must(share_service_open(client, "ranged", SHARE_WORKER, NULL, &worker), 0, "worker");
	must(share_service_open(client, "ranged", SHARE_CALLER, NULL, &caller), 0, "caller");
	must(share_call_start(caller, NULL, "why", 3, -1, NULL, &pending), 0, "call");
	must(share_next_request(worker, -1, NULL, &request), 0, "request");
	must(share_reply(&request, NULL, "because", 7, NULL), 0, "reply");
	must(share_call_finish(pending, -1, NULL, &answer), 0, "answer");
	must(share_ack(&answer, NULL), 0, "ack");
	must(share_next_request(worker, 0, NULL, &request), SHARE_EAGAIN, "no request");
	share_service_close(caller);
	share_service_close(worker);
}

static void work(void)
{
	share_client *client;
	share_buffer *buffer;
	share_pool *pool;
	char bytes[10] = "";

	must(share_connect(NULL, &client), 0, "connect");
	must(share_pool_open(client, "no-such-pool", &pool), SHARE_ENOENT, "no pool");
	must(share_pool_open(client, "default", &pool), 0, "pool");
	must(share_alloc(pool, 5000, NULL, &buffer), 0, "alloc");
	must(share_copy_from_host(buffer, 0, bytes, sizeof(bytes), NULL), 0, "copy");
	must(share_copy_to_host(buffer, 4999, bytes, 2, NULL), SHARE_EINVAL, "outside");
	exchange(client, buffer);
	must(share_release(buffer, NULL), 0, "release");
	call(client);
	share_pool_close(pool);
	share_disconnect(client);
}

int main(int argc, char **argv)
{
	int before = libraries();
	nvtxDomainHandle_t domain;
	pthread_t thread;

	if (argc > 1 && strcmp(argv[1], "work") == 0) {
		work();
		return 0;
	}
	if (argc > 1) {
		nvtxEventAttributes_t outer = {
		    .version = NVTX_VERSION,
		    .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
		    .messageType = NVTX_MESSAGE_TYPE_ASCII,
		    .message.ascii = "outer",
		};

		domain = nvtxDomainCreateA("program");
		nvtxDomainRangePushEx(domain, &outer);
		if (pthread_create(&thread, NULL, fail, NULL) != 0)
			return 1;
		pthread_join(thread, NULL);
		nvtxDomainRangePop(domain);
	}
	fail(NULL);
	printf("%d loaded\n", libraries() - before);
	return 0;
}
