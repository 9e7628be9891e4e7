/* SPDX-License-Identifier: MIT */
#pragma once

#include "python/src/array/array.h"
#include "python/src/base/args.h"
#include "python/src/client/client.h"

/* What the files of this room know of each other. */

/* Returns a new reference to the open client with that handle, or NULL without an exception. */
struct client *client_with(share_client *p);

/* Calls share_dispatch(); only one thread at a time does. */
int dispatch_in_order(share_client *c);

/* report.c: methods of a client that answer a list. */
PyObject *client_names(PyObject *o, PyObject *prefix);
PyObject *client_inspect(PyObject *o, PyObject *what);
PyObject *client_monitor(PyObject *o, PyObject *args);
PyObject *client_reload(PyObject *o, PyObject *ignored);
PyObject *client_upgrade(PyObject *o, PyObject *ignored);
