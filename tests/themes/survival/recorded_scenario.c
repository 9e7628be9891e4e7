/* SPDX-License-Identifier: MIT */

/* Who does what, in this order; each is a process, which is killed in the end. */

#include "tests/themes/survival/recorded_scenario.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <share/channel.h>
#include <share/event.h>

#include "tests/harness/fixture.h"
#include "tests/harness/memory.h"
#include "tests/harness/raw.h"
#include "tests/support/drivers.h"
#include "tests/support/visit.h"
#include "tests/themes/pools/conformance.h"

#define SIZE  5000
#define QUEUE "queue"
#define LEFT  "queue of the gone"

#define LEFT_VALUE 0x51

#define SEVERAL       "queue of several buffers"
#define SEVERAL_VALUE 0x71

static share_pool *scrubbed;
static pid_t second_agent;

static struct child *all[10];
static unsigned n_children;

static struct child *begin(child_function function, const char *until)
{
	struct child *child = child_start(function, NULL);

	child_wait(child, until);
	all[n_children++] = child;
	return child;
}

/* ------------------------------------------------------------------------------------------- */
/* The giver: names, tokens, metadata, events, work that does not end, a channel                */

static void never_ends(void *data)
{
	(void)data;
	for (;;)
		pause();
}

static void on_lookup(share_buffer *b, int error, void *data)
{
	(void)b, (void)error, (void)data;
}

static void on_name(const share_name_event *e, void *data)
{
	(void)e, (void)data;
}

share_channel *scenario_open(share_client *c, const char *name, int role)
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;
	share_channel *ch;

	options.depth = 4;
	options.mode = strncmp(name, QUEUE, strlen(QUEUE)) == 0 ? SHARE_QUEUE : SHARE_BROADCAST;
	options.buffers = strcmp(name, SEVERAL) == 0 ? SCENARIO_SEVERAL : 1;
	check_ok(share_channel_open(c, name, role, &options, &ch));
	return ch;
}

static void send_filled(share_channel *ch, share_pool *p, int value)
{
	share_buffer *b = allocate(p, SIZE, NULL);

	buffer_fill(b, value);
	check_ok(share_send(ch, b, "x", 1, NULL));
}

static void send_several(share_channel *ch, share_pool *p, int value)
{
	share_buffer *buffers[SCENARIO_SEVERAL];
	share_outgoing m = SHARE_OUTGOING_INIT;

	for (int i = 0; i < SCENARIO_SEVERAL; i++) {
		buffers[i] = allocate(p, SIZE, NULL);
		buffer_fill(buffers[i], value + i);
	}
	m.buffers = buffers;
	m.n_buffers = SCENARIO_SEVERAL;
	check_eq(share_send_many(ch, &m, 1, NULL), 1);
}

static void publish_filled(share_pool *p, const char *name, int value)
{
	share_buffer *b = allocate(p, SIZE, NULL);

	buffer_fill(b, value);
	check_ok(share_metadata_set(b, "{\"is\": \"metadata\"}"));
	check_ok(share_publish(b, name, NULL));
}

/* A free block that work runs on, and a name whose content is not there yet. */
static void leave_work(share_client *c, share_pool *p)
{
	share_host_stream *s;
	share_buffer *b;

	check_ok(share_host_stream_create(c, &s));
	b = allocate(p, 3 * SIZE, s);
	check_ok(share_host_stream_launch(s, never_ends, NULL));
	check_ok(share_release(b, s));
	b = allocate(p, SIZE, NULL);
	check_ok(share_publish(b, "not there yet", s));
}

static void wait_and_watch(share_client *c)
{
	share_operation *o;
	share_watch *w;

	check_ok(share_lookup_async(c, "later", SHARE_RDONLY, -1, NULL, on_lookup, NULL, &o));
	check_ok(share_watch_names(c, "na", on_name, NULL, &w));
}

static void use_device(share_client *c)
{
	share_pool_options options = OPTIONS;
	share_event_options named = SHARE_EVENT_OPTIONS_INIT;
	share_event *e;
	share_pool *p;
	share_buffer *b;

	options.kind = "vmm";
	options.segment_size = UNIT;
	check_ok(share_pool_create(c, "device", &options, &p));
	b = allocate(p, SIZE, NULL);
	buffer_fill(b, 0x77);
	check_ok(share_publish(b, "on the device", NULL));
	named.name = "event";
	check_ok(share_event_create(c, &named, &e));
}

static void export_uses(share_buffer *b, uint32_t uses, share_token *token)
{
	share_export_options options = SHARE_EXPORT_OPTIONS_INIT;

	options.uses = uses;
	check_ok(share_export_with(b, &options, NULL, token));
}

static void gives(struct child *self, void *data)
{
	share_client *c = child_connect("giver");
	share_pool *p = open_pool(c);
	share_buffer *b = allocate(p, SIZE, NULL);
	share_channel *ch, *queue;
	share_token token;

	(void)data;
	publish_filled(p, "named", 0x11);
	publish_filled(p, "named", 0x5a); /* its second version */
	publish_filled(p, "other", 0x3c);
	leave_work(c, p);
	wait_and_watch(c);
	use_device(c);
	buffer_fill(b, 0x66);
	export_uses(b, 3, &token);
	ch = scenario_open(c, "channel", SHARE_PRODUCER);
	queue = scenario_open(c, QUEUE, SHARE_PRODUCER);
	child_point_with(self, "given", &token, sizeof(token));
	check_ok(share_send(ch, b, "x", 1, NULL));
	send_filled(queue, p, 0x41);
	send_filled(queue, p, 0x42);
	child_point(self, "sent");
	/* to the next broker */
	send_filled(ch, p, 0x43);
	send_filled(queue, p, 0x44);
	publish_filled(p, "after", 0x21);
	b = allocate(p, SIZE, NULL);
	export_uses(b, SHARE_USES_UNLIMITED, &token);
	child_point_with(self, "given again", &token, sizeof(token));
}

/* ------------------------------------------------------------------------------------------- */
/* Others                                                                                      */

static void takes(struct child *self, void *data)
{
	share_client *c = child_connect("taker");
	share_buffer *b, *on_device;
	share_message m = SHARE_MESSAGE_INIT;
	share_channel *ch, *queue;

	(void)data;
	check_ok(share_lookup(c, "named", SHARE_RDONLY, 0, NULL, &b));
	check_ok(share_lookup(c, "on the device", SHARE_RDWR, 0, NULL, &on_device));
	ch = scenario_open(c, "channel", SHARE_CONSUMER);
	queue = scenario_open(c, QUEUE, SHARE_CONSUMER);
	child_point(self, "here");
	check_ok(share_recv(ch, -1, NULL, &m));
	check_ok(share_recv(queue, -1, NULL, &m));
	child_point(self, "received"); /* and not acknowledged */
}

/* Its message is kept by the broker: nobody has received it. */
static void sends_and_dies(struct child *self, void *data)
{
	share_client *c = child_connect("dies");
	share_pool *p = open_pool(c);
	share_channel *ch = scenario_open(c, "channel", SHARE_PRODUCER);

	(void)data;
	check_ok(share_send(ch, allocate(p, SIZE, NULL), NULL, 0, NULL));
	child_point(self, "sent");
}

/* Of what it has sent, two wait, and one has gone to who comes now; of several buffers one each. */
static void leaves_messages(struct child *self, void *data)
{
	share_client *c = child_connect("leaves messages");
	share_pool *p = open_pool(c);
	share_channel *ch = scenario_open(c, LEFT, SHARE_PRODUCER);
	share_channel *several = scenario_open(c, SEVERAL, SHARE_PRODUCER);

	(void)data;
	for (int i = 0; i < 3; i++)
		send_filled(ch, p, LEFT_VALUE + i);
	for (int i = 0; i < 2; i++)
		send_several(several, p, SEVERAL_VALUE + i * SCENARIO_SEVERAL);
	share_channel_close(ch);
	share_channel_close(several);
	child_point(self, "closed");
}

static void has_one_of_them(struct child *self, void *data)
{
	share_client *c = child_connect("has one");
	share_channel *ch = scenario_open(c, LEFT, SHARE_CONSUMER);
	share_channel *several = scenario_open(c, SEVERAL, SHARE_CONSUMER);
	share_message m = SHARE_MESSAGE_INIT, other = SHARE_MESSAGE_INIT;

	(void)data;
	check_ok(share_recv(ch, -1, NULL, &m));
	check_ok(share_recv(several, -1, NULL, &other));
	check_eq(other.n_buffers, SCENARIO_SEVERAL);
	child_point(self, "received");
}

#define STOPPED "queue of one that is stopped"

/* Who has acknowledged its message is gone before it has looked. */
static void is_stopped(struct child *self, void *data)
{
	share_client *c = child_connect("is stopped");
	share_pool *p = open_pool(c);
	share_channel *ch = scenario_open(c, STOPPED, SHARE_PRODUCER);

	(void)data;
	child_point(self, "open");
	send_filled(ch, p, 0x61);
	send_filled(ch, p, 0x62);
	child_point(self, "sent");
}

static void acknowledges_and_goes(struct child *self, void *data)
{
	share_client *c = child_connect("acknowledges");
	share_channel *ch = scenario_open(c, STOPPED, SHARE_CONSUMER);
	share_message m = SHARE_MESSAGE_INIT;

	(void)data;
	child_point(self, "open");
	check_ok(share_recv(ch, -1, NULL, &m));
	child_point(self, "received");
	check_ok(share_ack(&m, NULL));
	share_channel_close(ch);
	share_disconnect(c);
}

static void hangs_up(struct child *self, void *data)
{
	static struct raw r;

	(void)data;
	child_become(ALICE, 0);
	raw_open(&r, "hung up");
	raw_alloc(&r, raw_pool(&r, "default"), SIZE);
	raw_hang_up(&r);
	child_point(self, "hung up");
}

/* Asks, and hears nothing: what it is answered waits. */
static void does_not_listen(struct child *self, void *data)
{
	struct wire_message m = {.type = WIRE_QUERY};
	static struct raw r;
	int e;

	(void)data;
	raw_open(&r, "does not listen");
	m.query.what = raw_text("users");
	do {
		m.serial++;
		e = raw_send(&r, &m);
	} while (e == 0);
	check_eq(e, -EAGAIN);
	child_point(self, "full");
}

/* What alice has left is zeroed for him first, which does not end: not with him, either. */
static void bob_waits(struct child *self, void *data)
{
	share_client *c;
	share_buffer *b;

	(void)data;
	child_become(BOB, 0);
	c = child_connect("bob");
	child_point(self, "here");
	share_alloc(open_test(c), UNIT, NULL, &b);
}

/* ------------------------------------------------------------------------------------------- */

void scenario_prepare(void)
{
	skip_unless_standin();
	skip_unless_root();
	drivers_prepare();
	standin_configure("devices=2");
}

/* An event, which goes back at once: it has one of its own then. */
static void start_second_agent(share_client *c)
{
	share_event_options options = SHARE_EVENT_OPTIONS_INIT;
	json_t *rows = report(c, "devices"), *row = json_array_get(rows, 1);
	share_event *e;

	options.device = json_string_value(json_object_get(row, "device"));
	check_ok(share_event_create(c, &options, &e));
	share_event_release(e);
	json_decref(rows);
	rows = report(c, "agents");
	second_agent = (pid_t)number_of(json_array_get(rows, 1), "agent");
	check(second_agent > 0);
	json_decref(rows);
}

static size_t members_of(share_client *c, const char *channel)
{
	json_t *rows = report(c, "channels");
	size_t n = json_array_size(json_object_get(row_named(rows, "channel", channel), "members"));

	json_decref(rows);
	return n;
}

static void leave_messages(share_client *looks_on)
{
	struct child *producer = begin(leaves_messages, "closed"), *consumer;

	begin(has_one_of_them, "received");
	producer = begin(is_stopped, "open");
	consumer = child_start(acknowledges_and_goes, NULL);
	child_wait(consumer, "open");
	child_go(producer);
	child_wait(producer, "sent");
	child_go(consumer);
	child_wait(consumer, "received");
	check(kill(producer->pid, SIGSTOP) == 0);
	check(waitpid(producer->pid, NULL, WUNTRACED) == producer->pid);
	child_go(consumer);
	child_finish(consumer);
	until(members_of(looks_on, STOPPED) == 1);
}

static json_t *hexadecimal(const share_token *token)
{
	char text[2 * sizeof(token->bytes) + 1];

	for (size_t i = 0; i < sizeof(token->bytes); i++)
		sprintf(text + 2 * i, "%02x", token->bytes[i]);
	return json_string(text);
}

json_t *scenario_play(share_client *looks_on)
{
	struct child *giver, *taker, *dies, *bob;
	share_token token, again;

	scrubbed = scrubbed_pool(looks_on, "vmm");
	start_second_agent(looks_on);
	giver = all[n_children++] = child_start(gives, NULL);
	child_wait_with(giver, "given", &token, sizeof(token));
	taker = begin(takes, "here");
	child_go(giver);
	child_wait(giver, "sent");
	child_go(taker);
	child_wait(taker, "received");
	dies = child_start(sends_and_dies, NULL);
	child_wait(dies, "sent");
	child_kill(dies);
	settle(looks_on, s.clients == 3);
	leave_messages(looks_on);
	broker_kill_serving();
	child_go(giver);
	child_wait_with(giver, "given again", &again, sizeof(again));
	visit(ALICE, UNIT, 0, 0xaa);
	drivers_do("cuMemsetD8Async hang\n");
	bob = child_start(bob_waits, NULL);
	child_wait(bob, "here");
	child_go(bob);
	until(standin_called(drivers_calls, cuMemsetD8Async) > 0);
	child_kill(bob);
	begin(hangs_up, "hung up");
	begin(does_not_listen, "full");
	until(used_of(looks_on, "unsent") > 0);
	settle(looks_on, s.clients == 8 && s.quarantined == 1);
	return json_pack("{s:[[s,i,i],[s,i,i],[s,i,i]], s:[o,o], s:[s,i,i], s:[s,i]}", "filled",
			 "named", SIZE, 0x5a, "other", SIZE, 0x3c, "after", SIZE, 0x21, "tokens",
			 hexadecimal(&token), hexadecimal(&again), "left", LEFT, LEFT_VALUE + 1, 2,
			 "several", SEVERAL, SEVERAL_VALUE + SCENARIO_SEVERAL);
}

void scenario_end(share_client *looks_on)
{
	pid_t before = broker_pid();

	check(second_agent > 0 && kill(second_agent, SIGKILL) == 0);
	until(broker_pid() != before && share_ping(looks_on) == 0);
}

void scenario_done(void)
{
	while (n_children > 0)
		child_kill(all[--n_children]);
	broker_kill();
	share_pool_close(scrubbed);
	drivers_done();
}
