/* SPDX-License-Identifier: MIT */
#ifndef SHARE_SHARE_HPP
#define SHARE_SHARE_HPP

/*
 * libshare for C++17 and later: owners that release what they have, views of memory, time limits of
 * std::chrono, exceptions, and streams that say what they are. All of it is in this header, and is
 * made of the functions of the C headers, which have the reference; get() of each owner gives the
 * handle for what is not here.
 *
 * Errors are exceptions of the type share::error. What is no error is a value: a receive() whose
 * time is over returns no message. Destructors never throw; who wants to know whether a release has
 * failed calls release(), ack() and so on. What would be lost if nobody looked at it is [[nodiscard]].
 *
 * Threads: as in C, several may use one object, and one may move or destroy it when no other does.
 * close() gives an object up while others wait with it, which ends their waits (SHARE_ECANCELED);
 * client::interrupt() ends all waits of a connection (SHARE_EINTR), also from the handler of a signal.
 */

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>

#if defined(__has_include)
#if __has_include(<version>)
#include <version>
#endif
#endif
#ifdef __cpp_lib_span
#include <span>
#endif

#include <share/service.h>
#include <share/share.h>

namespace share
{

/* ------------------------------------------------------------------------------------------- */
/* Errors and time limits                                                                      */

/** A function has failed. what() is the sentence of share_error_detail(). */
class error : public std::runtime_error
{
public:
	explicit error(int number, const std::string &detail)
	    : std::runtime_error(detail.empty() ? share_strerror(number) : detail), number_(number)
	{
	}
	/** enum share_error */
	int number() const noexcept { return number_; }
	/** "SHARE_ENOMEM" */
	const char *name() const noexcept { return share_error_name(number_); }

private:
	int number_;
};

/** Throws share::error if @p result is one; else returns it. */
inline int check(int result)
{
	if (result < 0)
		throw error(result, share_error_detail());
	return result;
}

/** A time limit. Every duration of std::chrono that is not finer is one by itself. */
using milliseconds = std::chrono::milliseconds;
/** No time limit. */
inline constexpr milliseconds forever{SHARE_WAIT_FOREVER};

namespace detail
{
/* What is longer than an int can say is without limit for all that anybody will notice. */
inline int timeout(milliseconds limit)
{
	return limit.count() < 0 || limit.count() > INT32_MAX ? SHARE_WAIT_FOREVER
							      : static_cast<int>(limit.count());
}

inline bool is_over(int result)
{
	return result == SHARE_EAGAIN || result == SHARE_ETIMEDOUT;
}

template <typename T, void (*Close)(T *)> struct closer {
	void operator()(T *p) const noexcept { Close(p); }
};
template <typename T, void (*Close)(T *)> using owner = std::unique_ptr<T, closer<T, Close>>;
} // namespace detail

/* ------------------------------------------------------------------------------------------- */
/* Memory as the program sees it                                                               */

/** Some objects of type T, one after the other, in memory of somebody else's, as std::span has it. */
template <typename T> class view
{
public:
	constexpr view() noexcept = default;
	constexpr view(T *data, std::size_t size) noexcept : data_(data), size_(size) {}
	constexpr T *data() const noexcept { return data_; }
	constexpr std::size_t size() const noexcept { return size_; }
	constexpr std::size_t size_bytes() const noexcept { return size_ * sizeof(T); }
	constexpr bool empty() const noexcept { return size_ == 0; }
	constexpr T *begin() const noexcept { return data_; }
	constexpr T *end() const noexcept { return data_ + size_; }
	constexpr T &operator[](std::size_t i) const { return data_[i]; }
#ifdef __cpp_lib_span
	constexpr operator std::span<T>() const noexcept { return {data_, size_}; }
#endif

private:
	T *data_ = nullptr;
	std::size_t size_ = 0;
};

/* ------------------------------------------------------------------------------------------- */
/* The connection, and streams                                                                 */

class client;

/** share_host_stream: a FIFO of functions that one thread runs. */
class host_stream
{
public:
	explicit host_stream(const client &c);
	void launch(void (*function)(void *), void *data)
	{
		check(share_host_stream_launch(handle_.get(), function, data));
	}
	void synchronize() { check(share_host_stream_synchronize(handle_.get())); }
	/** As the destructor: what was enqueued runs first. */
	void close() noexcept { handle_.reset(); }
	share_host_stream *get() const noexcept { return handle_.get(); }

private:
	detail::owner<share_host_stream, share_host_stream_destroy> handle_;
};

/** Where work is ordered. Each says what it is, so nothing has to be guessed. */
class stream
{
public:
	/** The calling thread, for memory of the host; the legacy default stream for that of a GPU. */
	constexpr stream() noexcept = default;
	stream(const host_stream &s) noexcept : handle_(s.get()) {}
	/** A CUstream or cudaStream_t of the device that CUDA gives this number. */
	static stream cuda(void *handle, int ordinal = 0) noexcept
	{
		stream s;

		s.handle_ = handle;
		s.ordinal_ = ordinal;
		return s;
	}
	void *get() const noexcept { return handle_; }
	/** -1: no stream of a GPU. */
	int ordinal() const noexcept { return ordinal_; }

private:
	void *handle_ = nullptr;
	int ordinal_ = -1;
};

class buffer;

/** share_client: a connection to a broker. */
class client
{
public:
	/** @param address  as share_connect(); @param options  as share_connect_with() */
	explicit client(const char *address = nullptr, const share_connect_options *options = nullptr)
	{
		share_client *c;

		check(share_connect_with(address, options, &c));
		handle_.reset(c);
	}
	std::string address() const { return share_address(get()); }
	void ping() const { check(share_ping(get())); }
	int fd() const { return check(share_get_fd(get())); }
	int dispatch() const { return check(share_dispatch(get())); }
	/** How long the broker will still be there, if it is about to end. */
	[[nodiscard]] std::optional<milliseconds> ending() const
	{
		int left = check(share_ending(get()));

		return left > 0 ? std::optional(milliseconds(left)) : std::nullopt;
	}
	/** Calls that wait throw SHARE_EINTR from now on, until interrupt_clear(). */
	void interrupt() const { check(share_interrupt(get())); }
	void interrupt_clear() const { check(share_interrupt_clear(get())); }
	/** As the destructor: the connection ends with the last object that was made from it. */
	void close() noexcept { handle_.reset(); }
	share_client *get() const noexcept { return handle_.get(); }

	[[nodiscard]] share_fence record(stream s) const
	{
		share_fence fence;

		check(share_fence_record(get(), s.ordinal(), s.get(), &fence));
		return fence;
	}
	/** The stream waits. */
	void wait(const share_fence &fence, stream s) const
	{
		check(share_fence_wait(get(), &fence, s.ordinal(), s.get()));
	}
	/** The calling thread waits. */
	void synchronize(const share_fence &fence) const
	{
		check(share_fence_synchronize(get(), &fence, SHARE_WAIT_FOREVER));
	}
	/** False: not in that time. */
	[[nodiscard]] bool synchronize(const share_fence &fence, milliseconds limit) const
	{
		int r = share_fence_synchronize(get(), &fence, detail::timeout(limit));

		return !detail::is_over(r) && check(r) == 0;
	}
	/** Waits until the name leads to a buffer. Nothing: it does not within that time; 0: yet. */
	[[nodiscard]] std::optional<buffer> lookup(const char *name, int mode = SHARE_RDONLY,
						   milliseconds limit = forever,
						   stream s = {}) const;
	[[nodiscard]] buffer import(const share_token &token, int mode = 0, stream s = {}) const;
	void unpublish(const char *name) const { check(share_unpublish(get(), name)); }

private:
	detail::owner<share_client, share_disconnect> handle_;
};

inline host_stream::host_stream(const client &c)
{
	share_host_stream *s;

	check(share_host_stream_create(c.get(), &s));
	handle_.reset(s);
}

/* ------------------------------------------------------------------------------------------- */
/* Buffers                                                                                     */

/** One reference to a share_buffer, which the destructor gives up behind the stream that was named
 * last. */
class buffer
{
public:
	buffer() noexcept = default;
	/** Takes the reference over. */
	explicit buffer(share_buffer *handle, stream s = {}) noexcept : handle_(handle), stream_(s) {}
	buffer(buffer &&other) noexcept
	    : handle_(std::exchange(other.handle_, nullptr)), stream_(other.stream_)
	{
	}
	buffer &operator=(buffer &&other) noexcept
	{
		buffer old(std::move(*this));

		handle_ = std::exchange(other.handle_, nullptr);
		stream_ = other.stream_;
		return *this;
	}
	~buffer()
	{
		/* a stream that is gone has run all that it had to */
		if (handle_ && share_release(handle_, stream_.get()) == SHARE_EINVAL && stream_.get())
			share_release(handle_, nullptr);
	}

	explicit operator bool() const noexcept { return handle_; }
	share_buffer *get() const noexcept { return handle_; }
	/** The reference is the caller's from now on. */
	[[nodiscard]] share_buffer *detach() noexcept { return std::exchange(handle_, nullptr); }
	/** Another reference to the same handle. */
	[[nodiscard]] buffer retain() const { return buffer(share_retain(handle_), stream_); }
	/** The memory was used on this stream: it is released behind that. */
	void used_on(stream s) noexcept { stream_ = s; }
	/** As the destructor, but throws when it fails. This has the reference still only if bool(*this)
	 * says so: the stream was none, is being captured, or the process is a child. */
	void release()
	{
		int r = share_release(handle_, stream_.get());

		if (r != SHARE_EINVAL && r != SHARE_EFORK && r != SHARE_ENOTSUP)
			handle_ = nullptr;
		check(r);
	}

	void *data() const noexcept { return share_ptr(handle_); }
	std::uint64_t size() const noexcept { return share_size(handle_); }
	std::uint64_t id() const noexcept { return share_id(handle_); }
	bool is_writable() const noexcept { return share_mode(handle_) == SHARE_RDWR; }
	share_buffer_info info() const
	{
		share_buffer_info found = SHARE_BUFFER_INFO_INIT;

		check(share_buffer_get_info(handle_, &found));
		return found;
	}
	/** The memory as objects of type T, `const T` for a handle that is only for reading. Refuses
	 * memory of a GPU, which the host cannot touch: that has data(). */
	template <typename T> view<T> as() const
	{
		static_assert(std::is_trivially_copyable_v<T>, "other processes have it as bytes");

		if (!std::is_const_v<T> && !is_writable())
			throw error(SHARE_EACCES, "the handle is read-only: use a view of const");
		if (info().ordinal >= 0)
			throw error(SHARE_EINVAL, "this is memory of a GPU");
		return {static_cast<T *>(data()), static_cast<std::size_t>(size() / sizeof(T))};
	}
	/** Copies from another buffer, of whatever kind and device: share_copy(). */
	void copy_from(const buffer &from, std::uint64_t size, std::uint64_t offset = 0,
		       std::uint64_t from_offset = 0, stream s = {}) const
	{
		check(share_copy(handle_, offset, from.get(), from_offset, size, s.get()));
	}
	/** Copies out of memory of every kind, behind the work on the stream. The thread waits for it. */
	void copy_to_host(void *to, std::uint64_t size, std::uint64_t offset = 0, stream s = {}) const
	{
		check(share_copy_to_host(handle_, offset, to, size, s.get()));
	}
	/** Copies into it. */
	void copy_from_host(const void *from, std::uint64_t size, std::uint64_t offset = 0,
			    stream s = {}) const
	{
		check(share_copy_from_host(handle_, offset, from, size, s.get()));
	}
	/** 0, SHARE_EAGAIN or SHARE_EOWNERDEAD: share_buffer_status(). */
	int status() const noexcept { return share_buffer_status(handle_); }
	std::uint64_t publish(const char *name, stream s = {},
			      const share_publish_options *options = nullptr) const
	{
		std::uint64_t version;

		check(share_publish_with(handle_, name, options, s.get(), &version));
		return version;
	}
	[[nodiscard]] share_token export_token(stream s = {}, const share_export_options *options = nullptr) const
	{
		share_token token;

		check(share_export_with(handle_, options, s.get(), &token));
		return token;
	}
	/** Waits until nobody else has it. */
	void reclaim() const { check(share_reclaim(handle_, SHARE_WAIT_FOREVER, nullptr)); }
	/** False: others still have it. */
	[[nodiscard]] bool reclaim(milliseconds limit, stream s = {}) const
	{
		int r = share_reclaim(handle_, detail::timeout(limit), s.get());

		return r != SHARE_EBUSY && r != SHARE_ETIMEDOUT && check(r) == 0;
	}

private:
	share_buffer *handle_ = nullptr;
	stream stream_;
};

inline std::optional<buffer> client::lookup(const char *name, int mode, milliseconds limit,
					    stream s) const
{
	share_buffer *b;
	int r = share_lookup(get(), name, mode, detail::timeout(limit), s.get(), &b);

	if (r == SHARE_ENOENT || r == SHARE_ETIMEDOUT)
		return std::nullopt;
	check(r);
	return buffer(b, s);
}

inline buffer client::import(const share_token &token, int mode, stream s) const
{
	share_buffer *b;

	check(share_import(get(), &token, mode, s.get(), &b));
	return buffer(b, s);
}

/** share_pool: where buffers come from. */
class pool
{
public:
	/** One that exists. */
	pool(const client &c, const char *name)
	{
		share_pool *p;

		check(share_pool_open(c.get(), name, &p));
		handle_.reset(p);
	}
	pool(const client &c, const char *name, const share_pool_options &options)
	{
		share_pool *p;

		check(share_pool_create(c.get(), name, &options, &p));
		handle_.reset(p);
	}
	[[nodiscard]] buffer alloc(std::uint64_t size, stream s = {},
		     const share_alloc_options *options = nullptr) const
	{
		share_buffer *b;

		check(share_alloc_with(get(), size, options, s.get(), &b));
		return buffer(b, s);
	}
	/** Memory that is there already: share_adopt(). */
	[[nodiscard]] buffer adopt(void *memory, std::uint64_t size, stream s = {}) const
	{
		share_buffer *b;

		check(share_adopt(get(), memory, size, s.get(), &b));
		return buffer(b, s);
	}
	/** Maps what it has by now, so that no look-up has to: share_pool_map_ahead(). */
	void map_ahead(int mode = SHARE_RDONLY) const { check(share_pool_map_ahead(get(), mode)); }
	share_pool_info info() const
	{
		share_pool_info found = SHARE_POOL_INFO_INIT;

		check(share_pool_get_info(get(), &found));
		return found;
	}
	share_pool *get() const noexcept { return handle_.get(); }

private:
	detail::owner<share_pool, share_pool_close> handle_;
};

/** A tensor in the order of C. */
inline share_tensor tensor(share_dtype dtype, std::initializer_list<std::int64_t> shape)
{
	share_tensor t = SHARE_TENSOR_INIT;

	check(share_tensor_init(&t, dtype, static_cast<std::uint32_t>(shape.size()), shape.begin()));
	return t;
}

/* ------------------------------------------------------------------------------------------- */
/* Channels                                                                                    */

/** The buffers of one message, as in `tx.send({image, boxes})`. */
using several = std::initializer_list<std::reference_wrapper<const buffer>>;

namespace detail
{
/* What goes with several buffers, as the library takes it. */
class outgoing
{
public:
	outgoing(several buffers, const void *data, std::size_t size)
	{
		if (buffers.size() == 0 || buffers.size() > sizeof(handles_) / sizeof(*handles_))
			throw error(SHARE_EINVAL, "a message has 1 to 32 buffers");
		m_.buffers = handles_;
		for (const buffer &b : buffers)
			handles_[m_.n_buffers++] = b.get();
		m_.data = data;
		m_.data_size = size;
	}
	outgoing(const outgoing &) = delete;
	outgoing &operator=(const outgoing &) = delete;
	const share_outgoing *get() const noexcept { return &m_; }

private:
	share_outgoing m_ = SHARE_OUTGOING_INIT;
	share_buffer *handles_[32];
};
} // namespace detail

/** A message or a request that was received, which the destructor acknowledges behind the stream
 * that was named last. */
class message
{
public:
	message() noexcept = default;
	/** Takes the message over. */
	explicit message(const share_message &m, stream s = {}) noexcept : m_(m), stream_(s) {}
	message(message &&other) noexcept : m_(other.m_), stream_(other.stream_) { other.forget(); }
	message &operator=(message &&other) noexcept
	{
		message old(std::move(*this));

		m_ = other.m_;
		stream_ = other.stream_;
		other.forget();
		return *this;
	}
	~message()
	{
		/* a stream that is gone has run all that it had to */
		if (m_.channel && share_ack(&m_, stream_.get()) == SHARE_EINVAL && stream_.get())
			share_ack(&m_, nullptr);
	}

	explicit operator bool() const noexcept { return m_.channel; }
	const share_message &get() const noexcept { return m_; }
	share_message &get() noexcept { return m_; }
	/** What came with the buffer; good until the message is acknowledged. */
	view<const unsigned char> data() const noexcept { return {m_.data, m_.data_size}; }
	/** 0, or why there is no buffer though one was sent. */
	int error() const noexcept { return m_.error; }
	bool has_buffer() const noexcept { return m_.buffer; }
	std::size_t n_buffers() const noexcept { return m_.n_buffers; }
	/** A reference of its own to a buffer, which may outlive the message. Throws error(), if there
	 * is one, and std::out_of_range. */
	[[nodiscard]] buffer retain(std::size_t i = 0) const
	{
		return buffer(share_retain(at(i)), stream_);
	}
	/** The memory of a buffer, as buffer::as(). Throws as retain(). */
	template <typename T> view<T> as(std::size_t i = 0) const { return retain_view<T>(at(i)); }
	std::uint64_t number() const noexcept { return m_.number; }
	std::uint64_t lost() const noexcept { return m_.lost; }
	std::uint32_t deliveries() const noexcept { return m_.deliveries; }

	/** It was used on this stream: it is acknowledged behind that. */
	void used_on(stream s) noexcept { stream_ = s; }
	void ack() { check(share_ack(&m_, stream_.get())); }
	void reject() { check(share_reject(&m_, stream_.get())); }
	/** Of a request: whether the caller still waits. */
	bool is_awaited() const { return share_request_status(&m_) == 0; }
	/** Of a request. False: nobody waits for the answer any more. */
	bool reply(const buffer &answer, const void *data = nullptr, std::size_t size = 0)
	{
		int r = share_reply(&m_, answer.get(), data, size, stream_.get());

		return r != SHARE_ECANCELED && r != SHARE_EOWNERDEAD && check(r) == 0;
	}
	bool reply(const void *data, std::size_t size) { return reply(buffer(), data, size); }
	bool reply(several answer, const void *data = nullptr, std::size_t size = 0)
	{
		int r = share_reply_with(&m_, detail::outgoing(answer, data, size).get(), stream_.get());

		return r != SHARE_ECANCELED && r != SHARE_EOWNERDEAD && check(r) == 0;
	}

private:
	void forget() noexcept
	{
		m_.channel = nullptr;
		m_.buffer = nullptr;
		m_.buffers = nullptr;
		m_.n_buffers = 0;
	}
	/* NULL: the message has none at all. */
	share_buffer *at(std::size_t i) const
	{
		check_error();
		if (i > 0 && i >= m_.n_buffers)
			throw std::out_of_range("the message has fewer buffers");
		return i > 0 ? m_.buffers[i] : m_.buffer;
	}
	void check_error() const
	{
		if (m_.error != 0)
			throw share::error(m_.error, share_strerror(m_.error));
	}
	template <typename T> view<T> retain_view(share_buffer *b) const
	{
		buffer borrowed(b, stream_);
		struct keeper {
			buffer &b;
			~keeper() { static_cast<void>(b.detach()); }
		} keep{borrowed};

		return borrowed.as<T>();
	}

	share_message m_ = SHARE_MESSAGE_INIT;
	stream stream_;
};

namespace detail
{
class channel
{
public:
	int fd() const { return check(share_channel_get_fd(get())); }
	share_channel_stats stats() const
	{
		share_channel_stats found = SHARE_CHANNEL_STATS_INIT;

		check(share_channel_get_stats(get(), &found));
		return found;
	}
	/** Leaves the channel: other threads that wait in it come back. */
	void close() noexcept { handle_.reset(); }
	share_channel *get() const noexcept { return handle_.get(); }

protected:
	channel(const client &c, const char *name, int role, const share_channel_options *options)
	{
		share_channel *ch;

		check(share_channel_open(c.get(), name, role, options, &ch));
		handle_.reset(ch);
	}

private:
	owner<share_channel, share_channel_close> handle_;
};

/* To a message, if there is one. SHARE_EPIPE is the end, which each loop wants to know. */
inline std::optional<message> received(int result, const share_message &m, stream s,
				       milliseconds limit)
{
	/* without a limit, it is the thread that may not wait (SHARE_CONNECT_NEVER_BLOCK) */
	if (is_over(result) && limit.count() >= 0)
		return std::nullopt;
	check(result);
	return message(m, s);
}

/* What a loop over messages stands at: it ends when all who send have gone. */
template <typename From> class iterator
{
public:
	using iterator_category = std::input_iterator_tag;
	using value_type = message;
	using difference_type = std::ptrdiff_t;
	using pointer = message *;
	using reference = message &;

	iterator() noexcept = default;
	explicit iterator(From *from) : from_(from) { next(); }
	message &operator*() const noexcept { return *at_; }
	message *operator->() const noexcept { return at_.get(); }
	iterator &operator++()
	{
		next();
		return *this;
	}
	bool operator==(const iterator &other) const noexcept { return from_ == other.from_; }
	bool operator!=(const iterator &other) const noexcept { return from_ != other.from_; }

private:
	void next()
	{
		at_.reset(); /* acknowledged before there is another */
		try {
			at_ = std::make_shared<message>(from_->receive(forever).value());
		} catch (const error &e) {
			if (e.number() != SHARE_EPIPE)
				throw;
			from_ = nullptr;
		}
	}

	From *from_ = nullptr;
	std::shared_ptr<message> at_;
};
} // namespace detail

/** A channel, to send. */
class producer : public detail::channel
{
public:
	producer(const client &c, const char *name, const share_channel_options *options = nullptr)
	    : channel(c, name, SHARE_PRODUCER, options)
	{
	}
	/** False: there is no room, as share_when_full says. */
	[[nodiscard]] bool send(const buffer &b, const void *data = nullptr, std::size_t size = 0,
				stream s = {}) const
	{
		return sent(share_send(get(), b.get(), data, size, s.get()));
	}
	[[nodiscard]] bool send(const void *data, std::size_t size) const { return send(buffer(), data, size); }
	[[nodiscard]] bool send(several buffers, const void *data = nullptr, std::size_t size = 0,
				stream s = {}) const
	{
		detail::outgoing m(buffers, data, size);

		return sent(share_send_many(get(), m.get(), 1, s.get()));
	}
	/** The reference goes to the channel, if there is room. */
	[[nodiscard]] bool give(buffer &&b, const void *data = nullptr, std::size_t size = 0,
				stream s = {}) const
	{
		bool gone = sent(share_give(get(), b.get(), data, size, s.get()));

		if (gone)
			static_cast<void>(b.detach());
		return gone;
	}
	void flush() const { check(share_channel_flush(get(), SHARE_WAIT_FOREVER)); }
	/** False: some messages still wait for a consumer. */
	[[nodiscard]] bool flush(milliseconds limit) const
	{
		return sent(share_channel_flush(get(), detail::timeout(limit)));
	}
	void drain() const { check(share_channel_drain(get(), SHARE_WAIT_FOREVER)); }
	/** False: some are not acknowledged. */
	[[nodiscard]] bool drain(milliseconds limit) const
	{
		return sent(share_channel_drain(get(), detail::timeout(limit)));
	}
	/** The next message that was delivered too often. */
	[[nodiscard]] std::optional<message> take_back() const
	{
		share_message m = SHARE_MESSAGE_INIT;

		return detail::received(share_channel_take_back(get(), &m), m, {}, milliseconds{0});
	}

private:
	static bool sent(int result) { return !detail::is_over(result) && check(result) >= 0; }
};

/** A channel, to receive: `for (share::message &m : consumer)` until the last producer has gone. */
class consumer : public detail::channel
{
public:
	consumer(const client &c, const char *name, const share_channel_options *options = nullptr)
	    : channel(c, name, SHARE_CONSUMER, options)
	{
	}
	/** Nothing: no message within that time. Throws SHARE_EPIPE when the last producer has gone. */
	[[nodiscard]] std::optional<message> receive(milliseconds limit = forever, stream s = {}) const
	{
		share_message m = SHARE_MESSAGE_INIT;

		return detail::received(share_recv(get(), detail::timeout(limit), s.get(), &m), m, s,
					limit);
	}
	detail::iterator<const consumer> begin() const
	{
		return detail::iterator<const consumer>(this);
	}
	detail::iterator<const consumer> end() const noexcept { return {}; }
};

/* ------------------------------------------------------------------------------------------- */
/* Services                                                                                    */

namespace detail
{
class service
{
public:
	int fd() const { return check(share_service_get_fd(get())); }
	/** Leaves the service: other threads that wait in it come back. */
	void close() noexcept { handle_.reset(); }
	share_service *get() const noexcept { return handle_.get(); }

protected:
	service(const client &c, const char *name, int role, const share_service_options *options)
	{
		share_service *s;

		check(share_service_open(c.get(), name, role, options, &s));
		handle_.reset(s);
	}

private:
	owner<share_service, share_service_close> handle_;
};
} // namespace detail

/** A call that is under way. The destructor gives it up, and its answer with it. */
class pending
{
public:
	/** Takes the call over. */
	explicit pending(share_pending *handle) noexcept : handle_(handle) {}
	/** Nothing, and the call goes on: limit 0, and there is no answer yet. Nothing, and *this is no
	 * call any more: none came within that time. */
	[[nodiscard]] std::optional<message> finish(milliseconds limit = forever, stream s = {})
	{
		share_message m = SHARE_MESSAGE_INIT;
		int r = share_call_finish(handle_.get(), detail::timeout(limit), s.get(), &m);

		if (r != SHARE_EAGAIN && r != SHARE_EINVAL && r != SHARE_EINTR && r != SHARE_EFORK)
			static_cast<void>(handle_.release());
		return detail::received(r, m, s, limit);
	}
	explicit operator bool() const noexcept { return static_cast<bool>(handle_); }
	share_pending *get() const noexcept { return handle_.get(); }

private:
	detail::owner<share_pending, share_call_cancel> handle_;
};

/** A service, to ask. */
class caller : public detail::service
{
public:
	caller(const client &c, const char *name, const share_service_options *options = nullptr)
	    : service(c, name, SHARE_CALLER, options)
	{
	}
	/** Nothing: no answer within that time. Throws SHARE_ECANCELED and SHARE_EOWNERDEAD. */
	[[nodiscard]] std::optional<message> call(const buffer &b, const void *data = nullptr,
						  std::size_t size = 0,
						  milliseconds limit = forever, stream s = {}) const
	{
		share_message m = SHARE_MESSAGE_INIT;
		int r = share_call(get(), b.get(), data, size, detail::timeout(limit), s.get(), &m);

		return detail::received(r, m, s, limit);
	}
	[[nodiscard]] std::optional<message> call(const void *data, std::size_t size,
						  milliseconds limit = forever) const
	{
		return call(buffer(), data, size, limit);
	}
	[[nodiscard]] std::optional<message> call(several buffers, const void *data = nullptr,
						  std::size_t size = 0,
						  milliseconds limit = forever, stream s = {}) const
	{
		share_message m = SHARE_MESSAGE_INIT;
		detail::outgoing request(buffers, data, size);
		int r = share_call_with(get(), request.get(), detail::timeout(limit), s.get(), &m);

		return detail::received(r, m, s, limit);
	}
	/** Asks, and leaves the answer to pending::finish(). Nothing: no room within that time, or too
	 * many calls are under way. */
	[[nodiscard]] std::optional<pending> start(const buffer &b, const void *data = nullptr,
						   std::size_t size = 0,
						   milliseconds limit = forever, stream s = {}) const
	{
		share_pending *p;

		return started(share_call_start(get(), b.get(), data, size, detail::timeout(limit), s.get(), &p), p);
	}
	[[nodiscard]] std::optional<pending> start(several buffers, const void *data = nullptr,
						   std::size_t size = 0,
						   milliseconds limit = forever, stream s = {}) const
	{
		share_pending *p;
		detail::outgoing request(buffers, data, size);

		return started(share_call_start_with(get(), request.get(), detail::timeout(limit), s.get(), &p), p);
	}

private:
	static std::optional<pending> started(int result, share_pending *const &p)
	{
		if (detail::is_over(result))
			return std::nullopt;
		check(result);
		return pending(p);
	}
};

/** A service, to answer: `for (share::message &request : worker)` until all callers have gone. */
class worker : public detail::service
{
public:
	worker(const client &c, const char *name, const share_service_options *options = nullptr)
	    : service(c, name, SHARE_WORKER, options)
	{
	}
	/** Nothing: no request within that time. Throws SHARE_EPIPE when all callers have gone. */
	[[nodiscard]] std::optional<message> receive(milliseconds limit = forever, stream s = {}) const
	{
		share_message m = SHARE_MESSAGE_INIT;
		int r = share_next_request(get(), detail::timeout(limit), s.get(), &m);

		return detail::received(r, m, s, limit);
	}
	detail::iterator<const worker> begin() const { return detail::iterator<const worker>(this); }
	detail::iterator<const worker> end() const noexcept { return {}; }
};

} // namespace share

#endif
