/* SPDX-License-Identifier: MIT */

/* How brokers end, and what comes after that: another broker, of which program and how soon, or
 * none. */

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "broker/keeper/process/state.h"
#include "broker/log/log.h"

/* When so many brokers of a new program were killed before one of them served, the old one goes on.
 * Nobody knows whether they were killed for what they do. */
#define KILLS_MAX 3
/* When more than KEEPER_DEATHS_MAX brokers have died within this time, for no reason from outside,
 * the keeper gives up. */
#define DEATHS_MS    30000
#define WAIT_LAST_MS 10000

struct end {
	bool by_itself; /* if not, it was killed or has crashed */
	int code;       /* the exit code with which it has ended by itself */
	int signal;     /* the signal that it has died of; 0: nobody knows */
	bool hung;      /* the keeper has killed it as it hung, which counts as a crash */
};

static struct end end_of_child(int status)
{
	return (struct end){.by_itself = WIFEXITED(status),
			    .code = WIFEXITED(status) ? WEXITSTATUS(status) : 0,
			    .signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0};
}

/* How a broker has ended that an earlier keeper has forked. The kernel tells only that it has
 * ended; all else is what the broker has written down itself. */
static struct end end_of_other(const struct keeper *k)
{
	int code = atomic_load(&k->table->ended);

	return (struct end){.by_itself = code >= 0,
			    .code = code,
			    .signal = code >= 0 ? 0 : atomic_load(&k->health->crash.signal)};
}

/* Whether the broker has died of what it did, and was not killed by anybody else. */
static bool has_crashed(const struct end *end)
{
	return end->hung || (!end->by_itself && end->signal != SIGKILL && end->signal != 0);
}

/* Notes that a broker has died, and returns whether too many have in a short time. The time in
 * which they hung is added to that time, as how long that is depends on the configuration. */
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

/* Changes to the program that is handed over to: the next broker is of that. If it cannot go on,
 * the one after it is of this program again. */
static void change_module(struct state *s)
{
	s->own[OWN_MODULE_BEFORE] = s->own[OWN_MODULE];
	s->own[OWN_MODULE] = s->own[OWN_MODULE_NEXT];
	s->own[OWN_MODULE_NEXT] = -1;
	s->wait_ms = 0;
	s->n_killed = 0;
	s->keeper.before = KEEPER_HANDED_OVER;
}

/* Says for the log how a broker has ended. The text is overwritten by the next call. */
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

/* Whether the new program is given up, as enough of its brokers have been tried. If this one was
 * killed, by whomever, another one is tried, up to KILLS_MAX. */
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

/* Decides how long to wait until the next broker is forked. A broker that crashed is followed at
 * once, like one that served: too_many_deaths() puts an end to that. One that finds out that it
 * cannot take over is followed later and later, even if it has said that it serves. It may have
 * said so only to keep the keeper from going back to the program before. */
static void delay_next(struct state *s, bool killed, bool again)
{
	if (again || (killed && !s->serves))
		s->wait_ms = s->wait_ms ? s->wait_ms * 2 : WAIT_FIRST_MS;
	else
		s->wait_ms = 0;
}

/* Decides what follows the broker that has ended. False: there is to be no other one. */
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
