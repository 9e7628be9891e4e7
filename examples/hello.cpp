/* SPDX-License-Identifier: MIT */

/*
 * hello.cpp: hello and more of what <share/share.hpp> has, on one page.
 *
 * The parent sends numbers through a channel, and asks a service to add them up. The child receives
 * the numbers in the memory in which they were written, and is the service. Nothing is released by
 * hand, and no result is looked at: owners release, and errors are exceptions.
 *
 *   g++ -std=c++17 hello.cpp $(pkg-config --cflags --libs libshare)
 */

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <sys/wait.h>
#include <unistd.h>

#include <share/share.hpp>

using namespace std::chrono_literals;

static share_pool_options host_memory()
{
	share_pool_options options = SHARE_POOL_OPTIONS_INIT;

	options.kind = "host"; /* not GPU memory: this program reads and writes it itself */
	options.flags = SHARE_POOL_OPEN_OR_CREATE;
	return options;
}

static share_channel_options queue()
{
	share_channel_options options = SHARE_CHANNEL_OPTIONS_INIT;

	options.pool = "hello";
	options.mode = SHARE_QUEUE;
	return options;
}

static share_service_options adder()
{
	share_service_options options = SHARE_SERVICE_OPTIONS_INIT;

	options.pool = "hello";
	return options;
}

static void child()
{
	const share_channel_options as_queue = queue();
	const share_service_options as_adder = adder();
	share::client client("");
	share::pool pool(client, "hello", host_memory());
	share::consumer numbers(client, "numbers", &as_queue);
	share::worker sums(client, "sums", &as_adder);

	/* until the last producer has gone */
	for (share::message &m : numbers) {
		auto values = m.as<const int>();

		std::printf("child: message %d has %zu numbers, the last of which is %d\n",
			    static_cast<int>(m.number()), values.size(), values[values.size() - 1]);
	}
	/* until the last caller has gone */
	for (share::message &request : sums) {
		auto values = request.as<const int>();
		int sum = std::accumulate(values.begin(), values.end(), 0);

		request.reply(&sum, sizeof(sum));
	}
}

static void parent(const share::client &client)
{
	const share_channel_options as_queue = queue();
	const share_service_options as_adder = adder();
	share::pool pool(client, "hello", host_memory());
	share::buffer kept;

	{
		share::producer numbers(client, "numbers", &as_queue);

		for (int last = 1; last <= 3; last++) {
			share::buffer b = pool.alloc(100 * sizeof(int));
			auto values = b.as<int>();

			std::iota(values.begin(), values.end(), last - 99);
			kept = b.retain();
			if (!numbers.give(std::move(b)))
				throw share::error(SHARE_ETIMEDOUT, "there is no room");
		}
		if (!numbers.drain(10s))
			throw share::error(SHARE_ETIMEDOUT, "the child does not receive");
	} /* the producer goes, which ends the child's loop */

	share::caller sums(client, "sums", &as_adder);
	auto answer = sums.call(kept, nullptr, 0, 10s);
	int sum = 0;

	if (!answer || answer->data().size() != sizeof(sum))
		throw share::error(SHARE_ETIMEDOUT, "the child does not answer");
	std::memcpy(&sum, answer->data().data(), sizeof(sum));
	std::printf("parent: their sum is %d\n", sum);
}

/* What is no error is a value, and what is one says what to do. */
static void look_around(const share::client &client)
{
	if (!client.lookup("nothing", SHARE_RDONLY, 1ms))
		std::puts("parent: there is no such name");
	try {
		share::pool none(client, "none");
	} catch (const share::error &e) {
		std::printf("parent: %s: %s\n", e.name(), e.what());
	}
}

int main()
try {
	share::client client(std::getenv("SHARE_SOCKET") ? nullptr : "embedded");
	int status = 0;

	/* where the child looks */
	setenv("SHARE_SOCKET", client.address().c_str(), 1);
	look_around(client);
	std::fflush(stdout);
	if (pid_t pid = fork(); pid == 0) {
		child();
		std::fflush(stdout);
		_exit(0); /* the parent's objects are not this process's to release */
	} else {
		parent(client);
		waitpid(pid, &status, 0);
	}
	return status == 0 ? 0 : 1;
} catch (const share::error &e) {
	std::fprintf(stderr, "hello.cpp: %s (%s)\n", e.what(), e.name());
	return 1;
}
