/* SPDX-License-Identifier: MIT */
#pragma once

#include "python/src/base/core.h"

/* Channels and services, and what they take: functions and types of the module. */

/* measure.c: _measure(of, n, with=None): seconds that n calls take in C: of a Client: lookup (with:
 * a name) and release; of a Pool: alloc (with: bytes) and release; of a Producer: send (with: an
 * Array); of a Consumer: a pair, recv with timeout 0, of which there have to be n, and ack. */
PyObject *measure(PyObject *module, PyObject *args);

/* member.c: _untell(thing): the descriptor of a producer or caller tells of nothing that was asked
 * before; of others, and of what is closed, there is nothing to do. */
PyObject *member_untell(PyObject *module, PyObject *o);

bool channel_ready(PyObject *module);
bool message_ready(PyObject *module);
bool service_ready(PyObject *module);
