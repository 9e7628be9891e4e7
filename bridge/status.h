/* SPDX-License-Identifier: MIT */
#pragma once

struct bridge;

/*
 * What `sharectl bridges` shows: the metadata of the name "bridge/SITE/PID", which lives as long as
 * the bridge. And names that somebody waits for, which the broker is asked for now and then.
 */
int status_open(struct bridge *b);
void status_close(struct bridge *b);
