/* SPDX-License-Identifier: MIT */

/*
 * What makes a broker one of the layout after this one (broker/journal/record.h): each kind of
 * object has one member more, which is to be in a record of that layout, and in no other.
 *
 * With $SHARE_TEST_DIES_UNTIL those before the broker of that number are killed when they are about
 * to serve.
 */

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "broker/broker.h"
#include "broker/journal/inside.h"
#include "broker/journal/object.h"
#include "broker/keeper/kept.h"
#include "broker/life/inside.h"

#define MORE UINT64_C(0x6d6f726500000000)

uint32_t __real_state_layout(void);
uint32_t __wrap_state_layout(void);
uint32_t __wrap_state_layout(void)
{
	return __real_state_layout() + 1;
}

static const struct object_kind *of_today;

static void fields(struct record *r, void *object)
{
	uint64_t more = MORE + of_today->type, member = r->is_read ? 0 : more;

	of_today->fields(r, object);
	if (!record_has(r, __wrap_state_layout()))
		return;
	record_u64(r, &member);
	if (record_reads(r) && member != more)
		record_fail(r, -EBADMSG);
}

/* While others of its kind are read, an object of another kind may be put. */
static struct object_kind begin(const struct object_kind *kind)
{
	struct object_kind next = *kind;

	of_today = kind;
	next.fields = fields;
	return next;
}

void __real_object_put(struct journal *j, const struct object_kind *kind, void *object);
void __wrap_object_put(struct journal *j, const struct object_kind *kind, void *object);
void __wrap_object_put(struct journal *j, const struct object_kind *kind, void *object)
{
	const struct object_kind *before = of_today, next = begin(kind);

	__real_object_put(j, &next, object);
	of_today = before;
}

int __real_objects_restore(struct journal *j, const struct object_kind *kind, struct broker *b);
int __wrap_objects_restore(struct journal *j, const struct object_kind *kind, struct broker *b);
int __wrap_objects_restore(struct journal *j, const struct object_kind *kind, struct broker *b)
{
	const struct object_kind next = begin(kind);

	return __real_objects_restore(j, &next, b);
}

static unsigned generation; /* of a broker that is about to serve */

int __real_restore_requests(struct broker *b);
int __wrap_restore_requests(struct broker *b);
int __wrap_restore_requests(struct broker *b)
{
	int r = __real_restore_requests(b);

	generation = b->generation;
	return r;
}

void __real_kept_serves(void);
void __wrap_kept_serves(void);
void __wrap_kept_serves(void)
{
	const char *until = getenv("SHARE_TEST_DIES_UNTIL");

	if (until && generation > 0 && generation < strtoul(until, NULL, 10))
		kill(getpid(), SIGKILL);
	__real_kept_serves();
}
