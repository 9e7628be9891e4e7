/* SPDX-License-Identifier: MIT */

/*
 * Which kind of memory a pool has, on which device. "auto" takes the best kind that some device can
 * make, and host memory if there is none. A request that names a kind or a device gets that, or is
 * told why not.
 */

#include <stdio.h>
#include <string.h>

#include <share/share.h>

#include "broker/broker.h"
#include "broker/device/choice.h"
#include "broker/device/device.h"

static const struct memory_kind *kind_named(const char *name)
{
	return memory_kind_by_name(name, strlen(name));
}

static int choose_host(const struct memory_kind *kind, const char *why, struct choice *out)
{
	out->kind = kind;
	out->device = NULL;
	snprintf(out->reason, sizeof(out->reason), "%s", why);
	return 0;
}

/* Lists the kinds that "auto" takes and a device may be able to make: "vmm or mempool". */
static const char *device_kinds(char *out, size_t size)
{
	const struct memory_kind *kind;
	size_t n = 0;

	for (size_t i = 0; (kind = memory_kind_at(i)) && n < size; i++)
		if (kind->on_device && !kind->named_only)
			n += (size_t)snprintf(out + n, size - n, "%s%s", n ? " or " : "",
					      kind->name);
	return out;
}

struct wanted {
	const char *kind;
	const char *device; /* NULL: any */
	uint32_t flags;
	uint64_t limit;
};

static bool fits(const struct memory_kind *kind, const struct wanted *w)
{
	return kind->placeable || !(w->flags & SHARE_POOL_SAME_ADDRESS);
}

static bool has_room(const struct memory_kind *kind, const struct device *d, const struct wanted *w)
{
	return w->limit >= kind->granularity && w->limit >= d->granularity;
}

/* Finds the first device that can do it, of all devices or of the one that is named. */
static struct device *find_able(struct broker *b, const char *uuid, uint32_t flag)
{
	struct device *d;

	LIST_FOREACH (d, &b->devices->list, link)
		if (!d->gone && d->flags & flag && (!uuid || strcmp(d->uuid, uuid) == 0))
			return d;
	return NULL;
}

static int no_such_device(struct broker *b, const char *uuid, struct failure *failure)
{
	const struct device *d;
	char there[768] = "";
	size_t n = 0;

	LIST_FOREACH (d, &b->devices->list, link)
		if (!d->gone && n < sizeof(there))
			n += (size_t)snprintf(there + n, sizeof(there) - n, " %s (%s)", d->uuid,
					      d->name);
	return failure_set(failure, SHARE_ENODEV, "there is no device %s here; there %s%s", uuid,
			   LIST_EMPTY(&b->devices->list) ? "is none" : "are:", there);
}

static int choose_on_device(struct broker *b, const struct wanted *w, struct choice *out,
			    struct failure *failure)
{
	bool any = strcmp(w->kind, "auto") == 0;
	const struct memory_kind *kind;
	char kinds[128];

	for (size_t i = 0; (kind = memory_kind_at(i)); i++) {
		struct device *d;

		if (!kind->on_device || (any && kind->named_only) ||
		    (!any && strcmp(w->kind, kind->name) != 0) || !fits(kind, w))
			continue;
		d = find_able(b, w->device, kind->ability);
		if (!d)
			continue;
		if (!has_room(kind, d, w)) {
			return failure_set(
			    failure, SHARE_EINVAL,
			    "limit: %llu bytes are less than a segment of kind %s on %s "
			    "(%llu)",
			    (unsigned long long)w->limit, kind->name, d->uuid,
			    (unsigned long long)(d->granularity > kind->granularity
						     ? d->granularity
						     : kind->granularity));
		}
		out->kind = kind;
		out->device = d;
		snprintf(out->reason, sizeof(out->reason), "%s on %s (%s)%s", kind->name, d->uuid,
			 d->name, any ? ": the best kind it can do" : ", as asked");
		return 0;
	}
	return failure_set(
	    failure, SHARE_ENOTSUP, "%s cannot make memory of kind %s%s%s",
	    w->device ? w->device : "no device here",
	    any ? device_kinds(kinds, sizeof(kinds)) : w->kind,
	    !any && kind_named(w->kind)->of_host
		? ": the driver does not say that it reaches memory of a NUMA node of the host"
		: "",
	    w->flags & SHARE_POOL_SAME_ADDRESS ? " at the same address in every process" : "");
}

int choose(struct broker *b, const char *wanted, const char *device, uint32_t flags, uint64_t limit,
	   struct choice *out, struct failure *failure)
{
	const struct wanted w = {wanted, device, flags, limit};
	const struct memory_kind *kind = kind_named(wanted);
	const struct device *d = device ? device_find(b, device) : NULL;
	char why[512];
	int r;

	if (kind && !kind->on_device) {
		snprintf(why, sizeof(why), "%s, as asked", kind->name);
		return choose_host(kind, why, out);
	}
	if (!devices_known(b, false))
		return CHOICE_LATER;
	r = devices_error(b);
	if (device && r == 0 && (!d || d->gone))
		return no_such_device(b, device, failure);
	if (r != 0)
		failure_set(failure, r, "%s", b->devices->text);
	else
		r = choose_on_device(b, &w, out, failure);
	if (r == 0 || kind || device)
		return r;
	snprintf(why, sizeof(why), "GPU memory is not to be had: %.400s", failure->text);
	return choose_host(memory_kind_by_id(MEMORY_HOST), why, out);
}
