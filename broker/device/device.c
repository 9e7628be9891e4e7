/* SPDX-License-Identifier: MIT */

/* How a device is found, by its UUID as text. */

#include <errno.h>
#include <string.h>

#include "broker/broker.h"
#include "broker/device/device.h"
#include "broker/journal/record.h"

struct device *device_find(struct broker *b, const char *uuid)
{
	struct device *d;

	LIST_FOREACH (d, &b->devices->list, link)
		if (strcmp(d->uuid, uuid) == 0)
			return d;
	return NULL;
}

void record_device(struct record *r, struct device **d)
{
	char uuid[sizeof((*d)->uuid)] = "";

	if (*d)
		memcpy(uuid, (*d)->uuid, sizeof(uuid));
	record_text(r, uuid, sizeof(uuid));
	if (!record_reads(r) || !*uuid)
		return;
	*d = device_find(r->broker, uuid);
	if (!*d)
		record_fail(r, -EBADMSG);
}
