/* SPDX-License-Identifier: MIT */

/* How brokers end, and what comes after that: another one, of which program and how soon, or none.
 */

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "broker/keeper/state.h"
#include "broker/log/log.h"

/* So many brokers of a new program may be killed before one of them serves: that nobody kills them
 * for what they do cannot be known. */
#define KILLS_MAX 3
/* KEEPER_DEATHS_MAX brokers may end so soon, for no reason from outside, before it gives up. */
#define DEATHS_MS    30000
#define WAIT_LAST_MS 10000

struct end {
	bool by_itself; /* else it was killed, or has crashed */
	int code;       /* what it has ended with by itself */
	int signal;     /* that it has died of; 0: nobody knows */
	bool hung;      /* the keeper has killed it for that, which counts as a crash */
};

static struct end end_of_child(int status)
{
	return (struct end){.by_itself = WIFEXITED(status),
			    .code = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
			    .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0};
}

/* Of one that an earlier keeper has forked the kernel says nothing but that it has ended. */
static struct end end_of_other(const struct keeper *k)
{
	int code = atomic_load(&k->table->ended);

	return (struct end){.by_itself = code >= 0,
			    .code = code,
			    .signal = code >= 0 ? 0 : atomic_load(&k->health->crash.signal)};
}

/* Of itself: not killed by anybody else. */
static bool has_crashed(const struct end *end)
{
	return end->hung || (!end->by_itself && end->signal != SIGKILL && end->signal != 0);
}

/* The time in which they hung does not count: how long that is depends on the configuration. */
static bool too_many_deaths(struct state *s, bool hung)
{
	uint64_t now = clock_ms(), *oldest = &s->deaths[s->n_deaths % KEEPER_DEATHS_MAX];
	unsigned hang_ms = hung ? atomic_load(&s->keeper.health->hang_ms) : 0;
	bool many = s->n_deaths >= KEEPER_DEATHS_MAX &&
		    now - *oldest < DEATHS_MS + (uint64_t)hang_ms * KEEPER_DEATHS_MAX;

	*oldest = now;
	s->n_deaths++;
	return many;
}

/* The next broker is of that program; if it cannot, then of this one. */
static void change_module(struct state *s)
{
	s->own[OWN_MODULE_BEFORE] = s->own[OWN_MODULE];
	s->own[OWN_MODULE] = s->own[OWN_MODULE_NEXT];
	s->own[OWN_MODULE_NEXT] = -1;
	s->wait_ms = 0;
	s->n_killed = 0;
	s->keeper.before = KEEPER_HANDED_OVER;
}

/* How it has ended, for the log. */
static const char *text_of(const struct end *end)
{
	static char text[64];

	if (end->hung)
		snprintf(text, sizeof(text), "has hung");
	else if (end->by_itself)
		snprintf(text, sizeof(text), "has ended with exit code %d", end->code);
	else if (end->signal)
		snprintf(text, sizeof(text), "has died of signal %d (%s)", end->signal,
			 signal_text(end->signal));
	else
		snprintf(text, sizeof(text), "has died");
	return text;
}

/* Whether brokers of the new program have been tried enough. Another one is tried if this one was
 * killed, by whomever. */
static bool is_given_up(struct state *s, bool killed)
{
	return s->own[OWN_MODULE_BEFORE] >= 0 && (!killed || ++s->n_killed == KILLS_MAX);
}

static void fall_back(struct state *s, const struct end *end)
{
	s->own[OWN_MODULE] = s->own[OWN_MODULE_BEFORE];
	s->own[OWN_MODULE_BEFORE] = -1;
	s->wait_ms = 0;
	s->keeper.before = KEEPER_FELL_BACK;
	if (s->n_killed == KILLS_MAX)
		log_error(
		    "%d brokers of the new program were killed before they served: the old "
		    "one goes on",
		    KILLS_MAX);
	else
		log_error("the broker of the new program %s before it served: the old one goes on",
			  text_of(end));
}

/* One that crashes is no longer waited for than one that served: too_many_deaths() ends that. One
 * that finds out that it cannot take over may have said before that it serves, so that nobody goes
 * back to the program of before. */
static void delay_next(struct state *s, bool killed, bool again)
{
	if (again || (killed && !s->serves))
		s->wait_ms = s->wait_ms ? s->wait_ms * 2 : WAIT_FIRST_MS;
	else
		s->wait_ms = 0;
}

/* False: there is to be no other one. */
static bool follow(struct state *s, const struct end *end)
{
	bool again = end->by_itself && end->code == KEEPER_TRY_AGAIN;
	bool killed = !end->by_itself && !has_crashed(end);

	s->keeper.signal = end->signal;
	s->keeper.hung = end->hung;
	if (s->hands_over) {
		change_module(s);
		return true;
	}
	if (is_given_up(s, killed)) {
		fall_back(s, end);
		return true;
	}
	s->keeper.before = again ? KEEPER_TRIED : KEEPER_DIED;
	if (end->by_itself && !again) {
		s->status = end->code;
		if (s->has_served && end->code != 0)
			log_error("the broker %s: the service ends", text_of(end));
		return false;
	}
	s->brokers_died++;
	s->status = EXIT_FAILURE;
	delay_next(s, killed, again);
	if (again && s->wait_ms > WAIT_LAST_MS) {
		log_error(
		    "no broker can take over what there was: giving up, and all clients are "
		    "disconnected");
		return false;
	}
	if (s->wait_ms > WAIT_LAST_MS)
		s->wait_ms = WAIT_LAST_MS;
	if (again)
		log_warning("a broker could not take over: the next one tries in %u ms",
			    s->wait_ms);
	if (!again && !killed && too_many_deaths(s, end->hung)) {
		log_error(
		    "%d brokers have died in a short time, and the last one %s: giving up, and "
		    "all clients are disconnected",
		    KEEPER_DEATHS_MAX + 1, text_of(end));
		return false;
	}
	return true;
}

void broker_has_ended(struct state *s, const int *status)
{
	struct end end = status ? end_of_child(*status) : end_of_other(&s->keeper);

	end.hung = s->hangs && !end.by_itself;
	crash_log(&s->keeper.health->crash, "broker", s->broker);
	blame_death(&s->keeper.health->blames, has_crashed(&end), clock_ms());
	s->keeper.broker_before = s->broker;
	s->broker = 0;
	s->own[OWN_SOCKET] = s->own[OWN_BROKER] = -1;
	s->is_over = !follow(s, &end);
}
