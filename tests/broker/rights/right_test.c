/* SPDX-License-Identifier: MIT */

/*
 * Who may do what: one pure function, and a table of what it says. What is read into the lists that
 * it asks is access_test's and config_test's, but for what names begin with, which is here as well.
 *
 * Files are memfds, so nothing is left behind.
 */

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include <criterion/criterion.h>

#include "broker/config/config.h"
#include "broker/config/lists.h"
#include "broker/rights/right.h"

TestSuite(right, .timeout = 30);

#define ALICE 70001
#define BOB   70002
#define CAROL 70003
#define ADMIN 70009
#define VIDEO 70044 /* a group */

/* What the operator says, in the rows that follow each of these. */
#define NOTHING "{}"
#define POOLS   "{\"admins\": [70009], \"create_pools\": [70001, \"@70044\"]}"
#define OWNED                                                                       \
	"{\"create_pools\": [\"*\"], \"names\": {\"frames/\": [70001, \"@70044\"]," \
	" \"frames/right/\": [70002], \"open/\": [\"*\"], \"closed\": [],"          \
	" \"uid/70001/for-bob/\": [70002], \"uid/70002/\": [70001]}}"
#define RIGHTS                                                                           \
	"{\"admins\": [70009], \"create_pools\": [\"*\"], \"names\": {"                  \
	"\"films/\": {\"use\": [70002], \"publish\": [70001], \"create\": [\"@70044\"]," \
	" \"manage\": [70003]},"                                                         \
	"\"films/all/\": {\"publish\": [70001]},"                                        \
	"\"films/none/\": {\"use\": []},"                                                \
	"\"uid/70001/\": {\"use\": [70001], \"publish\": [70001], \"create\": [70001]}}}"

/* What "access" of a pool says. */
#define FOR_ALL     "[{\"user\": \"*\", \"mode\": \"rw\"}]"
#define FOR_READING "[{\"user\": \"*\", \"mode\": \"ro\"}]"
#define FOR_BOB     "[{\"user\": 70002, \"mode\": \"rw\"}, {\"group\": 70044, \"mode\": \"ro\"}]"
#define BOB_MANAGES "[{\"user\": 70002, \"mode\": \"manage\"}]"

struct thing {
	const char *name; /* NULL: whichever */
	bool is_owned;
	uid_t owner;
	const char *list; /* a pool's */
};

/* One that is there, and who has made it; one that is to be made. */
#define OF(name, owner)                 \
	{                               \
		name, true, owner, NULL \
	}
#define NEW(name)                    \
	{                            \
		name, false, 0, NULL \
	}
#define IN(pool, list)              \
	{                           \
		pool, true, 0, list \
	}
#define NOWHERE                      \
	{                            \
		NULL, false, 0, NULL \
	}

#define POOL(name, owner, list) OBJECT_POOL, {name, true, owner, list}, NOWHERE
#define A_POOL(name)            OBJECT_POOL, NEW(name), NOWHERE

static const struct {
	const char *rules;
	uid_t uid;
	gid_t group; /* 0: none */
	enum access_right right;
	enum access_kind kind;
	struct thing what;
	struct thing pool; /* of a name or a channel; without a list: none */
	bool may;
} table[] = {
    /* a pool is reached as its list says */
    {NOTHING, ALICE, 0, RIGHT_READ, POOL("p", 0, "[]"), false},
    {NOTHING, BOB, 0, RIGHT_READ, POOL("p", 0, FOR_BOB), true},
    {NOTHING, BOB, 0, RIGHT_WRITE, POOL("p", 0, FOR_BOB), true},
    {NOTHING, BOB, 0, RIGHT_MANAGE, POOL("p", 0, FOR_BOB), false},
    {NOTHING, CAROL, 0, RIGHT_READ, POOL("p", 0, FOR_BOB), false},
    {NOTHING, CAROL, VIDEO, RIGHT_READ, POOL("p", 0, FOR_BOB), true},
    {NOTHING, CAROL, VIDEO, RIGHT_WRITE, POOL("p", 0, FOR_BOB), false},
    {NOTHING, VIDEO, 0, RIGHT_READ, POOL("p", 0, FOR_BOB), false}, /* a gid is no uid */
    {NOTHING, BOB, 0, RIGHT_MANAGE, POOL("p", 0, BOB_MANAGES), true},
    {NOTHING, BOB, 0, RIGHT_WRITE, POOL("p", 0, BOB_MANAGES), true},
    {NOTHING, CAROL, 0, RIGHT_READ, POOL("p", 0, FOR_READING), true},
    {NOTHING, CAROL, 0, RIGHT_WRITE, POOL("p", 0, FOR_READING), false},
    /* and by who has made it, and by root */
    {NOTHING, ALICE, 0, RIGHT_WRITE, POOL("p", ALICE, "[]"), true},
    {NOTHING, ALICE, 0, RIGHT_MANAGE, POOL("p", ALICE, "[]"), true},
    {NOTHING, BOB, 0, RIGHT_READ, POOL("p", ALICE, "[]"), false},
    {NOTHING, 0, 0, RIGHT_MANAGE, POOL("p", ALICE, "[]"), true},
    {POOLS, ADMIN, 0, RIGHT_WRITE, POOL("p", ALICE, "[]"), true},
    {POOLS, ADMIN, 0, RIGHT_MANAGE, POOL("p", ALICE, "[]"), true},

    /* who may create pools, of whatever name and of this one */
    {NOTHING, ALICE, 0, RIGHT_CREATE, A_POOL(NULL), false},
    {POOLS, ALICE, 0, RIGHT_CREATE, A_POOL(NULL), true},
    {POOLS, BOB, 0, RIGHT_CREATE, A_POOL(NULL), false},
    {POOLS, BOB, VIDEO, RIGHT_CREATE, A_POOL(NULL), true},
    {POOLS, ADMIN, 0, RIGHT_CREATE, A_POOL("uid/70001/x"), true},
    {POOLS, ALICE, 0, RIGHT_CREATE, A_POOL("uid/70001/x"), true},
    {POOLS, ALICE, 0, RIGHT_CREATE, A_POOL("uid/70002/x"), false},
    {OWNED, BOB, 0, RIGHT_CREATE, A_POOL("frames/pool"), false},
    {OWNED, ALICE, 0, RIGHT_CREATE, A_POOL("frames/pool"), true},
    /* channels take the name alone */
    {NOTHING, ALICE, 0, RIGHT_CREATE, OBJECT_CHANNEL, NEW("left"), NOWHERE, true},
    {NOTHING, ALICE, 0, RIGHT_CREATE, OBJECT_CHANNEL, NEW("uid/70002/left"), NOWHERE, false},

    /* what nobody has said anything of is everybody's, to publish of what they may read */
    {OWNED, BOB, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("left"), IN("p", FOR_ALL), true},
    {OWNED, BOB, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("left"), IN("p", FOR_READING), true},
    {OWNED, BOB, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("left"), IN("p", "[]"), false},
    {OWNED, BOB, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("left"), NOWHERE, true},
    {OWNED, BOB, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("frame"), NOWHERE, true},
    {OWNED, BOB, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("frames"), NOWHERE, true},
    {OWNED, BOB, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("uid"), NOWHERE, true},
    {OWNED, BOB, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("uid/"), NOWHERE, true},
    {OWNED, BOB, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("uid/x/"), NOWHERE, true},
    {OWNED, BOB, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("uid//"), NOWHERE, true},
    /* a prefix is its owners' */
    {OWNED, ALICE, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("frames/left"), NOWHERE, true},
    {OWNED, BOB, VIDEO, RIGHT_PUBLISH, OBJECT_NAME, NEW("frames/left"), NOWHERE, true},
    {OWNED, BOB, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("frames/left"), NOWHERE, false},
    {OWNED, VIDEO, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("frames/left"), NOWHERE, false},
    {OWNED, BOB, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("frames/"), NOWHERE, false},
    {OWNED, ALICE, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("frames/"), NOWHERE, true},
    {OWNED, BOB, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("open/house"), NOWHERE, true},
    {OWNED, ALICE, VIDEO, RIGHT_PUBLISH, OBJECT_NAME, NEW("closed"), NOWHERE, false},
    {OWNED, BOB, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("closed/door"), NOWHERE, false},
    {OWNED, BOB, 0, RIGHT_CREATE, OBJECT_CHANNEL, NEW("frames/left"), NOWHERE, false},
    {OWNED, ALICE, 0, RIGHT_CREATE, OBJECT_CHANNEL, NEW("frames/left"), NOWHERE, true},
    /* but what is there is used by all whom its pool lets */
    {OWNED, BOB, 0, RIGHT_READ, OBJECT_NAME, OF("frames/left", ALICE), IN("p", FOR_ALL), true},
    {OWNED, BOB, 0, RIGHT_WRITE, OBJECT_NAME, OF("frames/left", ALICE), IN("p", FOR_ALL), true},
    {OWNED, BOB, 0, RIGHT_WRITE, OBJECT_NAME, OF("frames/left", ALICE), IN("p", FOR_READING),
     false},
    {OWNED, BOB, 0, RIGHT_READ, OBJECT_NAME, OF("frames/left", ALICE), IN("p", "[]"), false},
    {OWNED, BOB, 0, RIGHT_WRITE, OBJECT_CHANNEL, NEW("frames/left"), IN("p", FOR_ALL), true},
    {OWNED, BOB, 0, RIGHT_WRITE, OBJECT_CHANNEL, NEW("frames/left"), IN("p", FOR_READING), false},
    {OWNED, BOB, 0, RIGHT_READ, OBJECT_CHANNEL, NEW("frames/left"), IN("p", FOR_READING), true},
    /* the longest one decides, alone */
    {OWNED, BOB, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("frames/right/1"), NOWHERE, true},
    {OWNED, ALICE, VIDEO, RIGHT_PUBLISH, OBJECT_NAME, NEW("frames/right/1"), NOWHERE, false},
    {OWNED, ALICE, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("frames/right"), NOWHERE, true},
    {OWNED, BOB, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("frames/right"), NOWHERE, false},
    /* each user has one, unless that is given away */
    {OWNED, ALICE, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("uid/70001/x"), NOWHERE, true},
    {OWNED, BOB, VIDEO, RIGHT_PUBLISH, OBJECT_NAME, NEW("uid/70001/x"), NOWHERE, false},
    {OWNED, BOB, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("uid/70001/for-bob/x"), NOWHERE, true},
    {OWNED, ALICE, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("uid/70001/for-bob/x"), NOWHERE, false},
    {OWNED, ALICE, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("uid/70002/x"), NOWHERE, true},
    {OWNED, BOB, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("uid/70002/x"), NOWHERE, false},
    {OWNED, CAROL, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("uid/70003/x"), NOWHERE, true},
    {OWNED, ALICE, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("uid/70003/x"), NOWHERE, false},
    {OWNED, CAROL, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("uid/070003/x"), NOWHERE,
     false}, /* not as it is written */
    {OWNED, ALICE, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("uid/4294967296/x"), NOWHERE, false},
    {OWNED, ALICE, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("uid/99999999999999999999999999/x"), NOWHERE,
     false},
    {OWNED, ALICE, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("uid/70003"), NOWHERE,
     true}, /* not below it */
    {OWNED, BOB, 0, RIGHT_READ, OBJECT_NAME, OF("uid/70001/x", ALICE), IN("p", FOR_ALL), true},
    /* what is published is its publisher's to replace and to withdraw */
    {NOTHING, ALICE, 0, RIGHT_PUBLISH, OBJECT_NAME, OF("left", ALICE), IN("p", FOR_ALL), true},
    {NOTHING, BOB, 0, RIGHT_PUBLISH, OBJECT_NAME, OF("left", ALICE), IN("p", FOR_ALL), false},
    {NOTHING, ALICE, 0, RIGHT_MANAGE, OBJECT_NAME, OF("left", ALICE), IN("p", "[]"), true},
    {NOTHING, BOB, 0, RIGHT_MANAGE, OBJECT_NAME, OF("left", ALICE), IN("p", FOR_ALL), false},
    {NOTHING, BOB, 0, RIGHT_MANAGE, OBJECT_NAME, OF("left", ALICE), IN("p", BOB_MANAGES), false},
    {OWNED, VIDEO, 0, RIGHT_MANAGE, OBJECT_NAME, OF("frames/x", ALICE), IN("p", FOR_ALL), false},
    {POOLS, ADMIN, 0, RIGHT_MANAGE, OBJECT_NAME, OF("left", ALICE), IN("p", "[]"), true},

    /* each right by itself: bob uses, alice publishes, the group creates, carol manages */
    {RIGHTS, BOB, 0, RIGHT_READ, OBJECT_NAME, OF("films/1", ALICE), IN("p", FOR_ALL), true},
    {RIGHTS, BOB, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("films/2"), IN("p", FOR_ALL), false},
    {RIGHTS, BOB, 0, RIGHT_CREATE, OBJECT_CHANNEL, NEW("films/2"), NOWHERE, false},
    {RIGHTS, BOB, 0, RIGHT_CREATE, A_POOL("films/2"), false},
    {RIGHTS, BOB, 0, RIGHT_MANAGE, OBJECT_NAME, OF("films/1", ALICE), IN("p", FOR_ALL), false},
    {RIGHTS, BOB, 0, RIGHT_MANAGE, POOL("films/p", ALICE, FOR_ALL), false},
    {RIGHTS, ALICE, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("films/2"), IN("p", FOR_ALL), true},
    {RIGHTS, ALICE, 0, RIGHT_CREATE, OBJECT_CHANNEL, NEW("films/2"), NOWHERE, false},
    {RIGHTS, ALICE, 0, RIGHT_CREATE, A_POOL("films/2"), false},
    {RIGHTS, ALICE, 0, RIGHT_PUBLISH, OBJECT_NAME, OF("films/2", BOB), IN("p", FOR_ALL), false},
    {RIGHTS, BOB, VIDEO, RIGHT_CREATE, OBJECT_CHANNEL, NEW("films/2"), NOWHERE, true},
    {RIGHTS, BOB, VIDEO, RIGHT_CREATE, A_POOL("films/2"), true},
    {RIGHTS, BOB, VIDEO, RIGHT_PUBLISH, OBJECT_NAME, NEW("films/2"), NOWHERE, false},
    {RIGHTS, CAROL, 0, RIGHT_MANAGE, OBJECT_NAME, OF("films/1", ALICE), IN("p", FOR_ALL), true},
    {RIGHTS, CAROL, 0, RIGHT_MANAGE, POOL("films/p", ALICE, "[]"), true},
    {RIGHTS, CAROL, 0, RIGHT_MANAGE, POOL("p", ALICE, "[]"), false},
    {RIGHTS, CAROL, 0, RIGHT_PUBLISH, OBJECT_NAME, OF("films/1", ALICE), IN("p", FOR_ALL), false},
    /* whoever publishes, creates or manages uses as well; others are kept out, whatever the pool
       says */
    {RIGHTS, ALICE, 0, RIGHT_READ, OBJECT_NAME, OF("films/1", BOB), IN("p", FOR_ALL), true},
    {RIGHTS, CAROL, 0, RIGHT_READ, OBJECT_CHANNEL, NEW("films/1"), IN("p", FOR_ALL), true},
    {RIGHTS, 70004, VIDEO, RIGHT_WRITE, OBJECT_CHANNEL, NEW("films/1"), IN("p", FOR_ALL), true},
    {RIGHTS, 70004, 0, RIGHT_READ, OBJECT_NAME, OF("films/1", ALICE), IN("p", FOR_ALL), false},
    {RIGHTS, 70004, 0, RIGHT_READ, OBJECT_CHANNEL, NEW("films/1"), IN("p", FOR_ALL), false},
    {RIGHTS, 70004, 0, RIGHT_READ, POOL("films/p", 0, FOR_ALL), false},
    {RIGHTS, BOB, 0, RIGHT_READ, POOL("films/p", 0, FOR_ALL), true},
    {RIGHTS, BOB, 0, RIGHT_READ, POOL("films/p", 0, "[]"), false},
    {RIGHTS, CAROL, 0, RIGHT_READ, POOL("films/p", 0, "[]"), false},
    /* what lies in a pool that is called so is as well kept from them */
    {RIGHTS, 70004, 0, RIGHT_READ, OBJECT_NAME, OF("other", BOB), IN("films/p", FOR_ALL), false},
    {RIGHTS, BOB, 0, RIGHT_READ, OBJECT_NAME, OF("other", ALICE), IN("films/p", FOR_ALL), true},
    {RIGHTS, 70004, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("other"), IN("films/p", FOR_ALL), false},
    /* whoever has made it keeps it, though the file says otherwise now */
    {RIGHTS, 70004, 0, RIGHT_READ, OBJECT_NAME, OF("films/1", 70004), IN("p", FOR_ALL), true},
    {RIGHTS, 70004, 0, RIGHT_READ, OBJECT_NAME, OF("films/1", 70004), IN("p", "[]"), false},
    {RIGHTS, 70004, 0, RIGHT_MANAGE, OBJECT_NAME, OF("films/1", 70004), IN("p", "[]"), true},
    {RIGHTS, 70004, 0, RIGHT_WRITE, POOL("films/p", 70004, "[]"), true},
    {RIGHTS, 70004, 0, RIGHT_MANAGE, POOL("films/p", 70004, "[]"), true},
    /* "use" that is not said is everybody's, the others nobody's */
    {RIGHTS, BOB, 0, RIGHT_READ, OBJECT_NAME, OF("films/all/1", ALICE), IN("p", FOR_ALL), true},
    {RIGHTS, 70004, 0, RIGHT_READ, OBJECT_CHANNEL, NEW("films/all/1"), IN("p", FOR_ALL), true},
    {RIGHTS, ALICE, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("films/all/1"), NOWHERE, true},
    {RIGHTS, BOB, VIDEO, RIGHT_CREATE, OBJECT_CHANNEL, NEW("films/all/1"), NOWHERE, false},
    {RIGHTS, CAROL, 0, RIGHT_MANAGE, OBJECT_NAME, OF("films/all/1", ALICE), IN("p", FOR_ALL),
     false},
    {RIGHTS, BOB, 0, RIGHT_READ, OBJECT_NAME, OF("films/none/1", ALICE), IN("p", FOR_ALL), false},
    {RIGHTS, ADMIN, 0, RIGHT_READ, OBJECT_NAME, OF("films/none/1", ALICE), IN("p", "[]"), true},
    /* what is a user's own can be closed to others */
    {RIGHTS, ALICE, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("uid/70001/x"), IN("p", FOR_ALL), true},
    {RIGHTS, BOB, 0, RIGHT_READ, OBJECT_NAME, OF("uid/70001/x", ALICE), IN("p", FOR_ALL), false},
    /* names that only look alike are not meant */
    {RIGHTS, 70004, 0, RIGHT_READ, OBJECT_NAME, OF("films", ALICE), IN("p", FOR_ALL), true},
    {RIGHTS, 70004, 0, RIGHT_PUBLISH, OBJECT_NAME, NEW("film/1"), IN("p", FOR_ALL), true},

    /* connections, tokens, events, accounts: of the same user, or all for administrators */
    {POOLS, ALICE, 0, RIGHT_MANAGE, OBJECT_PROCESS, OF(NULL, ALICE), NOWHERE, true},
    {POOLS, ALICE, 0, RIGHT_READ, OBJECT_PROCESS, OF(NULL, ALICE), NOWHERE, true},
    {POOLS, BOB, VIDEO, RIGHT_MANAGE, OBJECT_PROCESS, OF(NULL, ALICE), NOWHERE, false},
    {POOLS, BOB, VIDEO, RIGHT_READ, OBJECT_PROCESS, OF(NULL, ALICE), NOWHERE, false},
    {POOLS, ADMIN, 0, RIGHT_MANAGE, OBJECT_PROCESS, OF(NULL, ALICE), NOWHERE, true},
    {POOLS, 0, 0, RIGHT_MANAGE, OBJECT_PROCESS, OF(NULL, ALICE), NOWHERE, true},
    /* and the broker for those alone */
    {POOLS, ALICE, 0, RIGHT_MANAGE, OBJECT_BROKER, NEW(NULL), NOWHERE, false},
    {POOLS, ADMIN, 0, RIGHT_MANAGE, OBJECT_BROKER, NEW(NULL), NOWHERE, true},
    {POOLS, 0, 0, RIGHT_MANAGE, OBJECT_BROKER, NEW(NULL), NOWHERE, true},
};

static int load(const char *text, struct config **out, char *error, size_t size)
{
	int fd = memfd_create("broker.json", MFD_CLOEXEC), r;
	char path[32];

	cr_assert_geq(fd, 0);
	cr_assert_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
	snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
	r = config_load(path, out, error, size);
	close(fd);
	return r;
}

static struct config *load_rules(const char *text)
{
	char error[CONFIG_ERROR_MAX] = "";
	struct config *c = NULL;

	cr_assert_eq(load(text, &c, error, sizeof(error)), 0, "%s", error);
	return c;
}

static struct access_list parse_list(const char *text)
{
	struct access_list list = {0};
	char error[CONFIG_ERROR_MAX] = "";

	if (text)
		cr_assert_eq(access_parse_text(text, strlen(text), &list, error, sizeof(error)), 0,
			     "%s", error);
	return list;
}

static struct access_object object_of(enum access_kind kind, const struct thing *t,
				      const struct access_list *list,
				      const struct access_object *pool)
{
	return (struct access_object){
	    .kind = kind,
	    .name = t->name,
	    .size = t->name ? strlen(t->name) : 0,
	    .is_owned = t->is_owned,
	    .owner = t->owner,
	    .access = t->list ? list : NULL,
	    .pool = pool,
	};
}

Test(right, the_table)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		struct config *rules = load_rules(table[i].rules);
		struct access_list its = parse_list(table[i].what.list);
		struct access_list pools = parse_list(table[i].pool.list);
		const gid_t groups[] = {70100, table[i].group};
		const struct access_who who = {table[i].uid, groups, table[i].group ? 2 : 1};
		struct access_object pool = object_of(OBJECT_POOL, &table[i].pool, &pools, NULL);
		struct access_object what = object_of(table[i].kind, &table[i].what, &its,
						      table[i].pool.list ? &pool : NULL);

		cr_expect_eq(access_may(&rules->rights, &who, table[i].right, &what), table[i].may,
			     "row %zu: right %d of uid %u, group %u, on '%s'", i, table[i].right,
			     (unsigned)table[i].uid, (unsigned)table[i].group,
			     table[i].what.name ? table[i].what.name : "");
		access_list_deinit(&its);
		access_list_deinit(&pools);
		config_free(rules);
	}
}

/* Names come without a NUL. */
Test(right, nothing_behind_a_name_counts)
{
	struct config *rules = load_rules(OWNED);
	const struct access_who bob = {BOB, NULL, 0};
	struct access_object o = {.kind = OBJECT_NAME, .name = "frames/left", .size = 6};

	cr_assert(access_may(&rules->rights, &bob, RIGHT_PUBLISH, &o));
	o.size = 7;
	cr_assert_not(access_may(&rules->rights, &bob, RIGHT_PUBLISH, &o));
	o = (struct access_object){.kind = OBJECT_NAME, .name = "uid/70001/", .size = 9};
	cr_assert(access_may(&rules->rights, &bob, RIGHT_PUBLISH, &o));
	o.size = 10;
	cr_assert_not(access_may(&rules->rights, &bob, RIGHT_PUBLISH, &o));
	config_free(rules);
}

static void expect_error(const char *text, const char *expected)
{
	char error[CONFIG_ERROR_MAX] = "";
	struct config *none = NULL;

	cr_assert_eq(load(text, &none, error, sizeof(error)), CONFIG_EINVALID);
	cr_assert_not_null(strstr(error, expected), "%s", error);
	cr_assert_null(none);
}

Test(right, what_is_no_list_of_owners_is_refused)
{
	expect_error("{\"names\": []}",
		     ":1: names: an array is not an object (like {\"frames/\": [\"alice\", "
		     "\"@video\"]})");
	expect_error("{\"names\": {\"\": []}}", "names.: is not the beginning of a name");
	expect_error("{\"names\": {\"a/\": \"alice\"}}",
		     "names.a/: \"alice\" is neither a list of users nor an object (like "
		     "{\"use\": [\"@video\"], \"publish\": [\"alice\"]})");
	expect_error("{\"names\": {\"a/\": [1, \"no-such\"]}}",
		     "names.a/[1]: \"no-such\" is unknown here: there is no such user");
	expect_error("{\"names\": {\"a/\": {\"publsh\": [1]}}}",
		     "names.a/.publsh: unknown key (did you mean \"publish\"?)");
	expect_error("{\"names\": {\"a/\": {\"manage\": \"bob\"}}}",
		     "names.a/.manage: \"bob\" is not a list (like [\"alice\", \"@video\", 1000])");
	expect_error("{\"names\": {\"a/\": {\"manage\": [1, \"no-such\"]}}}",
		     "names.a/.manage[1]: \"no-such\" is unknown here: there is no such user");
}
