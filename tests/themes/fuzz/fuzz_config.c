/* SPDX-License-Identifier: MIT */

/*
 * Everything the broker parses as JSON. The first byte says as what the rest is taken: a
 * configuration file, or a list of who may use a pool (as clients send it). What is taken must
 * serve: a broker starts with the configuration. What is not taken comes with a sentence.
 */

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "broker/broker.h"
#include "broker/config/lists.h"
#include "broker/log/log.h"
#include "broker/rights/access.h"
#include "tests/themes/fuzz/fuzz.h"

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
	access_list_deinit(&copy);
	access_list_deinit(&list);
}

/* ------------------------------------------------------------------------------------------- */

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
	(void)argc, (void)argv;
	setenv("SHARE_ABORT_ON_BUG", "1", 1);
	log_set_level(LOG_LEVEL_ERROR);
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
	default:
		break;
	}
	return 0;
}
