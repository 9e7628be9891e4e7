/* SPDX-License-Identifier: MIT */
#ifndef BROKER_LIFE_ROOMS_H
#define BROKER_LIFE_ROOMS_H

struct client_rooms;

/* The only one that there is. */
extern const struct client_rooms broker_rooms;

#endif
