/* SPDX-License-Identifier: MIT */

#include <argp.h>
#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jansson.h>
#include <openssl/evp.h>
#include <share/share.h>

#include "base/system/file.h"
#include "bridge/bridge.h"

#define KEY_MIN 16 /* bytes: fewer can be guessed */
#define KEY_MAX 4096

enum {
	OPTION_KEY = 256,
	OPTION_SITE,
	OPTION_PEER,
	OPTION_EXPORT,
	OPTION_IMPORT,
	OPTION_EXPORT_CHANNEL,
	OPTION_IMPORT_CHANNEL,
	OPTION_EXPORT_SERVICE,
	OPTION_IMPORT_SERVICE,
	OPTION_PREFIX,
	OPTION_GRACE,
	OPTION_TIMEOUT,
	OPTION_GPU,
};

static const struct argp_option options[] = {
    {"config", 'c', "FILE", 0, "Take what is not said here from FILE", 0},
    {"socket", 's', "PATH", 0, "Serve the broker at PATH", 0},
    {"site", OPTION_SITE, "NAME", 0, "What this side is called (the name of the host)", 0},
    {"listen", 'l', "HOST:PORT", 0, "Let peers connect there", 1},
    {"peer", OPTION_PEER, "HOST:PORT", 0, "Connect to the peer there, again and again", 1},
    {"key", OPTION_KEY, "FILE", 0, "The secret that both sides know", 1},
    {"timeout", OPTION_TIMEOUT, "SECONDS", 0, "A peer that is silent for so long is lost (5)", 1},
    {"export", OPTION_EXPORT, "PATTERN", 0, "Let peers have these names", 2},
    {"import", OPTION_IMPORT, "PATTERN[=POLICY]", 0,
     "Have these names of peers: eager (default), or on demand", 2},
    {"pool", 'p', "NAME", 0, "Allocate in this pool (default)", 2},
    {"gpu", OPTION_GPU, "WAY", 0,
     "Memory of GPUs goes by memory of the host (staged, default), or by the transports of CUDA "
     "that "
     "UCX may have (cuda)",
     2},
    {"prefix", OPTION_PREFIX, "TEXT", 0, "Put this in front of each name that comes in", 2},
    {"grace", OPTION_GRACE, "SECONDS", 0,
     "Names of a lost peer go after this time, and are marked stale before (30)", 2},
    {"export-channel", OPTION_EXPORT_CHANNEL, "PATTERN", 0, "Let peers consume these channels", 3},
    {"import-channel", OPTION_IMPORT_CHANNEL, "NAME", 0, "Mirror this channel of a peer", 3},
    {"export-service", OPTION_EXPORT_SERVICE, "PATTERN", 0, "Let peers call these services", 3},
    {"import-service", OPTION_IMPORT_SERVICE, "NAME", 0, "Offer this service of a peer here", 3},
    {NULL, 0, NULL, 0, NULL, 0},
};

static void *or_die(void *p)
{
	if (!p) {
		fprintf(stderr, "share-bridge: no memory\n");
		exit(EXIT_FAILURE);
	}
	return p;
}

/* Whether it may be: it is not empty. */
static bool add(struct patterns *p, const char *text, enum policy policy)
{
	p->all = or_die(realloc(p->all, (p->n + 1) * sizeof(*p->all)));
	p->all[p->n++] = (struct pattern){or_die(strdup(text)), policy};
	return *text;
}

/* "weights/\*", "weights/\*=demand" */
static bool add_import(struct patterns *p, const char *text)
{
	const char *equals = strrchr(text, '=');
	enum policy policy = POLICY_EAGER;
	char *pattern;

	if (equals && strcmp(equals, "=demand") == 0)
		policy = POLICY_DEMAND;
	else if (equals && strcmp(equals, "=eager") != 0)
		return false;
	pattern = or_die(equals ? strndup(text, (size_t)(equals - text)) : strdup(text));
	add(p, pattern, policy);
	free(pattern);
	return true;
}

static bool read_seconds(const char *text, uint32_t *ms)
{
	char *end;
	double value;

	errno = 0;
	value = strtod(text, &end);
	if (end == text || *end || errno || !(value > 0) || value > 86400)
		return false;
	*ms = (uint32_t)(value * 1000);
	return *ms > 0;
}

static bool keep(char **to, const char *text)
{
	if (!*text)
		return false;
	free(*to);
	*to = or_die(strdup(text));
	return true;
}

bool settings_is_site(const char *name)
{
	size_t n = strlen(name);

	return n > 0 && n <= SITE_MAX && strcspn(name, "/") == n && !say_has_control(name);
}

/* One thing that can be said in a file as on the command line. false: it makes no sense. */
static bool set(struct settings *s, int key, const char *value)
{
	switch (key) {
	case 's':
		return keep(&s->broker, value);
	case OPTION_SITE:
		return settings_is_site(value) && keep(&s->site, value);
	case 'l':
		return strrchr(value, ':') && keep(&s->listen, value);
	case OPTION_PEER:
		return add(&s->peers, value, POLICY_EAGER) && strrchr(value, ':');
	case OPTION_KEY:
		return keep(&s->key_file, value);
	case OPTION_TIMEOUT:
		return read_seconds(value, &s->timeout_ms);
	case OPTION_EXPORT:
		return add(&s->out, value, POLICY_EAGER);
	case OPTION_IMPORT:
		return *value && add_import(&s->in, value);
	case 'p':
		return keep(&s->pool, value);
	case OPTION_GPU:
		s->cuda = strcmp(value, "cuda") == 0;
		return s->cuda || strcmp(value, "staged") == 0;
	case OPTION_PREFIX:
		return strlen(value) < SHARE_NAME_MAX && keep(&s->prefix, value);
	case OPTION_GRACE:
		return read_seconds(value, &s->grace_ms);
	case OPTION_EXPORT_CHANNEL:
		return add(&s->channels_out, value, POLICY_EAGER);
	case OPTION_IMPORT_CHANNEL:
		return add(&s->channels_in, value, POLICY_EAGER);
	case OPTION_EXPORT_SERVICE:
		return add(&s->services_out, value, POLICY_EAGER);
	case OPTION_IMPORT_SERVICE:
		return add(&s->services_in, value, POLICY_EAGER);
	default:
		return false;
	}
}

/* Its keys are the long options; what may be said more than once may be an array. */
static const char *set_from_file(struct settings *s, const char *name, const json_t *value)
{
	const struct argp_option *o = options;
	const json_t *one;
	char number[32];
	size_t i;

	while (o->name && strcmp(o->name, name) != 0)
		o++;
	if (!o->name || o->key == 'c')
		return "is unknown: the keys are the long options (share-bridge --help)";
	if (json_is_array(value)) {
		json_array_foreach (value, i, one)
			if (!json_is_string(one) || !set(s, o->key, json_string_value(one)))
				return "has an element that makes no sense";
		return NULL;
	}
	if (json_is_number(value)) {
		snprintf(number, sizeof(number), "%.3f", json_number_value(value));
		return set(s, o->key, number) ? NULL : "makes no sense";
	}
	return json_is_string(value) && set(s, o->key, json_string_value(value)) ? NULL
										 : "makes no sense";
}

static void read_file(struct settings *s, const char *path)
{
	json_error_t error;
	int fd = file_open(path);
	const char *name, *wrong;
	json_t *root, *value;

	if (fd < 0) {
		fprintf(stderr, "share-bridge: %s: %s\n", path, file_error(fd));
		exit(EXIT_FAILURE);
	}
	root = json_loadfd(fd, JSON_REJECT_DUPLICATES, &error);
	close(fd);
	if (!json_is_object(root)) {
		fprintf(stderr, "share-bridge: %s:%d: %s\n", path, root ? 1 : error.line,
			root ? "not an object" : error.text);
		exit(EXIT_FAILURE);
	}
	json_object_foreach (root, name, value) {
		wrong = set_from_file(s, name, value);
		if (wrong) {
			fprintf(stderr, "share-bridge: %s: \"%s\" %s\n", path, name, wrong);
			exit(EXIT_FAILURE);
		}
	}
	json_decref(root);
}

struct reading {
	struct settings *settings;
	const char *file;
	bool file_only; /* the first of two passes: what is said on the command line comes later */
};

static void refuse(struct argp_state *state, int key, const char *value)
{
	const struct argp_option *o = options;

	while (o->name && o->key != key)
		o++;
	argp_error(state, "--%s takes %s, and '%s' is none", o->name ? o->name : "?",
		   o->name && o->arg ? o->arg : "nothing", value);
}

static error_t parse(int key, char *value, struct argp_state *state)
{
	struct reading *r = state->input;

	switch (key) {
	case 'c':
		if (r->file_only)
			read_file(r->settings, value);
		return 0;
	case ARGP_KEY_ARG:
		argp_error(state, "'%s' is one argument too many", value);
		return 0;
	case ARGP_KEY_INIT:
	case ARGP_KEY_NO_ARGS:
	case ARGP_KEY_END:
	case ARGP_KEY_SUCCESS:
	case ARGP_KEY_FINI:
	case ARGP_KEY_ERROR:
		return ARGP_ERR_UNKNOWN;
	default:
		if (!value)
			return ARGP_ERR_UNKNOWN;
		if (!r->file_only && !set(r->settings, key, value))
			refuse(state, key, value);
		return 0;
	}
}

static const struct argp argp = {
    options,
    parse,
    NULL,
    "Lets names, channels and services of one host appear on another.\v"
    "Both sides run a bridge with the same key. One listens, the other connects; either may export "
    "and import. PATTERN is as in the shell, but '*' matches '/' too. The file of --config is a "
    "JSON "
    "object whose keys are the long options.",
    NULL,
    NULL,
    NULL};

static void die(const char *path, const char *why)
{
	fprintf(stderr, "share-bridge: the key %s: %s\n", path, why);
	exit(EXIT_FAILURE);
}

/* The key is made from what the file holds, so that it may be as long as people like. */
static void read_key(struct settings *s)
{
	unsigned char text[KEY_MAX + 1];
	struct stat st;
	ssize_t n;
	int fd = file_open(s->key_file);

	if (fd < 0)
		die(s->key_file, file_error(fd));
	if (fstat(fd, &st) != 0 || (st.st_mode & 077) != 0)
		die(s->key_file, "others may read it (chmod 600)");
	n = read(fd, text, sizeof(text));
	close(fd);
	while (n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'))
		n--;
	if (n < KEY_MIN || n > KEY_MAX)
		die(s->key_file, "it has to have 16 to 4096 bytes");
	if (EVP_Digest(text, (size_t)n, s->key, NULL, EVP_sha256(), NULL) != 1)
		die(s->key_file, "libcrypto has no SHA-256");
	OPENSSL_cleanse(text, sizeof(text));
}

static void defaults(struct settings *s)
{
	char host[HOST_NAME_MAX + 1] = "";

	*s = (struct settings){.grace_ms = 30000, .timeout_ms = 5000};
	gethostname(host, sizeof(host) - 1);
	keep(&s->site, *host ? host : "localhost");
	keep(&s->pool, "default");
	s->prefix = or_die(strdup(""));
}

void settings_read(struct settings *s, int argc, char **argv)
{
	struct reading r = {.settings = s, .file_only = true};

	argp_program_version = "share-bridge " SHARE_VERSION;
	argp_err_exit_status = 2;
	defaults(s);
	argp_parse(&argp, argc, argv, 0, NULL, &r);
	r.file_only = false;
	argp_parse(&argp, argc, argv, 0, NULL, &r);
	if (!s->listen && s->peers.n == 0) {
		fprintf(stderr,
			"share-bridge: neither --listen nor --peer: there is nobody to talk "
			"to\n");
		exit(2);
	}
	if (!s->key_file) {
		fprintf(stderr, "share-bridge: no --key\n");
		exit(2);
	}
	read_key(s);
}

static void patterns_free(struct patterns *p)
{
	for (size_t i = 0; i < p->n; i++)
		free(p->all[i].text);
	free(p->all);
}

void settings_free(struct settings *s)
{
	struct patterns *lists[] = {&s->peers,       &s->in,           &s->out,
				    &s->channels_in, &s->channels_out, &s->services_in,
				    &s->services_out};
	char *texts[] = {s->broker, s->site, s->listen, s->pool, s->prefix, s->key_file};

	for (size_t i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
		patterns_free(lists[i]);
	for (size_t i = 0; i < sizeof(texts) / sizeof(texts[0]); i++)
		free(texts[i]);
	OPENSSL_cleanse(s->key, sizeof(s->key));
}

const struct pattern *patterns_match(const struct patterns *p, const char *name)
{
	for (size_t i = 0; i < p->n; i++)
		if (fnmatch(p->all[i].text, name, 0) == 0)
			return &p->all[i];
	return NULL;
}
