// SPDX-License-Identifier: MIT

// Boost.Interprocess: a message queue in shared memory in each direction. It copies a message in
// and out.

#include <cstdio>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include <sys/statvfs.h>
#include <unistd.h>

#include <boost/interprocess/ipc/message_queue.hpp>

#include "bench/peers/carrier.h"

namespace
{

namespace ipc = boost::interprocess;

constexpr const char name[] = "boost";

// A queue's name is one of the whole machine; the last part of the folder makes ours unique.
std::string queue_name(const carrier_setup *s, const char *which)
{
	std::string folder = s->folder;

	return folder.substr(folder.rfind('/') + 1) + "-" + which;
}

struct end {
	std::unique_ptr<ipc::message_queue> sends, receives;
	std::vector<unsigned char> outgoing, incoming;
};

template <typename F> auto must(const char *what, F f)
{
	try {
		return f();
	} catch (const std::exception &e) {
		carrier_must(false, name, what, e.what());
		throw;
	}
}

const char *cannot(const carrier_setup *s)
{
	struct statvfs shm;

	if (statvfs("/dev/shm", &shm) == 0 && shm.f_bavail * shm.f_frsize < 2 * s->size * s->window)
		return "there is too little room in /dev/shm";
	return nullptr;
}

void *open_end(const carrier_setup *s, bool first)
{
	return must("message_queue", [&]() -> void * {
		auto e = std::make_unique<end>();
		std::string there = queue_name(s, "there"), back = queue_name(s, "back");

		if (first) {
			e->sends = std::make_unique<ipc::message_queue>(
			    ipc::create_only, there.c_str(), s->window, s->size);
			e->receives = std::make_unique<ipc::message_queue>(
			    ipc::create_only, back.c_str(), s->window, CARRIER_ANSWER);
		} else {
			e->sends =
			    std::make_unique<ipc::message_queue>(ipc::open_only, back.c_str());
			e->receives =
			    std::make_unique<ipc::message_queue>(ipc::open_only, there.c_str());
			// Both processes have the queues open, so they need no names any more.
			ipc::message_queue::remove(there.c_str());
			ipc::message_queue::remove(back.c_str());
		}
		e->outgoing.resize(first ? s->size : CARRIER_ANSWER);
		e->incoming.resize(first ? CARRIER_ANSWER : s->size);
		return e.release();
	});
}

void close_end(void *p)
{
	delete static_cast<end *>(p);
}

void *prepare(void *p)
{
	return static_cast<end *>(p)->outgoing.data();
}

void send_it(void *p)
{
	auto *e = static_cast<end *>(p);

	must("send", [&] { e->sends->send(e->outgoing.data(), e->outgoing.size(), 0); });
}

const void *receive(void *p)
{
	auto *e = static_cast<end *>(p);

	must("receive", [&] {
		ipc::message_queue::size_type size;
		unsigned priority;

		e->receives->receive(e->incoming.data(), e->incoming.size(), size, priority);
	});
	return e->incoming.data();
}

void release(void *)
{
}

} // namespace

extern "C" const carrier carrier_boost = {
    name,      "Boost.Interprocess's message queue",
    cannot,    open_end,
    close_end, prepare,
    send_it,   receive,
    release,
};
