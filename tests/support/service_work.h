/* SPDX-License-Identifier: MIT */
#pragma once

#include <share/service.h>

#include "tests/harness/fixture.h"

/* What the tests of services start from: a caller and a worker of one, each with a connection of
 * its own. Requests carry a number, whose answer is twice that. */
#define FOREVER 30000 /* only so that a test which hangs ends */

extern share_client *asking, *working;
extern share_pool *pool, *worker_pool;
extern share_service *caller, *worker;

void service_start(void);
void service_stop(void);

share_service *open_service(share_client *c, int role);

share_pending *ask_for(share_service *s, int number);
/* The next request, which must be this. */
share_message next_of(share_service *s, int number);
int number_in(const share_message *m);
int answer(share_message *request);
void expect_answer(share_pending *p, int number);
/* So many, none of which is acknowledged. */
void hold_answers(share_message *held, int n);
void expect_failure(share_pending *p, int error);
void expect_no_request(void);
