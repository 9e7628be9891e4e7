/* SPDX-License-Identifier: MIT */
/*
 * The configuration file, and the defaults of what it leaves out.
 *
 * Everything is checked here, before the daemon does anything: a broker that starts has a
 * configuration without contradictions, and no other file needs to ask again. Nothing is guessed.
 * A key that is misspelled, given twice or out of range is an error with file, line and key, since
 * a limit that was silently ignored is found on the day it was meant for.
 *
 * How a pool may look is pool.c's to know, since clients can ask for one as well; what users
 * may hold, limits.c's.
 *
 * Must not know the objects that are made from it, nor the command line: who starts the broker
 * says which file, and which socket when the file does not.
 */
#include "broker/config/config.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/size.h"
#include "base/system/file.h"
#include "broker/config/limits.h"
#include "broker/config/lists.h"
#include "broker/config/machine.h"
#include "broker/config/reader.h"
#include "broker/config/who.h"

/* This is enough for a million buffers of one user, and as much again for others. */
#define BROKER_MEMORY_DEFAULT (UINT64_C(640) << 20)
#define BROKER_MEMORY_MIN     (UINT64_C(1) << 20)

#define DEFAULT_SOCKET_MODE 0666 /* pools decide who gets in, by uid */

/* A driver that has to wake all devices of a large machine takes its time. */
#define AGENT_TIMEOUT_DEFAULT 30000
#define AGENT_TIMEOUT_MIN     100
#define AGENT_TIMEOUT_MAX     600000

/* This is for clients that finish what they have in hand; and not so long that a restart would be
 * put off. */
#define DRAIN_DEFAULT 2000

/* This is longer than anything that a broker does in one piece, on a busy machine, too. */
#define HANG_DEFAULT 15000
#define HANG_MIN     1000
#define HANG_MAX     600000

static const struct principal root_user = {.type = PRINCIPAL_USER, .id = 0};

static struct principal own_user(void)
{
	return (struct principal){.type = PRINCIPAL_USER, .id = geteuid()};
}

/* ------------------------------------------------------------------------------------------- */
/* The whole                                                                                   */

static uint64_t half_of_memory(void)
{
	uint64_t half = machine_share() / 2;

	return half > POOL_MIN_LIMIT ? half : POOL_MIN_LIMIT;
}

static int add_self(struct principal_list *list)
{
	int e = principal_list_add(list, root_user);

	return e ? e : principal_list_add(list, own_user());
}

static int add_self_to_pools(struct config *c)
{
	int e = 0;

	for (size_t i = 0; e == 0 && i < c->n_pools; i++)
		e = access_grant(&c->pools[i].access, own_user(), ACCESS_ALL);
	return e;
}

static int add_default_pool(struct config *c)
{
	return pool_configs_default(c->default_pool_limit, &c->pools, &c->n_pools);
}

/* The defaults of everything but the pools, which depend on what the file says. */
static struct config *config_new(void)
{
	struct config *c = calloc(1, sizeof(*c));

	if (!c)
		return NULL;
	c->socket_mode = DEFAULT_SOCKET_MODE;
	c->default_pool_limit = half_of_memory();
	c->agent_timeout_ms = AGENT_TIMEOUT_DEFAULT;
	c->drain_ms = DRAIN_DEFAULT;
	c->hang_ms = HANG_DEFAULT;
	c->broker_memory = BROKER_MEMORY_DEFAULT;
	c->limits = config_standard_limits();
	return c;
}

void config_free(struct config *c)
{
	if (!c)
		return;
	pool_configs_free(c->pools, c->n_pools);
	free(c->users);
	principal_list_deinit(&c->rights.admins);
	principal_list_deinit(&c->rights.create_pools);
	name_owners_deinit(&c->rights.names);
	free(c->socket);
	free(c->file);
	free(c->text);
	free(c);
}

int config_default(struct config **out)
{
	struct config *c = config_new();

	if (!c)
		return -ENOMEM;
	if (add_self(&c->rights.admins) < 0 || add_self(&c->rights.create_pools) < 0 ||
	    add_default_pool(c) < 0 || add_self_to_pools(c) < 0) {
		config_free(c);
		return -ENOMEM;
	}
	*out = c;
	return 0;
}

static int read_socket(const struct config_reader *r, const struct config_path *path,
		       const json_t *document, struct config *c)
{
	const size_t longest = sizeof((struct sockaddr_un *)NULL)->sun_path - 1;
	const char *socket = NULL;
	int e = config_read_string(r, path, document, "a path (like \"/run/share/broker.sock\")",
				   &socket);

	if (e != 0 || !socket)
		return e;
	if (socket[0] != '/')
		return config_fail_value(r, path, json_object_get(document, path->key),
					 "is not an absolute path");
	if (strlen(socket) > longest)
		return config_fail(r, path, "%zu bytes are too many for a socket (at most %zu)",
				   strlen(socket), longest);
	c->socket = strdup(socket);
	return c->socket ? 0 : config_fail_memory(r);
}

static int read_socket_mode(const struct config_reader *r, const struct config_path *path,
			    const json_t *document, struct config *c)
{
	const json_t *value = json_object_get(document, path->key);
	const char *text = json_string_value(value);
	size_t length = text ? strlen(text) : 0;

	if (!value)
		return 0;
	if (length < 3 || length > 4 || strspn(text, "01234567") != length ||
	    strtoul(text, NULL, 8) > 0777)
		return config_fail_value(r, path, value,
					 "is not a file mode (an octal string like \"0666\")");
	c->socket_mode = (mode_t)strtoul(text, NULL, 8);
	if (!(c->socket_mode & 0222))
		return config_fail_value(r, path, value,
					 "lets nobody connect (which takes write permission)");
	return 0;
}

/* Reads a list of principals, and adds root and the broker's own user. These could change the file,
 * so to leave them out would be a pretence. */
static int read_principals(const struct config_reader *r, const struct config_path *path,
			   const json_t *document, struct principal_list *out)
{
	const json_t *value = json_object_get(document, path->key);
	int e = value ? principal_list_parse(r, path, value, out) : 0;

	if (e == 0 && add_self(out) < 0)
		e = config_fail_memory(r);
	return e;
}

static int read_time_limit(const struct config_reader *r, const struct config_path *path,
			   const json_t *document, int min, int max, unsigned *out)
{
	const json_t *value = json_object_get(document, path->key);
	json_int_t ms = json_integer_value(value);

	if (!value)
		return 0;
	if (!json_is_integer(value) || ms < min || ms > max)
		return config_fail_value(r, path, value, "is not a time limit (%d to %d ms)", min,
					 max);
	*out = (unsigned)ms;
	return 0;
}

static int read_hang(const struct config_reader *r, const struct config_path *path,
		     const json_t *document, struct config *c)
{
	int e = read_time_limit(r, path, document, 0, HANG_MAX, &c->hang_ms);

	if (e == 0 && c->hang_ms > 0 && c->hang_ms < HANG_MIN)
		e = config_fail(r, path,
				"%u ms are too few for a busy machine (at least %d, or 0: "
				"never)",
				c->hang_ms, HANG_MIN);
	return e;
}

static int read_broker_memory(const struct config_reader *r, const struct config_path *path,
			      const json_t *document, struct config *c)
{
	char shown[SIZE_TEXT_MAX];
	int e = config_read_size(r, path, document, false, &c->broker_memory);

	if (e == 0 && c->broker_memory < BROKER_MEMORY_MIN)
		e = config_fail(r, path, "%s is less than a few processes need (1MiB)",
				size_format(c->broker_memory, shown));
	return e;
}

static int read_document(const struct config_reader *r, json_t *document, struct config *c)
{
	static const char *const keys[] = {
	    "socket",           "socket_mode", "admins",   "create_pools",
	    "limits",           "users",       "pools",    "default_pool_limit",
	    "agent_timeout_ms", "names",       "drain_ms", "hang_ms",
	    "broker_memory",
	};
	const struct config_path *place = CONFIG_KEY(NULL, "default_pool_limit");
	char shown[SIZE_TEXT_MAX];
	json_t *value;
	int e = config_check_object(r, NULL, document, "{\"pools\": [{\"name\": \"frames\"}]}");

	if (e == 0)
		e = config_check_keys(r, NULL, document, keys, N_OF(keys));
	if (e == 0)
		e = read_socket(r, CONFIG_KEY(NULL, "socket"), document, c);
	if (e == 0)
		e = read_socket_mode(r, CONFIG_KEY(NULL, "socket_mode"), document, c);
	if (e == 0)
		e = read_principals(r, CONFIG_KEY(NULL, "admins"), document, &c->rights.admins);
	if (e == 0)
		e = read_principals(r, CONFIG_KEY(NULL, "create_pools"), document,
				    &c->rights.create_pools);
	if (e == 0 && (value = json_object_get(document, "names")))
		e = name_owners_parse(r, CONFIG_KEY(NULL, "names"), value, &c->rights.names);
	if (e == 0 && (value = json_object_get(document, "limits")))
		e = config_read_limits(r, CONFIG_KEY(NULL, "limits"), value, &c->limits);
	if (e == 0 && (value = json_object_get(document, "users")))
		e = config_read_users(r, CONFIG_KEY(NULL, "users"), value, c);
	if (e == 0)
		e = config_read_size(r, place, document, false, &c->default_pool_limit);
	if (e == 0 && c->default_pool_limit < POOL_MIN_LIMIT)
		e = config_fail(r, place, "%s is less than the smallest segment (64KiB)",
				size_format(c->default_pool_limit, shown));
	if (e == 0 && c->default_pool_limit > POOL_MAX_LIMIT)
		e = config_fail(r, place, "%s is not possible (at most 128TiB)",
				size_format(c->default_pool_limit, shown));
	if (e == 0)
		e = read_time_limit(r, CONFIG_KEY(NULL, "agent_timeout_ms"), document,
				    AGENT_TIMEOUT_MIN, AGENT_TIMEOUT_MAX, &c->agent_timeout_ms);
	if (e == 0)
		e = read_time_limit(r, CONFIG_KEY(NULL, "drain_ms"), document, 0,
				    CONFIG_DRAIN_MAX_MS, &c->drain_ms);
	if (e == 0)
		e = read_hang(r, CONFIG_KEY(NULL, "hang_ms"), document, c);
	if (e == 0)
		e = read_broker_memory(r, CONFIG_KEY(NULL, "broker_memory"), document, c);
	if (e != 0)
		return e;

	value = json_object_get(document, "pools");
	if (value)
		e = pool_configs_read(r, CONFIG_KEY(NULL, "pools"), value, c->default_pool_limit,
				      &c->pools, &c->n_pools);
	else
		e = add_default_pool(c) < 0 ? config_fail_memory(r) : 0;
	if (e == 0 && add_self_to_pools(c) < 0)
		e = config_fail_memory(r);
	return e;
}

/* Reads all there is, up to one byte more than is allowed. */
static int read_file(const char *path, char *text, size_t *size)
{
	int fd = file_open(path);
	ssize_t n = 1;

	if (fd < 0)
		return fd;
	for (*size = 0; n > 0 && *size <= CONFIG_MAX_FILE; *size += (size_t)n) {
		n = TEMP_FAILURE_RETRY(read(fd, text + *size, CONFIG_MAX_FILE + 1 - *size));
		if (n < 0) {
			int e = -errno;
			close(fd);
			return e;
		}
	}
	close(fd);
	return 0;
}

static int read_text(const struct config_reader *r, struct config *c)
{
	json_t *document;
	int e;

	c->file = strdup(r->file);
	c->text = malloc(r->size + 1);
	if (!c->file || !c->text)
		return config_fail_memory(r);
	memcpy(c->text, r->text, r->size);
	c->text_size = r->size;
	e = config_parse(r, NULL, &document);
	if (e != 0)
		return e;
	e = read_document(r, document, c);
	json_decref(document);
	return e;
}

static int load(struct config_reader *r, struct config **out)
{
	struct config *c = config_new();
	int e = c ? read_text(r, c) : config_fail_memory(r);

	if (e != 0)
		config_free(c);
	else
		*out = c;
	return e;
}

int config_load_text(const char *path, const char *text, size_t size, struct config **out,
		     char *error, size_t error_size)
{
	struct config_reader r = {path, text, size, error, error_size};

	return load(&r, out);
}

int config_load(const char *path, struct config **out, char *error, size_t error_size)
{
	struct config_reader r = {.file = path, .error = error, .error_size = error_size};
	char *text = malloc(CONFIG_MAX_FILE + 1);
	int e = text ? 0 : config_fail_memory(&r);

	if (e == 0) {
		e = read_file(path, text, &r.size);
		if (e < 0)
			config_fail(&r, NULL, "%s", file_error(e));
	}
	if (e == 0 && r.size > CONFIG_MAX_FILE)
		e = config_fail(&r, NULL, "larger than 1 MiB");
	r.text = text;
	if (e == 0)
		e = load(&r, out);
	free(text);
	return e;
}
