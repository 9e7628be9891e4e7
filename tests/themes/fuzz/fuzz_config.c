/* SPDX-License-Identifier: MIT */

/*
 * Everything the broker parses as JSON. The first byte says as what the rest is taken: a
 * configuration file, a list of who may use a pool (as clients send it), or a buffer's metadata.
 * What is taken must serve: a broker starts with the configuration, and metadata comes back as it
 * was set. What is not taken comes with a sentence.
 */

#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <event2/event.h>

#include "broker/broker.h"
#include "broker/client/client.h"
#include "broker/client/conversation.h"
#include "broker/config/access.h"
#include "broker/log/log.h"
#include "tests/themes/fuzz/fuzz.h"
#include "wire/packet.h"

static char error[512];

static void expect_a_sentence(void)
{
	size_t size = strnlen(error, sizeof(error));

	expect(size > 0 && size < sizeof(error));
	expect(!memchr(error, '\n', size));
}

static void load_configuration(const uint8_t *data, size_t size)
{
	struct config *config;
	struct broker *broker;
	char path[64];
	int fd, r;

	fd = memfd_create("configuration", MFD_CLOEXEC);
	expect(fd >= 0 && write(fd, data, size) == (ssize_t)size && lseek(fd, 0, SEEK_SET) == 0);
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	memset(error, 'x', sizeof(error));
	r = config_load(path, &config, error, sizeof(error));
	close(fd);
	if (r != 0) {
		expect_a_sentence();
		return;
	}
	for (size_t i = 0; i < config->n_pools; i++)
		expect(config->pools[i].segment_size <= config->pools[i].limit &&
		       config->pools[i].alignment <= config->pools[i].segment_size);
	expect(broker_new(config, NULL, &broker) == 0);
	broker_free(broker);
	config_free(config);
}

static void parse_access(const uint8_t *data, size_t size)
{
	struct access_list list, copy;
	gid_t group = 0;

	memset(error, 'x', sizeof(error));
	if (access_parse_text((const char *)data, size, &list, error, sizeof(error)) != 0) {
		expect_a_sentence();
		return;
	}
	expect(access_list_copy(&copy, &list) == 0);
	for (uid_t uid = 0; uid < 3; uid++)
		expect(access_check(&list, uid, &group, 1) == access_check(&copy, uid, &group, 1));
	access_list_clear(&copy);
	access_list_clear(&list);
}

/* ------------------------------------------------------------------------------------------- */

static struct broker *broker;
static int to_broker;
static uint64_t buffer;
static unsigned char packet[WIRE_PACKET_MAX];

/* The answer, which lies in `packet`. */
static struct wire_message ask(struct wire_message *m)
{
	size_t size;
	struct wire_message answer;
	struct fd_list fds;

	m->serial = 1;
	size = wire_encode(m, packet, sizeof(packet));
	expect(size > 0 && packet_send(to_broker, packet, size, NULL, 0, false) == 0);
	event_base_loop(broker->base, EVLOOP_NONBLOCK);
	broker_commit(broker);
	size = sizeof(packet);
	expect(packet_receive(to_broker, packet, &size, &fds, false) == 0);
	expect(wire_decode(&answer, WIRE_TO_CLIENT, packet, size, fds.n) == 0);
	fd_list_close(&fds);
	return answer;
}

static void start_broker(void)
{
	struct wire_message hello = {.type = WIRE_HELLO}, ready = {.type = WIRE_READY};
	struct wire_message open = {.type = WIRE_POOL_OPEN}, alloc = {.type = WIRE_ALLOC};
	static struct config *config;
	int pair[2];

	expect(config_default(&config) == 0 && broker_new(config, NULL, &broker) == 0);
	expect(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
	to_broker = pair[0];
	client_accept(broker, pair[1], NULL);
	hello.hello.version = WIRE_VERSION;
	hello.hello.oldest = WIRE_VERSION_OLDEST;
	expect(ask(&hello).type == WIRE_WELCOME);
	expect(ask(&ready).type == WIRE_DONE);
	open.pool_open.name = (struct wire_bytes){"default", strlen("default")};
	alloc.alloc.pool = ask(&open).pool.pool;
	alloc.alloc.size = 1;
	buffer = ask(&alloc).grant.buffer;
}

static void set_metadata(const uint8_t *data, size_t size)
{
	struct wire_message set = {.type = WIRE_METADATA_SET}, get = {.type = WIRE_METADATA_GET};
	struct wire_message answer;

	if (size == 0 || size > 65536)
		return;
	set.metadata_set.buffer = get.metadata_get.buffer = buffer;
	set.metadata_set.json = (struct wire_bytes){data, (uint32_t)size};
	answer = ask(&set);
	if (answer.type == WIRE_ERROR) {
		expect(answer.error.detail.size > 0);
		return;
	}
	expect(answer.type == WIRE_DONE);
	answer = ask(&get);
	expect(answer.type == WIRE_METADATA && answer.metadata.json.size == size &&
	       memcmp(answer.metadata.json.data, data, size) == 0);
}

/* ------------------------------------------------------------------------------------------- */

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc, (void)argv;
	setenv("SHARE_ABORT_ON_BUG", "1", 1);
	log_set_level(LOG_LEVEL_ERROR);
	start_broker();
	return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	if (size == 0)
		return 0;
	switch (data[0]) {
	case 'c':
		load_configuration(data + 1, size - 1);
		break;
	case 'a':
		parse_access(data + 1, size - 1);
		break;
	case 'm':
		set_metadata(data + 1, size - 1);
		break;
	default:
		break;
	}
	return 0;
}
