/* SPDX-License-Identifier: MIT */
/*
 * What a pool is asked to be, and whether that is possible.
 *
 * Options come from the configuration file or over the socket, and pass the same check here: what
 * is left out gets its default, what contradicts itself is refused in the words of who asked. A
 * pool that is made from the result needs to ask nothing again.
 *
 * Must not know the pools that are made from it, who may create one, nor who owns it: what is in
 * the list is all the access there is here.
 */
#include "broker/config/pool.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <share/share.h>

#include "base/size.h"
#include "base/text.h"
#include "broker/config/lists.h"
#include "memory/kind.h"

#define DEFAULT_SEGMENT_SIZE (64 * MIB)
#define DEFAULT_ALIGNMENT    512
#define MAX_ALIGNMENT        (2 * MIB)
#define SEGMENT_GRANULE      4096
#define MAX_NODES            1024
#define MIN_SEGMENT_SIZE     POOL_MIN_LIMIT
#define MAX_SEGMENT_SIZE     TIB

/* A pool can be asked to be of this kind beside those that there are, and is by default. */
static const char any_kind[] = "auto";

/* enum share_reuse */
static const char *const reuse_names[] = {
    [SHARE_REUSE_GATE] = "gate",
    [SHARE_REUSE_CLEAN] = "clean",
    [SHARE_REUSE_SCRUB] = "scrub",
};

const char *pool_reuse_name(uint32_t reuse)
{
	return reuse_names[reuse];
}

/* enum share_huge_pages */
static const char *const huge_pages_names[] = {
    [SHARE_HUGE_PAGES_SYSTEM] = "system",
    [SHARE_HUGE_PAGES_ADVISE] = "advise",
    [SHARE_HUGE_PAGES_REQUIRE] = "require",
};

const char *pool_huge_pages_name(uint32_t huge_pages)
{
	return huge_pages_names[huge_pages];
}

const char *pool_numa_name(uint32_t numa, char out[static POOL_NUMA_MAX])
{
	if (numa == SHARE_NUMA_ANY || numa == SHARE_NUMA_INTERLEAVE)
		snprintf(out, POOL_NUMA_MAX, "%s", numa == SHARE_NUMA_ANY ? "any" : "interleave");
	else
		snprintf(out, POOL_NUMA_MAX, "%u", numa - 1);
	return out;
}

void pool_config_deinit(struct pool_config *p)
{
	free(p->name);
	free(p->device);
	access_list_deinit(&p->access);
	*p = (struct pool_config)POOL_CONFIG_INIT;
}

static int check_kind(const struct config_reader *r, const struct config_path *path,
		      struct pool_config *p)
{
	const struct memory_kind *kind;
	char shown[64], known[128];
	size_t n;

	if (!p->kind || strcmp(p->kind, any_kind) == 0) {
		p->kind = any_kind;
		return 0;
	}
	kind = memory_kind_by_name(p->kind, strlen(p->kind));
	if (kind) {
		p->kind = kind->name;
		return 0;
	}
	n = (size_t)snprintf(known, sizeof(known), "%s", any_kind);
	for (size_t i = 0; (kind = memory_kind_at(i)) && n < sizeof(known); i++)
		n += (size_t)snprintf(known + n, sizeof(known) - n, ", %s", kind->name);
	return config_fail(r, CONFIG_KEY(path, "kind"), "\"%s\" is not a kind of pool (%s)",
			   text_printable(p->kind, shown, sizeof(shown)), known);
}

/* Checks how the device is written. Whether there is such a device is for later: it may come. */
static int check_device(const struct config_reader *r, const struct config_path *path,
			struct pool_config *p)
{
	const struct memory_kind *kind = memory_kind_by_name(p->kind, strlen(p->kind));
	char shown[64];

	if (p->device && strncmp(p->device, "GPU-", 4) != 0 && strncmp(p->device, "MIG-", 4) != 0)
		return config_fail(
		    r, CONFIG_KEY(path, "device"),
		    "\"%s\" is not the UUID of a device (like "
		    "\"GPU-5fd4f087-86f3-7a43-b711-4771313afc50\"; see sharectl devices)",
		    text_printable(p->device, shown, sizeof(shown)));
	if (p->device && kind && !kind->on_device)
		return config_fail(r, CONFIG_KEY(path, "device"),
				   "a pool of kind %s is on no device", kind->name);
	if (p->same_address && kind && !kind->placeable)
		return config_fail(r, CONFIG_KEY(path, "same_address"),
				   "is not possible with kind %s (the driver says where it lies: "
				   "use vmm)",
				   kind->name);
	return 0;
}

/* Reads one of a few names, if it is there. @is says what such a thing is. */
static int read_one_of(const struct config_reader *r, const struct config_path *path,
		       const json_t *object, const char *is, const char *const *names, uint32_t n,
		       uint32_t *out)
{
	char shown[64], known[64];
	const char *name = NULL;
	size_t size = 0;
	int e = config_read_string(r, path, object, is, &name);

	if (e != 0 || !name)
		return e;
	for (uint32_t i = 0; i < n; i++) {
		if (strcmp(name, names[i]) == 0) {
			*out = i;
			return 0;
		}
		size += (size_t)snprintf(known + size, sizeof(known) - size, "%s%s", i ? ", " : "",
					 names[i]);
	}
	return config_fail(r, path, "\"%s\" is not %s (%s)",
			   text_printable(name, shown, sizeof(shown)), is, known);
}

/* Reads the number of a node, or a word. */
static int read_numa(const struct config_reader *r, const struct config_path *path,
		     const json_t *value, uint32_t *out)
{
	if (json_is_string(value) && strcmp(json_string_value(value), "any") == 0)
		*out = SHARE_NUMA_ANY;
	else if (json_is_string(value) && strcmp(json_string_value(value), "interleave") == 0)
		*out = SHARE_NUMA_INTERLEAVE;
	else if (json_is_integer(value) && json_integer_value(value) >= 0 &&
		 json_integer_value(value) < MAX_NODES)
		*out = SHARE_NUMA_NODE(json_integer_value(value));
	else
		return config_fail_value(r, path, value,
					 "is not a NUMA policy (\"any\", \"interleave\", or the "
					 "number of a node)");
	return 0;
}

/* Checks the options of pages. Whether the machine has any of it is for later. */
static int check_pages(const struct config_reader *r, const struct config_path *path,
		       const struct pool_config *p)
{
	const struct memory_kind *kind = memory_kind_by_name(p->kind, strlen(p->kind));
	const char *key = p->prefault > 0     ? "prefault"
			  : p->huge_pages > 0 ? "huge_pages"
			  : p->numa > 0       ? "numa"
					      : NULL;
	char one[SIZE_EXACT_MAX], other[SIZE_EXACT_MAX];

	if (p->huge_pages >= N_OF(huge_pages_names))
		return config_fail(r, CONFIG_KEY(path, "huge_pages"),
				   "%u is not an enum share_huge_pages", p->huge_pages);
	if (p->numa > MAX_NODES && p->numa != SHARE_NUMA_INTERLEAVE)
		return config_fail(r, CONFIG_KEY(path, "numa"), "%u is not the number of a node",
				   p->numa - 1);
	if (key && kind && kind->id != MEMORY_HOST)
		return config_fail(r, CONFIG_KEY(path, key),
				   "is not possible with kind %s (it is about memory of kind host)",
				   kind->name);
	if (p->prefault > p->limit)
		return config_fail(r, CONFIG_KEY(path, "prefault"),
				   "%s is more than the pool's limit (%s)",
				   size_tell(p->prefault, one), size_tell(p->limit, other));
	return 0;
}

static int check_reuse(const struct config_reader *r, const struct config_path *path,
		       const struct pool_config *p)
{
	if (p->reuse < N_OF(reuse_names))
		return 0;
	return config_fail(r, CONFIG_KEY(path, "reuse"), "%u is not an enum share_reuse", p->reuse);
}

uint64_t pool_config_highest_limit(uint64_t segment_size)
{
	segment_size += -segment_size % SEGMENT_GRANULE;
	return segment_size < POOL_MAX_LIMIT / POOL_MAX_SEGMENTS ? segment_size * POOL_MAX_SEGMENTS
								 : POOL_MAX_LIMIT;
}

/* Checks the sizes, in the order in which one number limits the next. */
static int check_sizes(const struct config_reader *r, const struct config_path *path,
		       struct pool_config *p, uint64_t default_limit)
{
	const struct config_path *place = CONFIG_KEY(path, "limit");
	char one[SIZE_EXACT_MAX], other[SIZE_EXACT_MAX];

	if (p->limit == 0)
		p->limit = default_limit;
	if (p->limit == UINT64_MAX)
		p->limit = pool_config_highest_limit(p->segment_size ? p->segment_size
								     : DEFAULT_SEGMENT_SIZE);
	if (p->limit < MIN_SEGMENT_SIZE)
		return config_fail(r, place, "%s is less than the smallest segment (%s)",
				   size_tell(p->limit, one), size_tell(MIN_SEGMENT_SIZE, other));
	if (p->limit > POOL_MAX_LIMIT)
		return config_fail(r, place, "%s is not possible (at most %s)",
				   size_tell(p->limit, one), size_tell(POOL_MAX_LIMIT, other));

	/* a small pool is no contradiction as long as nobody has asked for large segments */
	place = CONFIG_KEY(path, "segment_size");
	if (p->segment_size == 0 && p->limit < DEFAULT_SEGMENT_SIZE)
		p->segment_size = p->limit - p->limit % SEGMENT_GRANULE;
	else if (p->segment_size == 0)
		p->segment_size = p->limit / POOL_MAX_SEGMENTS < DEFAULT_SEGMENT_SIZE
				      ? DEFAULT_SEGMENT_SIZE
				      : p->limit / POOL_MAX_SEGMENTS;
	if (p->segment_size < MIN_SEGMENT_SIZE || p->segment_size > MAX_SEGMENT_SIZE)
		return config_fail(r, place, "%s is not possible (64KiB to 1TiB)",
				   size_tell(p->segment_size, one));
	p->segment_size += -p->segment_size % SEGMENT_GRANULE;
	if (p->segment_size > p->limit)
		return config_fail(r, place, "%s is more than the pool's limit (%s)",
				   size_tell(p->segment_size, one), size_tell(p->limit, other));

	if (p->limit / p->segment_size > POOL_MAX_SEGMENTS)
		return config_fail(
		    r, place, "%s is too small for the pool's limit of %s (at most %d segments)",
		    size_tell(p->segment_size, one), size_tell(p->limit, other), POOL_MAX_SEGMENTS);

	place = CONFIG_KEY(path, "alignment");
	if (p->alignment == 0)
		p->alignment = DEFAULT_ALIGNMENT;
	if (p->alignment < DEFAULT_ALIGNMENT || p->alignment > MAX_ALIGNMENT ||
	    (p->alignment & (p->alignment - 1)) != 0)
		return config_fail(r, place, "%s is not possible (a power of two, 512 to 2MiB)",
				   size_tell(p->alignment, one));
	if (p->alignment > p->segment_size)
		return config_fail(r, place, "%s is more than a segment of the pool (%s)",
				   size_tell(p->alignment, one), size_tell(p->segment_size, other));

	if (p->release_threshold == UINT64_MAX)
		p->release_threshold = p->segment_size;
	return 0;
}

static int check_pool(const struct config_reader *r, const struct config_path *path,
		      struct pool_config *p, uint64_t default_limit)
{
	char shown[64];

	if (!p->name)
		return config_fail(r, path, "lacks \"name\"");
	if (!text_is_valid_name(p->name, strlen(p->name)))
		return config_fail(r, CONFIG_KEY(path, "name"),
				   "\"%s\" is not a name (1 to 255 "
				   "bytes of UTF-8 without control characters)",
				   text_printable(p->name, shown, sizeof(shown)));
	int e = check_kind(r, path, p);
	if (e == 0)
		e = check_device(r, path, p);
	if (e == 0)
		e = check_reuse(r, path, p);
	if (e == 0)
		e = check_sizes(r, path, p, default_limit);
	return e ? e : check_pages(r, path, p);
}

int pool_config_validate(struct pool_config *p, uint64_t default_limit, char *error,
			 size_t error_size)
{
	const struct config_reader r = {.error = error, .error_size = error_size};

	return check_pool(&r, NULL, p, default_limit);
}

/* ------------------------------------------------------------------------------------------- */
/* Pools of the file                                                                           */

static struct pool_config *new_pools(size_t n)
{
	struct pool_config *pools = calloc(n + 1, sizeof(*pools));

	for (size_t i = 0; pools && i < n; i++)
		pools[i] = (struct pool_config)POOL_CONFIG_INIT;
	return pools;
}

void pool_configs_free(struct pool_config *pools, size_t n)
{
	for (size_t i = 0; i < n; i++)
		pool_config_deinit(&pools[i]);
	free(pools);
}

/* Reads one pool into the place that is kept for it, where the caller frees it in any case. */
static int read_pool(const struct config_reader *r, const struct config_path *path, json_t *object,
		     uint64_t default_limit, struct pool_config *p)
{
	static const char *const keys[] = {
	    "name",     "kind",         "device",    "same_address",      "reuse",
	    "limit",    "segment_size", "alignment", "release_threshold", "access",
	    "prefault", "huge_pages",   "numa",
	};
	const struct {
		const char *key;
		bool zero;
		uint64_t *out;
	} sizes[] = {
	    {"limit", false, &p->limit},         {"segment_size", false, &p->segment_size},
	    {"alignment", false, &p->alignment}, {"release_threshold", true, &p->release_threshold},
	    {"prefault", true, &p->prefault},
	};
	const json_t *same_address = json_object_get(object, "same_address");
	const json_t *numa = json_object_get(object, "numa");
	const char *name = NULL, *device = NULL;
	int e = config_check_object(r, path, object, "{\"name\": \"frames\", \"limit\": \"4GiB\"}");

	if (e == 0)
		e = config_check_keys(r, path, object, keys, N_OF(keys));
	if (e == 0)
		e = config_read_string(r, CONFIG_KEY(path, "name"), object, "a name", &name);
	if (e == 0 && name && !(p->name = strdup(name)))
		e = config_fail_memory(r);
	if (e == 0)
		e = config_read_string(r, CONFIG_KEY(path, "kind"), object, "a kind of pool",
				       &p->kind);
	if (e == 0)
		e = config_read_string(r, CONFIG_KEY(path, "device"), object,
				       "the UUID of a device", &device);
	if (e == 0 && device && !(p->device = strdup(device)))
		e = config_fail_memory(r);
	if (e == 0 && same_address && !json_is_boolean(same_address))
		e = config_fail_value(r, CONFIG_KEY(path, "same_address"), same_address,
				      "is neither true nor false");
	p->same_address = json_is_true(same_address);
	if (e == 0)
		e = read_one_of(r, CONFIG_KEY(path, "reuse"), object, "a way to use memory again",
				reuse_names, N_OF(reuse_names), &p->reuse);
	if (e == 0)
		e = read_one_of(r, CONFIG_KEY(path, "huge_pages"), object,
				"a way to have huge pages", huge_pages_names,
				N_OF(huge_pages_names), &p->huge_pages);
	if (e == 0 && numa)
		e = read_numa(r, CONFIG_KEY(path, "numa"), numa, &p->numa);
	for (size_t i = 0; e == 0 && i < N_OF(sizes); i++)
		e = config_read_size(r, CONFIG_KEY(path, sizes[i].key), object, sizes[i].zero,
				     sizes[i].out);
	if (e == 0)
		e = check_pool(r, path, p, default_limit);

	const json_t *access = json_object_get(object, "access");
	if (e == 0 && access)
		e = access_parse(r, CONFIG_KEY(path, "access"), access, &p->access);
	/* what one user leaves is not shown to the next one, unless the operator says so */
	if (e == 0 && !json_object_get(object, "reuse") &&
	    access_lets_several_write(&p->access, geteuid()))
		p->reuse = SHARE_REUSE_SCRUB;
	return e;
}

static int check_is_new(const struct config_reader *r, const struct config_path *path,
			const json_t *object, const struct pool_config *pools, size_t i)
{
	for (size_t k = 0; k < i; k++) {
		if (strcmp(pools[i].name, pools[k].name) == 0)
			return config_fail_value(r, CONFIG_KEY(path, "name"),
						 json_object_get(object, "name"),
						 "is the name of pools[%zu] already", k);
	}
	return 0;
}

int pool_configs_read(const struct config_reader *r, const struct config_path *path,
		      const json_t *array, uint64_t default_limit, struct pool_config **out,
		      size_t *n_out)
{
	size_t n = json_array_size(array);
	int e = 0;

	if (!json_is_array(array))
		return config_fail_value(r, path, array,
					 "is not a list (like [{\"name\": \"frames\"}])");
	if (n > CONFIG_MAX_POOLS)
		return config_fail(r, path, "%zu pools are too many (at most %d)", n,
				   CONFIG_MAX_POOLS);
	struct pool_config *pools = new_pools(n);
	if (!pools)
		return config_fail_memory(r);

	for (size_t i = 0; e == 0 && i < n; i++) {
		const struct config_path *place = CONFIG_INDEX(path, i);
		json_t *object = json_array_get(array, i);

		e = read_pool(r, place, object, default_limit, &pools[i]);
		if (e == 0)
			e = check_is_new(r, place, object, pools, i);
	}
	if (e != 0) {
		pool_configs_free(pools, n);
		return e;
	}
	*out = pools;
	*n_out = n;
	return 0;
}

int pool_configs_default(uint64_t default_limit, struct pool_config **out, size_t *n_out)
{
	struct pool_config *pool = new_pools(1);
	char error[CONFIG_ERROR_MAX];

	if (!pool)
		return -ENOMEM;
	pool->name = strdup("default");
	/* the check has nothing to refuse, as this fills in the defaults */
	if (!pool->name || pool_config_validate(pool, default_limit, error, sizeof(error)) != 0) {
		pool_configs_free(pool, 1);
		return -ENOMEM;
	}
	*out = pool;
	*n_out = 1;
	return 0;
}
