/* SPDX-License-Identifier: MIT */
#ifndef PYTHON_CHANNEL_CHANNEL_H
#define PYTHON_CHANNEL_CHANNEL_H

#include "python/src/base/core.h"

/* Channels and services, and what they take: functions and types of the module. */

/* measure.c */
extern const char measure_doc[];
PyObject *measure(PyObject *module, PyObject *args);

bool channel_ready(PyObject *module);
bool message_ready(PyObject *module);
bool service_ready(PyObject *module);

#endif
