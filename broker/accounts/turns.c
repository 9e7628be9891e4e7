/* SPDX-License-Identifier: MIT */

/*
 * Start-time fair queueing (P. Goyal, H. Vin and H. Cheng, 1996) over users. The unit is time as it
 * was measured, so that what a request costs need not be known beforehand; a dear one is paid for
 * by waiting while others are served, or while nobody wants anything. Who comes back after a while
 * begins at the present, so it is ahead of everybody who asks all the time, and waits for no more
 * than the one turn under way.
 *
 * Each user has an epoll instance, and the loop watches these. So a thousand connections of a user
 * are one event of the loop, the kernel keeps the order among them (each goes to the end when it
 * was looked at), and one that waits costs nothing. In each round of the loop all users that want
 * something say so, and then one turn of one of them is served; where the loop has nothing else to
 * do, nobody else does, and it is served at once. Where one user has all the connections that there
 * are, a round serves several of its turns, as nobody can be kept waiting by them but itself, up to
 * one that leaves the loop something to do. None of this takes memory: to wait for something else
 * on a descriptor, and to go on serving, cannot fail.
 *
 * Most users have one connection that asks. When a turn was served often with none of the user's
 * between, the loop watches its descriptor itself, which costs the kernel less than an epoll of an
 * epoll, and needs no look into the second one. Its place in the user's epoll it keeps, and goes
 * back there when another turn of that user is served, or when it waits for something else: to go
 * back cannot fail, and if the other way fails, it stays where it is.
 */

#include <errno.h>
#include <sys/epoll.h>
#include <time.h>

#include <event2/event.h>

#include "base/clock.h"
#include "base/mutation.h"
#include "base/system/descriptor.h"
#include "broker/accounts/turns.h"

/* In most turns the time of the clock says enough, and it costs least to ask for. In long ones the
 * broker may have been kept off its core, so the time that it has run limits what they have
 * taken. */
#define LONG_NS    50000
#define MARK_TURNS 64
/* Turns with none of the user's between, before the loop watches one itself. To begin and to end
 * that takes four system calls. */
#define ALONE_TURNS 16

/* Returns for how long this thread has run. */
static uint64_t run_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

uint64_t turns_begin(struct turns *t)
{
	uint64_t begun = clock_ns();

	/* what was done for nobody since the last turn moves the virtual time of all on */
	if (t->nested++ == 0)
		t->now_ns += begun - t->ended_ns;
	t->begun_ns = begun;
	return begun;
}

uint64_t turns_begun(const struct turns *t)
{
	return t->nested > 0 ? t->begun_ns : clock_ns();
}

static void mark(struct turns *t)
{
	t->marked_ns = run_ns();
	t->since_mark_ns = t->since_mark = 0;
}

/* Limits @ns to the time that the broker has run for since the mark, less what of that is
 * counted already. */
static uint64_t limit_to_running(struct turns *t, uint64_t ns)
{
	uint64_t before = t->marked_ns + t->since_mark_ns;

	mark(t);
	if (t->marked_ns < before)
		return 0;
	return ns < t->marked_ns - before ? ns : t->marked_ns - before;
}

static void pay(const struct turns *t, struct user_turns *u, uint64_t ns)
{
	if (u->served_ns < t->now_ns)
		u->served_ns = t->now_ns;
	u->served_ns += ns;
}

void turns_count(struct turns *t, struct user_turns *u, uint64_t begun)
{
	uint64_t ended = clock_ns(), ns = ended - begun;

	if (--t->nested == 0)
		t->ended_ns = ended;
	if (ns >= LONG_NS)
		ns = limit_to_running(t, ns);
	else if (++t->since_mark >= MARK_TURNS)
		mark(t);
	else
		t->since_mark_ns += ns;
	if (u)
		pay(t, u, ns);
}

void turns_share(struct turns *t, struct user_turns *u, uint64_t begun)
{
	uint64_t ns = clock_ns() - begun;

	pay(t, u, ns < LONG_NS ? ns : LONG_NS);
}

/* ------------------------------------------------------------------------------------------- */

static void serve_next(struct turns *t);

/* Notes that a user wants something. All such users are noted before the broker serves one, as what
 * is made active now comes after what is active already. */
static void want(struct user_turns *u)
{
	struct turns *t = u->turns;
	bool is_first = !t->next;

	if (is_first || u->served_ns < t->next->served_ns)
		t->next = u;
	if (is_first && event_base_get_num_events(t->base, EVENT_BASE_COUNT_ACTIVE) == 0)
		serve_next(t);
	else if (is_first)
		event_active(t->serve, EV_TIMEOUT, 0);
}

static void on_wants(evutil_socket_t fd, short what, void *data)
{
	struct user_turns *u = data;

	(void)fd, (void)what;
	u->others_are_ready = true;
	want(u);
}

static void on_lone_wants(evutil_socket_t fd, short what, void *data)
{
	struct user_turns *u = data;

	(void)fd, (void)what;
	u->lone_is_ready = true;
	want(u);
}

static void set_events(const struct turn *turn, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = (void *)(uintptr_t)turn};

	epoll_ctl(turn->user->epoll, EPOLL_CTL_MOD, turn->fd, &event);
}

/* Has the loop watch the turn that was served last. */
static void set_apart(struct user_turns *u)
{
	struct turn *turn = u->last;

	u->n_in_a_row = 0;
	if (turn->events != EPOLLIN ||
	    event_assign(u->lone_wants, u->turns->base, turn->fd, EV_READ | EV_PERSIST,
			 on_lone_wants, u) < 0 ||
	    event_add(u->lone_wants, NULL) < 0)
		return;
	u->lone = turn;
	set_events(turn, 0);
}

static void put_back(struct user_turns *u)
{
	struct turn *turn = u->lone;

	if (!turn)
		return;
	event_del(u->lone_wants);
	u->lone = NULL;
	u->lone_is_ready = false;
	set_events(turn, turn->events);
}

/* Looks which turns of the user's are next, and returns how many there are, 0 if nothing has
 * happened after all. What is found goes to the end in the epoll instance, so each is served. */
static int look(struct user_turns *u, bool alone, struct ready_turn *ready, int most)
{
	struct epoll_event events[TURNS_AT_ONCE];
	int n;

	if (alone) {
		ready[0] = (struct ready_turn){u->lone, EPOLLIN};
		return 1;
	}
	n = epoll_wait(u->epoll, events, most, 0);
	for (int i = 0; i < n; i++)
		ready[i] = (struct ready_turn){events[i].data.ptr, events[i].events};
	return n > 0 ? n : 0;
}

/* What another turn was served for may have ended this one, or have had it wait for something
 * else. */
static void serve_ready(struct user_turns *u, const struct ready_turn *ready)
{
	uint32_t events = ready->events;
	struct turn *turn = ready->turn;

	if (turn && !MUTATION(ready_for_what_it_was))
		events &= turn->events | EPOLLERR | EPOLLHUP;
	if (!turn || events == 0)
		return;
	if (turn != u->last) {
		put_back(u);
		u->last = turn;
		u->n_in_a_row = 0;
	}
	turn->serve(turn, events);
	if (u->last == turn && !u->lone && ++u->n_in_a_row == ALONE_TURNS)
		set_apart(u);
}

void turns_leave_work(struct turns *t)
{
	t->work_left = true;
}

/* What a turn leaves for the loop to do, as what becomes of a dead client, comes before the next
 * one: that may be a request for what the dead client had. */
static bool leaves_work(const struct turns *t)
{
	return (t->work_left || event_base_get_num_events(t->base, EVENT_BASE_COUNT_ACTIVE) > 0) &&
	       !MUTATION(turn_before_work_left);
}

static void serve_found(struct turns *t, struct user_turns *u, int most)
{
	for (int i = 0; i < most && t->at < t->n_ready; i++) {
		serve_ready(u, &t->ready[t->at++]);
		if (leaves_work(t))
			break;
	}
	if (t->at >= t->n_ready)
		t->at = t->n_ready = 0;
}

/* Serves the user's next turn, or turns, which may end there with all others of that user. */
static void serve_some(struct turns *t, struct user_turns *u)
{
	int most = t->n_users > 1 || leaves_work(t) ? 1 : TURNS_AT_ONCE;
	bool alone = u->lone_is_ready && !u->others_are_ready;
	struct ready_turn one;

	u->lone_is_ready = u->others_are_ready = false;
	t->work_left = false;
	if (t->n_ready == 0 && most > 1) {
		t->n_ready = look(u, alone, t->ready, most);
		t->ready_of = u;
	}
	if (t->n_ready > 0 && t->ready_of == u)
		serve_found(t, u, most);
	else if ((most == 1 || t->ready_of != u) && look(u, alone, &one, 1) == 1)
		serve_ready(u, &one);
}

static void serve_next(struct turns *t)
{
	struct user_turns *u = t->next;
	uint64_t begun;

	t->next = NULL;
	if (!u)
		return;
	begun = turns_begin(t);
	if (u->served_ns > t->now_ns)
		t->now_ns = u->served_ns;
	serve_some(t, u);
	turns_count(t, u, begun);
}

static void on_serve(evutil_socket_t fd, short what, void *data)
{
	(void)fd, (void)what;
	serve_next(data);
}

int turns_init(struct turns *t, struct event_base *base)
{
	t->base = base;
	t->ended_ns = clock_ns();
	mark(t);
	t->serve = event_new(base, -1, 0, on_serve, t);
	return t->serve ? 0 : -ENOMEM;
}

void turns_deinit(struct turns *t)
{
	if (t->serve)
		event_free(t->serve);
	t->serve = NULL;
}

/* ------------------------------------------------------------------------------------------- */

static void free_events(struct user_turns *u)
{
	if (u->wants)
		event_free(u->wants);
	if (u->lone_wants)
		event_free(u->lone_wants);
	u->wants = u->lone_wants = NULL;
}

static int open_user(struct turns *t, struct user_turns *u)
{
	int fd = epoll_create1(EPOLL_CLOEXEC);

	if (fd < 0)
		return -errno;
	u->wants = event_new(t->base, fd, EV_READ | EV_PERSIST, on_wants, u);
	u->lone_wants = event_new(t->base, -1, 0, on_lone_wants, u);
	if (!u->wants || !u->lone_wants || event_add(u->wants, NULL) < 0) {
		free_events(u);
		fd_close(fd);
		return -ENOMEM;
	}
	u->epoll = fd;
	u->turns = t;
	t->n_users += !u->is_nobodys;
	return 0;
}

void user_turns_deinit(struct user_turns *u)
{
	if (!u->wants)
		return;
	/* the others say again that they want something */
	if (u->turns->next == u)
		u->turns->next = NULL;
	free_events(u);
	u->epoll = fd_close(u->epoll);
	u->turns->n_users -= !u->is_nobodys;
	if (u->turns->ready_of == u)
		u->turns->at = u->turns->n_ready = 0;
}

bool user_turns_in_debt(const struct user_turns *u)
{
	return u->turns && u->served_ns > u->turns->now_ns;
}

int turn_start(struct turns *t, struct user_turns *u, struct turn *turn, int fd, uint32_t events)
{
	struct epoll_event event = {.events = events, .data.ptr = turn};
	int r;

	if (!u->wants) {
		r = open_user(t, u);
		if (r < 0)
			return r;
	}
	if (epoll_ctl(u->epoll, EPOLL_CTL_ADD, fd, &event) < 0)
		return -errno;
	turn->user = u;
	turn->fd = fd;
	turn->events = events;
	return 0;
}

void turn_await(struct turn *turn, uint32_t events)
{
	struct user_turns *u = turn->user;

	if (!u)
		return;
	turn->events = events;
	if (turn == u->lone)
		put_back(u);
	else
		set_events(turn, events);
}

void turn_end(struct turn *turn)
{
	struct user_turns *u = turn->user;

	if (!u)
		return;
	if (turn == u->lone)
		put_back(u);
	if (turn == u->last)
		u->last = NULL;
	for (int i = 0; i < u->turns->n_ready; i++) {
		if (u->turns->ready[i].turn == turn)
			u->turns->ready[i].turn = NULL;
	}
	epoll_ctl(u->epoll, EPOLL_CTL_DEL, turn->fd, NULL);
	turn->user = NULL;
}
