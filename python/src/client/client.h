/* SPDX-License-Identifier: MIT */
#pragma once

#include "python/src/base/core.h"

/* find.c: functions of the module. find_at() returns the Array that lies at (address, dtype, shape,
 * strides, order), with the strides in elements, or None for C order; order is the stream behind
 * which its content is, or None. find_of() returns the Array that a
 * tensor lies in, or NotImplemented if the type of the tensor has no C function that says where it
 * lies. Both return None if the memory does not belong to an open client. */
PyObject *find_at(PyObject *module, PyObject *args);
PyObject *find_of(PyObject *module, PyObject *thing);

/* torch_allocator.c */
PyObject *torch_pool(PyObject *module, PyObject *args);
PyObject *torch_has(PyObject *module, PyObject *address);

bool client_ready(PyObject *module);
bool pool_ready(PyObject *module);
bool watch_ready(PyObject *module);
