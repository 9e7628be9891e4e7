/* SPDX-License-Identifier: MIT */

/*
 * sharectl doctor looks at what nobody sees until a program fails or is slow: rights, limits,
 * features of the kernel and of drivers. It changes nothing, and needs neither a broker nor a GPU,
 * since it is asked when one of them is missing. It judges in three steps only: "bad" is what makes
 * calls fail, "note" is what works and has a price, and the rest is "ok".
 */

#include <string.h>
#include <unistd.h>

#include "tools/doctor/doctor.h"
#include "tools/doctor/inside.h"
#include "tools/snapshot.h"

static void tell_no_broker(struct examination *e, int error, const char *detail)
{
	e->client = NULL; /* who does not answer this does not answer the next question, either */
	if (error == SHARE_ETIMEDOUT)
		found(
		    e, "broker", BAD, "programs wait, whatever they ask it",
		    "wait for hang_ms, or end the process that hangs (kill -KILL): the next "
		    "broker goes on with all clients; /proc/PID/stack says to root where it hangs",
		    "%s", detail);
	else
		found(e, "broker", BAD, "programs cannot connect",
		      "start it (systemctl start share-broker.socket), name its socket in "
		      "SHARE_SOCKET, or run the program under share-run",
		      "%s", detail);
}

static void examine_status(struct examination *e)
{
	const json_t *status;
	json_t *rows;
	int r = snapshot_rows(e->client, "status", &rows);

	status = json_array_get(rows, 0);
	if (r == SHARE_ETIMEDOUT)
		tell_no_broker(e, r, share_error_detail());
	else if (r != 0)
		found(e, "broker", BAD, "programs cannot use it", NULL, "%s", share_error_detail());
	else
		found(e, "broker", OK, NULL, NULL, "version %s, process %lld, serves at %s",
		      json_string_value(json_object_get(status, "version")),
		      json_integer_value(json_object_get(status, "pid")), share_address(e->client));
	if (r == 0)
		e->broker_pid = json_integer_value(json_object_get(status, "pid"));
	json_decref(rows);
}

static void examine_permissions(struct examination *e)
{
	json_t *rows;
	int r = snapshot_rows(e->client, "pools", &rows);
	size_t n = json_array_size(rows);

	if (r == SHARE_ETIMEDOUT)
		tell_no_broker(e, r, share_error_detail());
	else if (r == 0 && n > 0)
		found(e, "permissions", OK, NULL, NULL, "this user (uid %u) may use %zu pool%s",
		      (unsigned)getuid(), n, n == 1 ? "" : "s");
	else
		found(e, "permissions", NOTE, "programs of this user find no pool",
		      "add the user to the \"access\" of a pool: share-broker.conf(5)",
		      "there is no pool that this user (uid %u) may use", (unsigned)getuid());
	json_decref(rows);
}

static void examine_broker(struct examination *e)
{
	if (e->client)
		examine_status(e);
	else
		tell_no_broker(e, e->error, e->detail);
	if (e->broker_pid)
		examine_permissions(e);
}

json_t *doctor_examine(const char *root, share_client *client, int error, const char *detail)
{
	struct examination e = {.root = root,
				.client = client,
				.error = error,
				.detail = detail,
				.findings = json_array()};

	examine_broker(&e);
	examine_old_memory(&e);
	examine_kernel(&e);
	examine_limits(&e);
	examine_memory(&e);
	examine_gpus(&e);
	examine_platform(&e);
	return e.findings;
}

static const char *text_of(const json_t *finding, const char *key)
{
	return json_string_value(json_object_get(finding, key));
}

bool doctor_is_content(const json_t *findings)
{
	json_t *finding;
	size_t i;

	json_array_foreach (findings, i, finding)
		if (strcmp(text_of(finding, "state"), "bad") == 0)
			return false;
	return true;
}

void doctor_print(FILE *out, const json_t *findings)
{
	json_t *finding;
	size_t i;

	json_array_foreach (findings, i, finding) {
		fprintf(out, "%-4s  %s: %s\n", text_of(finding, "state"),
			text_of(finding, "subject"), text_of(finding, "found"));
		if (text_of(finding, "costs"))
			fprintf(out, "      costs: %s\n", text_of(finding, "costs"));
		if (text_of(finding, "do"))
			fprintf(out, "      do: %s\n", text_of(finding, "do"));
	}
}
