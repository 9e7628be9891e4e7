/* SPDX-License-Identifier: MIT */

/*
 * The driver and its GPUs. CUDA is not called, which would make a context and start daemons: what
 * there is to know without it is in /proc, in /dev and in the management library of the driver,
 * which is loaded only here and only if there is a driver. Which GPUs can be used is the broker's
 * to say.
 */

#include <dlfcn.h>
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "tools/doctor/inside.h"
#include "tools/snapshot.h"

static void examine_files(struct examination *e)
{
	static const char *const files[] = {"/dev/nvidiactl", "/dev/nvidia-uvm"};
	char path[4096];

	for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
		snprintf(path, sizeof(path), "%s%s", e->root, files[i]);
		if (access(path, R_OK | W_OK) == 0)
			continue;
		found(
		    e, "device files", BAD, "CUDA does not work here",
		    errno == ENOENT
			? "nvidia-modprobe -u -c 0 before the broker starts; --gpus of a container"
			: "chmod, or add this user to the group of the file",
		    "%s: %s", files[i], strerror(errno));
		return;
	}
	found(e, "device files", OK, NULL, NULL, "this user may use them");
}

static void examine_devices(struct examination *e)
{
	json_t *rows;

	if (!e->client)
		return;
	if (snapshot_rows(e->client, "devices", &rows) != 0)
		found(e, "GPUs", NOTE, "pools are memory of the host", NULL, "%s",
		      share_error_detail());
	else
		found(e, "GPUs", OK, NULL, NULL, "the broker has %zu: sharectl devices",
		      json_array_size(rows));
	json_decref(rows);
}

static void examine_mps(struct examination *e)
{
	const char *directory = getenv("CUDA_MPS_PIPE_DIRECTORY");
	char path[4096];

	snprintf(path, sizeof(path), "%s/control", directory ? directory : "/tmp/nvidia-mps");
	e->mps = exists(e, path);
	if (e->mps)
		found(e, "MPS", NOTE,
		      "a fault in one process can end the work of all that share the GPU by MPS; "
		      "the broker's agents stay outside, so its memory survives",
		      "nothing, unless these processes do not trust each other", "it runs (%s)",
		      path);
	else
		found(e, "MPS", OK,
		      "work that goes from one process to another waits until the GPU changes "
		      "between them, about 0.3 ms",
		      "nvidia-cuda-mps-control -d, if they trust each other", "it does not run");
}

static void examine_mig(struct examination *e)
{
	char pattern[4096];
	glob_t instances = {0};

	snprintf(pattern, sizeof(pattern), "%s/proc/driver/nvidia/capabilities/gpu*/mig/gi*",
		 e->root);
	e->mig = glob(pattern, 0, NULL, &instances) == 0;
	if (e->mig)
		found(e, "MIG", NOTE, "memory is not shared between instances",
		      "give programs that share memory the same instance (CUDA_VISIBLE_DEVICES)",
		      "%zu GPU instances", instances.gl_pathc);
	else
		found(e, "MIG", OK, NULL, NULL, "no GPU is split");
	globfree(&instances);
}

/* As NVML has it: nvmlSystemGetConfComputeState(). */
struct conf_compute_state {
	unsigned environment, feature, dev_tools;
};

/* Asks the management library whether GPUs do confidential computing. Returns false if it does not
 * say. */
static bool ask_nvml(bool *out)
{
	void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW);
	struct conf_compute_state state = {0};
	int (*init)(void), (*shutdown)(void), (*get)(struct conf_compute_state *);
	bool known = false;

	if (!library)
		return false;
	*(void **)&init = dlsym(library, "nvmlInit_v2");
	*(void **)&shutdown = dlsym(library, "nvmlShutdown");
	*(void **)&get = dlsym(library, "nvmlSystemGetConfComputeState");
	if (init && shutdown && get && init() == 0) {
		known = get(&state) == 0;
		shutdown();
	}
	dlclose(library);
	*out = state.feature != 0;
	return known;
}

static void examine_confidential_computing(struct examination *e, bool driver)
{
	bool guest = exists(e, "/dev/tdx_guest") || exists(e, "/dev/sev-guest");
	bool on = false, known = driver && ask_nvml(&on);

	e->confidential = on;
	if (on)
		found(
		    e, "confidential computing", NOTE,
		    "GPUs cannot reach memory of the host: fences are signalled and awaited by the "
		    "host, which is slower",
		    "SHARE_HOST_FENCES=1, if the library does not see it by itself",
		    "it is on for the GPUs");
	else
		found(e, "confidential computing", OK, NULL, NULL, "%s%s",
		      guest ? "this is a confidential guest; " : "",
		      known    ? "it is off for the GPUs"
		      : driver ? "the driver does not say whether it is on"
			       : "there are no GPUs that could do it");
}

void examine_gpus(struct examination *e)
{
	bool driver = read_text(e, "/proc/driver/nvidia/version", e->driver, sizeof(e->driver));

	e->driver[strcspn(e->driver, "\n")] = '\0';
	if (driver) {
		found(e, "driver", OK, NULL, NULL, "%s", e->driver);
		examine_files(e);
	} else {
		found(e, "driver", NOTE, "pools are memory of the host",
		      "nothing, if that is wanted; else install the driver", "there is none");
	}
	examine_devices(e);
	if (driver) {
		examine_mps(e);
		examine_mig(e);
	}
	examine_confidential_computing(e, driver);
}
