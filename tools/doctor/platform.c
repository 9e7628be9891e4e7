/* SPDX-License-Identifier: MIT */

/*
 * In which tier of docs/platforms.md this machine is. The rows here are rows of that document,
 * which a test compares. A machine consists of several of them (its system, its kernel, its GPUs,
 * what they are set to), and the worst tier counts: nobody has tried the whole where nobody has
 * tried a part.
 */

#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

#include "tools/doctor/inside.h"

enum tier { TESTED, TRIED, EXPECTED, BUILT, UNKNOWN, NOT };

static const char *const words[] = {
    [TESTED] = "tested", [TRIED] = "tried",     [EXPECTED] = "expected",
    [BUILT] = "built",   [UNKNOWN] = "unknown", [NOT] = "not",
};

static const char *const costs[] = {
    [TRIED] = "no test runs there at each change of the code",
    [EXPECTED] = "nobody has run the tests there, and nothing is known that speaks against it",
    [BUILT] = "the code was built for it and never ran on one",
    [UNKNOWN] = "nobody knows whether it works there",
    [NOT] = "it does not work there, or with less, as docs/platforms.md says",
};

struct row {
	const char *name;
	enum tier tier;
};

static const struct row debian = {"Debian 12, x86-64", TESTED},
			other = {"another Linux with a glibc from 2.34 on, x86-64", EXPECTED},
			arm64 = {"arm64", BUILT}, alien = {"another processor", NOT},
			wsl = {"WSL 2", EXPECTED}, new_kernel = {"Linux 6.5 and later", TESTED},
			old_kernel = {"Linux 5.4 to 6.4", EXPECTED},
			ancient_kernel = {"Linux before 5.4", NOT},
			no_gpu = {"no GPU, no driver", TESTED},
			known_gpu = {"H100, H200, driver 580", TRIED},
			other_gpu = {"another GPU from Volta on, driver 525 or later", EXPECTED},
			old_driver = {"a driver before 525", NOT}, mps = {"MPS", TRIED},
			mig = {"MIG", EXPECTED}, confidential = {"confidential computing", UNKNOWN},
			jetson = {"Jetson", UNKNOWN};

/* What is found of this machine: the rows in words, and the worst of their tiers. */
struct place {
	char text[512];
	enum tier worst;
};

static void add(struct place *p, const struct row *row)
{
	size_t n = strlen(p->text);

	snprintf(p->text + n, sizeof(p->text) - n, "%s%s: %s", n ? "; " : "", row->name,
		 words[row->tier]);
	if (row->tier > p->worst)
		p->worst = row->tier;
}

static const struct row *system_of(const struct examination *e)
{
	struct utsname name;
	char text[2048];

	uname(&name);
	if (strcmp(name.machine, "aarch64") == 0)
		return &arm64;
	if (strcmp(name.machine, "x86_64") != 0)
		return &alien;
	if (read_text(e, "/etc/os-release", text, sizeof(text)) && strstr(text, "ID=debian\n") &&
	    strstr(text, "VERSION_ID=\"12\""))
		return &debian;
	return &other;
}

static const struct row *kernel_of(const struct examination *e)
{
	unsigned major = 0, minor = 0;
	char text[256];

	read_text(e, "/proc/sys/kernel/osrelease", text, sizeof(text));
	if (strstr(text, "microsoft"))
		return &wsl;
	if (sscanf(text, "%u.%u", &major, &minor) != 2 || major < 5 || (major == 5 && minor < 4))
		return &ancient_kernel;
	return major > 6 || (major == 6 && minor >= 5) ? &new_kernel : &old_kernel;
}

/* Every GPU is of the models that were tried. */
static bool are_known(const struct examination *e)
{
	char pattern[4096], text[1024];
	glob_t gpus = {0};
	bool known;

	snprintf(pattern, sizeof(pattern), "%s/proc/driver/nvidia/gpus/*/information", e->root);
	known = glob(pattern, 0, NULL, &gpus) == 0;
	for (size_t i = 0; known && i < gpus.gl_pathc; i++)
		known = read_text(e, gpus.gl_pathv[i] + strlen(e->root), text, sizeof(text)) &&
			(strstr(text, "H100") || strstr(text, "H200"));
	globfree(&gpus);
	return known;
}

/* "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.03  …": the first number with a point.
 */
static unsigned driver_of(const char *version)
{
	unsigned major, minor;

	for (const char *c = version; (c = strchr(c, ' ')) != NULL; c++)
		if (sscanf(c, " %u.%u", &major, &minor) == 2)
			return major;
	return 0;
}

static void add_gpus(struct place *p, const struct examination *e)
{
	unsigned driver = driver_of(e->driver);

	if (exists(e, "/etc/nv_tegra_release"))
		add(p, &jetson);
	else if (!*e->driver)
		add(p, &no_gpu);
	else if (driver < 525)
		add(p, &old_driver);
	else
		add(p, driver == 580 && are_known(e) ? &known_gpu : &other_gpu);
	if (e->mps)
		add(p, &mps);
	if (e->mig)
		add(p, &mig);
	if (e->confidential)
		add(p, &confidential);
}

void examine_platform(struct examination *e)
{
	struct place p = {.worst = TESTED};

	add(&p, system_of(e));
	add(&p, kernel_of(e));
	add_gpus(&p, e);
	found(e, "platform", p.worst <= TRIED ? OK : NOTE, costs[p.worst],
	      p.worst <= TRIED ? NULL
			       : "scripts/test, and test-gpu where there is a GPU, say whether it "
				 "works here; docs/platforms.md has what is known",
	      "%s (%s)", words[p.worst], p.text);
}
