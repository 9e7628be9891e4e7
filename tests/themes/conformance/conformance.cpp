/* SPDX-License-Identifier: MIT */

/*
 * What scenarios.txt has, with <share/share.hpp>. usage: conformance KIND
 */

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <future>
#include <utility>
#include <vector>

#include <share/share.hpp>

using namespace std::chrono_literals;

#define CHECK(condition)                                                                \
	do {                                                                            \
		if (!(condition)) {                                                     \
			std::fprintf(stderr, "line %d: not so: %s\n", __LINE__, #condition); \
			std::exit(1);                                                   \
		}                                                                       \
	} while (0)

static constexpr auto limit = 30s; /* only so that a test which hangs ends */
static constexpr std::size_t size = 10000;
static const char *kind;
/* The one that runs. All that it makes is called like it: what the one before has had may end later. */
static const char *scenario;

static std::vector<std::pair<const char *, void (*)()>> &scenarios()
{
	static std::vector<std::pair<const char *, void (*)()>> all;
	return all;
}

#define SCENARIO(name)                                                              \
	static void name();                                                         \
	static const bool has_##name = (scenarios().emplace_back(#name, name), true); \
	static void name()

/* What each begins with: two connections, and a pool. */
struct world {
	share::client one{nullptr}, other{nullptr};
	share::pool pool{one, scenario, options()};

	static share_pool_options options()
	{
		share_pool_options o = SHARE_POOL_OPTIONS_INIT;

		o.kind = kind;
		return o;
	}
	static share_channel_options queue()
	{
		share_channel_options o = SHARE_CHANNEL_OPTIONS_INIT;

		o.pool = scenario;
		o.mode = SHARE_QUEUE;
		return o;
	}
	static share_service_options service()
	{
		share_service_options o = SHARE_SERVICE_OPTIONS_INIT;

		o.pool = scenario;
		return o;
	}
	share::producer producer() const
	{
		auto o = queue();
		return share::producer(one, scenario, &o);
	}
	share::consumer consumer() const
	{
		auto o = queue();
		return share::consumer(other, scenario, &o);
	}
	share::buffer filled(int value) const
	{
		share::buffer b = pool.alloc(size);
		std::vector<unsigned char> bytes(size, static_cast<unsigned char>(value));

		b.copy_from_host(bytes.data(), size);
		return b;
	}
	void send(const share::producer &tx, int value) const { CHECK(tx.give(filled(value))); }
};

static bool is_filled(const share::buffer &b, int value)
{
	std::vector<unsigned char> bytes(size);

	b.copy_to_host(bytes.data(), size);
	for (unsigned char byte : bytes)
		if (byte != value)
			return false;
	return b.size() == size;
}

/* The number of the error, or 0. */
static int thrown(const std::function<void()> &call)
{
	try {
		call();
		return 0;
	} catch (const share::error &e) {
		return e.number();
	}
}

SCENARIO(a_buffer_is_found_by_its_name)
{
	world w;

	w.filled(1).publish(scenario);
	CHECK(is_filled(w.other.lookup(scenario, SHARE_RDONLY, limit).value(), 1));
	w.one.unpublish(scenario);
	CHECK(!w.other.lookup(scenario, SHARE_RDONLY, 0ms));
	w.other.interrupt(); /* which ends only what waits */
	CHECK(thrown([&] { CHECK(!w.other.lookup(scenario)); }) == SHARE_EINTR);
	w.other.interrupt_clear();
}

SCENARIO(a_buffer_is_imported_by_its_token)
{
	world w;
	share_token token = w.filled(2).export_token();

	CHECK(is_filled(w.other.import(token), 2));
	CHECK(thrown([&] { is_filled(w.other.import(token), 2); }) == SHARE_ENOENT);
}

SCENARIO(who_may_only_read_cannot_write)
{
	world w;
	share::buffer b = w.filled(3);

	b.publish(scenario);
	auto found = w.other.lookup(scenario, SHARE_RDONLY, limit);
	CHECK(found && !found->is_writable());
	CHECK(thrown([&] { found->copy_from_host("x", 1); }) == SHARE_EACCES);
	CHECK(is_filled(b, 3));
}

SCENARIO(a_tensor_goes_with_a_name)
{
	world w;
	share_tensor t = share::tensor(SHARE_FLOAT32, {10, 25}), got = SHARE_TENSOR_INIT;
	share_publish_options options = SHARE_PUBLISH_OPTIONS_INIT;

	options.tensor = &t;
	w.filled(4).publish(scenario, {}, &options);
	auto found = w.other.lookup(scenario, SHARE_RDONLY, limit);
	share::check(share_tensor_get(found->get(), &got));
	CHECK(got.dtype == SHARE_FLOAT32 && got.ndim == 2 && got.shape[1] == 25);
}

SCENARIO(a_buffer_is_copied_to_another_pool_and_back)
{
	world w;
	share_pool_options o = SHARE_POOL_OPTIONS_INIT;

	o.kind = "host";
	share::pool copies{w.other, "copies", o};
	share::buffer b = w.filled(16), copy = copies.alloc(size);

	copy.copy_from(b, size);
	b.copy_from_host(std::vector<unsigned char>(size).data(), size);
	CHECK(is_filled(copy, 16) && is_filled(b, 0));
	b.copy_from(copy, size);
	CHECK(is_filled(b, 16));
}

SCENARIO(a_pool_is_mapped_before_anything_is_looked_up)
{
	world w;
	share::pool p{w.other, scenario};
	share::buffer b = w.filled(17);

	b.publish("name");
	p.map_ahead();
	CHECK(is_filled(w.other.lookup("name").value(), 17));
	p.map_ahead(SHARE_RDWR);
	w.other.lookup("name", SHARE_RDWR).value().copy_from_host(
	    std::vector<unsigned char>(size, 18).data(), size);
	CHECK(is_filled(b, 18));
	w.one.unpublish("name");
}

SCENARIO(a_channel_carries_memory)
{
	world w;
	auto tx = w.producer();
	auto rx = w.consumer();

	for (int i = 0; i < 20; i++) {
		w.send(tx, i);
		auto m = rx.receive(limit);
		CHECK(m && m->number() == static_cast<unsigned>(i) && is_filled(m->retain(), i));
	}
}

SCENARIO(a_message_may_have_several_buffers)
{
	world w;
	auto options = world::queue();
	options.buffers = 2;
	share::producer tx(w.one, scenario, &options);
	share::consumer rx(w.other, scenario, &options);
	share::buffer a = w.filled(14), b = w.filled(15);

	CHECK(tx.send({a, b}, "both", 4));
	auto m = rx.receive(limit);
	CHECK(m && m->n_buffers() == 2 && m->data().size() == 4);
	CHECK(is_filled(m->retain(), 14) && is_filled(m->retain(1), 15));
	if (!w.pool.info().device)
		CHECK(m->as<const unsigned char>(1)[0] == m->retain(1).as<const unsigned char>()[0]);
	try {
		static_cast<void>(m->retain(2));
		CHECK(!"there are two");
	} catch (const std::out_of_range &) {
	}
	CHECK(thrown([&] { static_cast<void>(tx.send({a, b, a})); }) == SHARE_EINVAL);
}

SCENARIO(a_queue_gives_each_message_to_one)
{
	world w;
	auto tx = w.producer();
	auto rx = w.consumer(), other = w.consumer();

	w.send(tx, 5);
	w.send(tx, 6);
	{
		auto m = rx.receive(limit), n = other.receive(limit);
		CHECK(m && n && m->number() != n->number());
		CHECK(is_filled(m->retain(), 5 + static_cast<int>(m->number())));
		CHECK(is_filled(n->retain(), 5 + static_cast<int>(n->number())));
	}
	CHECK(!rx.receive(0ms) && !other.receive(0ms));
}

SCENARIO(a_message_is_kept_beyond_its_acknowledgement)
{
	world w;
	auto tx = w.producer();
	auto rx = w.consumer();

	w.send(tx, 7);
	share::buffer kept = rx.receive(limit).value().retain();
	tx.close();
	rx.close();
	CHECK(is_filled(kept, 7));
}

SCENARIO(a_rejected_message_comes_again)
{
	world w;
	auto tx = w.producer();
	auto rx = w.consumer();

	w.send(tx, 8);
	auto m = rx.receive(limit);
	CHECK(m && m->deliveries() == 1);
	m->reject();
	m = rx.receive(limit);
	CHECK(m && m->deliveries() == 2 && is_filled(m->retain(), 8));
}

SCENARIO(a_producer_waits_until_all_is_acknowledged)
{
	world w;
	auto tx = w.producer();
	auto rx = w.consumer();

	w.send(tx, 9);
	auto m = rx.receive(limit);
	CHECK(m && !tx.drain(0ms));
	m->ack();
	tx.drain();
}

SCENARIO(the_end_of_the_producers_is_told_once)
{
	world w;
	auto tx = w.producer();
	auto rx = w.consumer();
	int n = 0;

	w.send(tx, 10);
	tx.close();
	for (share::message &m : rx)
		n += is_filled(m.retain(), 10);
	CHECK(n == 1 && !rx.receive(0ms));
}

SCENARIO(a_time_limit_that_is_over_is_no_message)
{
	world w;
	auto tx = w.producer();
	auto rx = w.consumer();

	CHECK(!rx.receive(0ms) && !rx.receive(1ms));
}

SCENARIO(a_service_answers_with_memory)
{
	world w;
	auto options = world::service();
	share::worker worker(w.other, scenario, &options);
	share::caller caller(w.one, scenario, &options);
	share::pool pool(w.other, scenario);

	auto call = caller.start(w.filled(1), nullptr, 0, limit);
	CHECK(call && !call->finish(0ms) && *call);
	auto request = worker.receive(limit);
	CHECK(request && request->is_awaited() && is_filled(request->retain(), 1));
	share::buffer answer = pool.alloc(size);
	answer.copy_from_host(std::vector<unsigned char>(size, 2).data(), size);
	CHECK(request->reply(answer));
	auto reply = call->finish(limit);
	CHECK(reply && !*call && is_filled(reply->retain(), 2));
}

SCENARIO(a_service_answers_with_several_buffers)
{
	world w;
	auto options = world::service();
	options.buffers = 2;
	share::worker worker(w.other, scenario, &options);
	share::caller caller(w.one, scenario, &options);
	share::pool pool(w.other, scenario);
	share::buffer a = w.filled(16), b = w.filled(17);

	auto call = caller.start({a, b}, nullptr, 0, limit);
	auto request = worker.receive(limit);
	CHECK(call && request && request->n_buffers() == 2 && is_filled(request->retain(1), 17));
	share::buffer answer = pool.alloc(size);
	answer.copy_from_host(std::vector<unsigned char>(size, 18).data(), size);
	CHECK(request->reply({answer, answer}));
	auto reply = call->finish(limit);
	CHECK(reply && reply->n_buffers() == 2 && is_filled(reply->retain(1), 18));
}

SCENARIO(a_request_that_is_only_acknowledged_is_canceled)
{
	world w;
	auto options = world::service();
	share::worker worker(w.other, scenario, &options);
	share::caller caller(w.one, scenario, &options);
	auto call = caller.start(w.filled(11), nullptr, 0, limit);

	worker.receive(limit).value().ack();
	CHECK(thrown([&] { CHECK(!call->finish(limit)); }) == SHARE_ECANCELED);
}

SCENARIO(a_host_stream_orders_a_hand_over)
{
	world w;
	share::host_stream writes(w.one), reads(w.other);
	struct later {
		std::promise<void> found;
		share::buffer b;
	} later{{}, w.filled(12)};

	writes.launch(
	    [](void *p) {
		    std::vector<unsigned char> bytes(size, 13);

		    static_cast<struct later *>(p)->found.get_future().wait();
		    static_cast<struct later *>(p)->b.copy_from_host(bytes.data(), size);
	    },
	    &later);
	later.b.publish(scenario, writes);
	/* Not on the default stream: of a GPU, it would wait for the function, which uses it as well. */
	auto found = w.other.lookup(scenario, SHARE_RDONLY, limit, reads);
	later.found.set_value();
	reads.synchronize();
	CHECK(is_filled(found.value(), 13));
	later.b.used_on(writes);
	later.b.release(); /* before the stream goes */
}

int main(int argc, char **argv)
{
	if (argc != 2)
		return 2;
	kind = argv[1];
	for (auto &[name, run] : scenarios()) {
		scenario = name;
		try {
			run();
		} catch (const share::error &e) {
			std::fprintf(stderr, "%s: %s: %s (%s)\n", kind, name, e.what(), e.name());
			return 1;
		}
	}
	std::printf("conformance: %s: %zu scenarios\n", kind, scenarios().size());
	return 0;
}
