/* SPDX-License-Identifier: MIT */

/* A broker that lives as long as all others: what it is asked is done in the client's own step. */

#define TELL d_step

inline get_block()
{
	allocate()
}

inline get_lease(how)
{
	look_up()
}

inline give_back(fence)
{
	release(fence)
}

inline publish(fence)
{
	name_fence = fence
}

inline publish_writable(fence)
{
	d_step { name_fence = fence; name_writable = true }
}

inline unpublish()
{
	d_step { name_fence = 0; name_writable = false }
}

/* What the broker does of itself; the rest it does when it is asked. */
active proctype broker()
{
end:
	do
#if DEATHS >= 1
	:: d_step { HAS_NEWS(0) && !poisoned[0] && PROVED_ALIVE(0) -> look(0) }
#endif
#if DEATHS >= 2
	:: d_step { HAS_NEWS(1) && !poisoned[1] && PROVED_ALIVE(1) -> look(1) }
#endif
	:: d_step { MAY_POISON(0) && !poisoned[0] -> poison(0) }
	:: d_step { MAY_POISON(1) && !poisoned[1] -> poison(1) }
	:: d_step { MAY_DROP(0) && !dropped[0] -> drop(0) }
	:: d_step { MAY_DROP(1) && !dropped[1] -> drop(1) }
	od
}
