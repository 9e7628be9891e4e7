/* SPDX-License-Identifier: MIT */

/* UCX for the bridge as a whole, and what it can do here; its links are in data.c. */

#include <sched.h>
#include <stdlib.h>

#include "bridge/bridge.h"
#include "bridge/data/inside.h"
#include "bridge/link.h"

#define FEW 4 /* processors that whoever is woken has to share with who stays awake */

/* The default of UCX is 8 to 64 KiB, and each costs a system call on both sides. */
#define SEGMENT "256k"

static bool takes_cuda(ucp_context_h context)
{
	ucp_context_attr_t attr = {.field_mask = UCP_ATTR_FIELD_MEMORY_TYPES};

	return ucp_context_query(context, &attr) == UCS_OK &&
	       (attr.memory_types & UCS_BIT(UCS_MEMORY_TYPE_CUDA));
}

static bool may_take_cuda(const struct bridge *b)
{
	share_pool_info info = SHARE_POOL_INFO_INIT;

	if (share_pool_get_info(b->pool, &info) != 0)
		return false;
	if (b->ordinal >= 0 && !memory_is_cuda(info.kind)) {
		say("memory of GPUs is staged, as the pool is of kind %s", info.kind);
		return false;
	}
	if (takes_cuda(b->data->context))
		return true;
	say("UCX has no transports of CUDA here: memory of GPUs is staged");
	return false;
}

void data_prepare(void)
{
	setenv("UCX_TCP_TX_SEG_SIZE", SEGMENT, 0);
	setenv("UCX_TCP_RX_SEG_SIZE", SEGMENT, 0);
}

static bool has_few_processors(void)
{
	cpu_set_t set;

	return sched_getaffinity(0, sizeof(set), &set) == 0 && CPU_COUNT(&set) <= FEW;
}

int data_open(struct bridge *b)
{
	ucp_params_t params = {
	    .field_mask = UCP_PARAM_FIELD_FEATURES,
	    .features = UCP_FEATURE_AM | UCP_FEATURE_WAKEUP,
	};
	ucp_config_t *config;
	ucs_status_t s;

	b->data = calloc(1, sizeof(*b->data));
	if (b->data)
		b->data->staging = staging_open(b);
	if (!b->data || !b->data->staging)
		return -1;
	s = ucp_config_read(NULL, NULL, &config);
	if (s == UCS_OK) {
		s = ucp_init(&params, config, &b->data->context);
		ucp_config_release(config);
	}
	if (s != UCS_OK) {
		say("UCX does not start: %s", ucs_status_string(s));
		return -1;
	}
	b->data->few = has_few_processors();
	if (b->settings->cuda)
		b->data->cuda = may_take_cuda(b);
	return 0;
}

void data_close(struct bridge *b)
{
	if (!b->data)
		return;
	if (b->data->context && !b->data->has_remains)
		ucp_cleanup(b->data->context);
	staging_close(b->data->staging);
	free(b->data);
	b->data = NULL;
}

bool data_wants_pieces(const struct link *l)
{
	return is_staged(l->data, link_bridge(l)->ordinal);
}
