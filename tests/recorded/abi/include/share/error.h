/* SPDX-License-Identifier: MIT */
#ifndef SHARE_ERROR_H
#define SHARE_ERROR_H
#define SHARE_ERRORS(X)                                                       \
	X(SHARE_EINVAL, -22, "invalid argument")                              \
	X(SHARE_ENOMEM, -12, "out of memory")                                 \
	X(SHARE_ENOENT, -2, "no such object")                                 \
	X(SHARE_EEXIST, -17, "the object exists already")                     \
	X(SHARE_EACCES, -13, "permission denied")                             \
	X(SHARE_EQUOTA, -4097, "quota exceeded")                              \
	X(SHARE_EAGAIN, -11, "not ready yet")                                 \
	X(SHARE_ETIMEDOUT, -110, "time limit reached")                        \
	X(SHARE_ECANCELED, -125, "canceled")                                  \
	X(SHARE_EBUSY, -16, "the object is in use")                           \
	X(SHARE_ESTALE, -116, "the identifier is stale or foreign")           \
	X(SHARE_ENOTSUP, -95, "not supported")                                \
	X(SHARE_EDISCONNECTED, -4098, "the connection to the broker is lost") \
	X(SHARE_EFORK, -4099, "the handle belongs to the parent process")     \
	X(SHARE_EOWNERDEAD, -130, "the process that owed this data died")     \
	X(SHARE_EPROTO, -71, "protocol error")                                \
	X(SHARE_ESYSTEM, -4100, "a system call failed")                       \
	X(SHARE_ENOBROKER, -4101, "no broker could be reached")               \
	X(SHARE_ENODEV, -19, "no such device, or no driver for it")           \
	X(SHARE_EDEVICE, -4102, "the device or its driver failed")            \
	X(SHARE_EPIPE, -32, "the other side is gone")                         \
	X(SHARE_EINTR, -4, "interrupted")
enum share_error {
	SHARE_OK = 0,
#define SHARE_ERROR_ENUM(name, number, text) name = number,
	SHARE_ERRORS(SHARE_ERROR_ENUM)
#undef SHARE_ERROR_ENUM
};
#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)
const char *share_strerror(int error);
static inline const char *share_error_name(int error);
const char *share_error_detail(void);
static inline const char *share_error_name(int error)
{
	switch (error) {
#define SHARE_ERROR_NAME(name, number, text) \
	case number:                         \
		return #name;
		SHARE_ERRORS(SHARE_ERROR_NAME)
#undef SHARE_ERROR_NAME
	default:
		return error >= 0 ? "SHARE_OK" : "SHARE_E?";
	}
}
#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif
