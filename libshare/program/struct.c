/* SPDX-License-Identifier: MIT */

/* Structs that begin with their size, between a program and a library of other versions. */

#include <ctype.h>
#include <string.h>

#include "libshare/program/error.h"
#include "libshare/program/struct.h"

static size_t size_of(const void *p)
{
	size_t size;

	memcpy(&size, p, sizeof(size));
	return size;
}

/* That of the first version, with the padding at its end. */
static size_t first_size(const struct struct_type *type)
{
	return (type->first + 7) & ~(size_t)7;
}

static int fail_size(size_t size, const struct struct_type *type)
{
	char init[64];
	size_t i;

	for (i = 0; type->name[i] && i < sizeof(init) - 1; i++)
		init[i] = (char)toupper((unsigned char)type->name[i]);
	init[i] = '\0';
	if (size == 0)
		return fail(
		    SHARE_EINVAL,
		    "the %s says that its size is 0: initialise it with %s_INIT, or set its "
		    "size to sizeof(%s)",
		    type->name, init, type->name);
	return fail(SHARE_EINVAL,
		    "the %s says that its size is %zu, and this library's is %zu: initialise it "
		    "with %s_INIT",
		    type->name, size, type->size, init);
}

int struct_check_size(const void *p, const struct struct_type *type)
{
	size_t size;

	if (!p)
		return fail(SHARE_EINVAL, "the %s is NULL", type->name);
	size = size_of(p);
	if (size < first_size(type) || size > STRUCT_MAX || size % _Alignof(size_t) != 0)
		return fail_size(size, type);
	return 0;
}

/* A program that is newer than the library wants what the library cannot do. */
static int check_tail(const unsigned char *p, size_t size, const struct struct_type *type)
{
	for (size_t i = type->size; i < size; i++)
		if (p[i] != 0)
			return fail(SHARE_EINVAL,
				    "the %s has members that this library (version %s) does not "
				    "know, and the one at byte %zu is not 0: that takes a newer "
				    "library",
				    type->name, share_version(), i);
	return 0;
}

int struct_check_known(const void *p, const struct struct_type *type)
{
	int r = struct_check_size(p, type);

	return r == 0 ? check_tail(p, size_of(p), type) : r;
}

int struct_copy_in(void *to, const void *from, const struct struct_type *type)
{
	int r = from ? struct_check_size(from, type) : 0;

	if (r != 0)
		return r;
	return struct_copy_in_sized(to, from, from ? size_of(from) : type->size, type);
}

int struct_copy_in_sized(void *to, const void *from, size_t size, const struct struct_type *type)
{
	int r = size > type->size ? check_tail(from, size, type) : 0;

	memcpy(to, &type->size, sizeof(type->size));
	if (r != 0 || !from)
		return r;
	if (size > type->size)
		size = type->size;
	else if (size == first_size(type))
		size = type->first;
	memcpy((unsigned char *)to + sizeof(size), (const unsigned char *)from + sizeof(size),
	       size - sizeof(size));
	return 0;
}

void struct_copy_out(void *to, const void *from, size_t size)
{
	size_t room = size_of(to), n = room < size ? room : size;

	memcpy((unsigned char *)to + sizeof(n), (const unsigned char *)from + sizeof(n),
	       n - sizeof(n));
	if (room > size)
		memset((unsigned char *)to + size, 0, room - size);
}
