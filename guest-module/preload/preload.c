// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Socket outsourcing without the kernel module: a library that is loaded before libc (LD_PRELOAD) and makes
 * one program's socket calls over shared memory (transport.c).
 *
 * Each such socket has a descriptor of the guest's kernel, an AF_UNIX socket that is never connected. It
 * reserves the number and keeps the file flags and the options of level SOL_SOCKET. The library receives no
 * interrupts, so every wait polls the shared memory, at first without a break and then every millisecond.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/select.h>
#include <sys/sendfile.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "libc.h"
#include "transport.h"

#define FILES 65536
#define HANGUP (POLLHUP | POLLRDHUP)
#define NAP_US 1000
#define FOREVER UINT64_MAX

struct own {
	uint32_t id;
	int family;
	int type;
	uint32_t options;
	uint32_t linger;
	/* SO_RCVTIMEO and SO_SNDTIMEO, in microseconds. */
	uint64_t receive_us;
	uint64_t send_us;
	bool is_listening;
	bool is_connecting;
	bool is_connected;
	union address peer;
	/* Number of descriptors. */
	atomic_int files;
};

/* An outsourced socket on the interest list of an epoll descriptor. */
struct watched {
	struct watched *next;
	int fd;
	struct epoll_event event;
	uint32_t sequence;
	bool is_new;
};

static _Atomic(struct own *) files[FILES];
static struct watched *watched[FILES];
/* The largest epoll descriptor that ever watched an outsourced socket; -1 for none. */
static atomic_int watched_most = -1;
static pthread_mutex_t watched_lock = PTHREAD_MUTEX_INITIALIZER;
static uint64_t spin_us = 200;

static int fail(int error)
{
	errno = -error;
	return -1;
}

static int outcome(int result)
{
	return result < 0 ? fail(result) : result;
}

static struct own *own_of(int fd)
{
	return fd >= 0 && fd < FILES ? atomic_load(&files[fd]) : NULL;
}

static bool start(void)
{
	static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
	static bool is_tried, is_there;

	pthread_mutex_lock(&lock);
	if (!is_tried) {
		const char *spin = getenv("PUNCTUAL_SOCKETS_SPIN_US");

		is_tried = true;
		if (spin)
			spin_us = strtoull(spin, NULL, 10);
		is_there = vmrpc_start();
		pthread_atfork(NULL, NULL, vmrpc_forget);
	}
	pthread_mutex_unlock(&lock);
	return is_there && vmrpc_alive();
}

static int call_of(struct own *own, struct vmrpc_call *call)
{
	call->socket = own->id;
	call->options = own->options;
	call->linger = own->linger;
	return vmrpc_call(call);
}

static bool may_block(int fd, int flags)
{
	return !(flags & MSG_DONTWAIT) && !(REAL(fcntl)(fd, F_GETFL) & O_NONBLOCK);
}

static uint64_t deadline(uint64_t limit_us)
{
	return limit_us == FOREVER ? FOREVER : now_us() + limit_us;
}

/*
 * A waiting call blocks signals except during its naps. Otherwise a signal between a check and the nap would
 * not end the wait, while it would end a system call.
 */
static void block_signals(sigset_t *before)
{
	sigset_t all;

	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, before);
}

static void restore_signals(const sigset_t *before)
{
	int error = errno;

	pthread_sigmask(SIG_SETMASK, before, NULL);
	errno = error;
}

/* Length of the next nap: 0 while the caller spins. */
static struct timespec next_nap(uint64_t began, uint64_t end)
{
	uint64_t now = now_us(), us = now - began < spin_us ? 0 : NAP_US;

	if (end <= now)
		us = 0;
	else if (end != FOREVER && end - now < us)
		us = end - now;
	return (struct timespec){ 0, us * 1000 };
}

/* Spins or naps once; -EINTR when a signal handler ran. */
static int nap(uint64_t began, uint64_t end, const sigset_t *mask)
{
	struct timespec time = next_nap(began, end);

	if (!time.tv_nsec) {
		__builtin_ia32_pause();
		return 0;
	}
	return REAL(ppoll)(NULL, 0, &time, mask) < 0 ? -errno : 0;
}

/* Is the socket ready for one of mask, or failed? */
static bool is_ready(struct own *own, uint32_t mask)
{
	return !vmrpc_alive() || vmrpc_ready(own->id, NULL) & mask || vmrpc_has_error(own->id);
}

/* Waits until the socket is ready for one of mask, or has an error. */
static int wait_ready(int fd, struct own *own, uint32_t mask, int flags, uint64_t end)
{
	uint64_t began = now_us();
	sigset_t before;
	int error = 0;

	if (!is_ready(own, mask)) {
		if (!may_block(fd, flags))
			return -EAGAIN;
		block_signals(&before);
		while (!error && !is_ready(own, mask))
			error = now_us() >= end ? -EAGAIN : nap(began, end, &before);
		restore_signals(&before);
	}
	return error ?: vmrpc_alive() ? 0 : -ECONNRESET;
}

/* Makes a descriptor for a socket that the host has created. Closes the socket on failure. */
static int install(struct own *own, int flags)
{
	int fd = REAL(socket)(AF_UNIX, own->type | flags, 0);
	struct vmrpc_call call = { .op = VMRPC_CLOSE };

	if (fd >= 0 && fd < FILES && own->id < VMRPC_SOCKETS) {
		own->files = 1;
		atomic_store(&files[fd], own);
		return fd;
	}
	int error = fd < 0 ? errno : EMFILE;

	if (fd >= 0)
		REAL(close)(fd);
	call_of(own, &call);
	free(own);
	return fail(-error);
}

static struct own *new_own(int family, int type)
{
	struct own *own = calloc(1, sizeof(*own));

	if (own) {
		own->family = family;
		own->type = type;
		own->receive_us = own->send_us = FOREVER;
	}
	return own;
}

int socket(int domain, int type, int protocol)
{
	int kind = type & ~(SOCK_NONBLOCK | SOCK_CLOEXEC);
	bool is_wanted = (domain == AF_INET || domain == AF_INET6) &&
			 ((kind == SOCK_STREAM && (!protocol || protocol == IPPROTO_TCP)) ||
			  (kind == SOCK_DGRAM && (!protocol || protocol == IPPROTO_UDP)));
	struct vmrpc_call call = { .op = VMRPC_SOCKET, .first = kind, .second = domain == AF_INET6 ? 6 : 4 };

	if (!is_wanted || !start())
		return REAL(socket)(domain, type, protocol);
	struct own *own = new_own(domain, kind);

	if (!own)
		return fail(-ENOMEM);
	int result = vmrpc_call(&call);

	if (result < 0) {
		free(own);
		return fail(result);
	}
	own->id = call.socket;
	return install(own, type & (SOCK_NONBLOCK | SOCK_CLOEXEC));
}

static void forget_watched(int fd)
{
	pthread_mutex_lock(&watched_lock);
	for (int epoll = 0; epoll <= watched_most; epoll++) {
		for (struct watched **at = &watched[epoll]; *at;) {
			struct watched *entry = *at;

			if (entry->fd != fd && epoll != fd) {
				at = &entry->next;
				continue;
			}
			*at = entry->next;
			free(entry);
		}
	}
	pthread_mutex_unlock(&watched_lock);
}

int close(int fd)
{
	struct own *own = fd >= 0 && fd < FILES ? atomic_exchange(&files[fd], NULL) : NULL;
	struct vmrpc_call call = { .op = VMRPC_CLOSE };

	if (watched_most >= 0)
		forget_watched(fd);
	if (own && atomic_fetch_sub(&own->files, 1) == 1) {
		call_of(own, &call);
		free(own);
	}
	return REAL(close)(fd);
}

static int shared(int new, int old)
{
	struct own *own = own_of(old);

	if (new >= 0 && own) {
		atomic_fetch_add(&own->files, 1);
		atomic_store(&files[new], own);
	}
	return new;
}

int dup(int fd)
{
	return shared(REAL(dup)(fd), fd);
}

int dup2(int fd, int new)
{
	if (fd != new && own_of(new))
		close(new);
	return fd == new ? REAL(dup2)(fd, new) : shared(REAL(dup2)(fd, new), fd);
}

int dup3(int fd, int new, int flags)
{
	if (fd != new && own_of(new))
		close(new);
	return shared(REAL(dup3)(fd, new, flags), fd);
}

static int check_address(struct own *own, const struct sockaddr *address, socklen_t length, bool may_be_ipv4)
{
	if (length < sizeof(struct sockaddr_in))
		return -EINVAL;
	if (address->sa_family == AF_INET && (own->family == AF_INET || may_be_ipv4))
		return 0;
	if (address->sa_family != own->family)
		return own->family == AF_INET6 && length < 24 ? -EINVAL : -EAFNOSUPPORT;
	return length < (own->family == AF_INET6 ? 24 : sizeof(struct sockaddr_in)) ? -EINVAL : 0;
}

static void set_address(struct vmrpc_call *call, const struct sockaddr *address, socklen_t length)
{
	memcpy(&call->address, address, length < sizeof(call->address) ? length : sizeof(call->address));
}

static void give_address(const union address *from, struct sockaddr *to, socklen_t *room)
{
	socklen_t bytes = from->any.sa_family == AF_INET6 ? sizeof(from->v6) :
			  from->any.sa_family == AF_INET ? sizeof(from->v4) : 0;

	if (!to || !room)
		return;
	memcpy(to, from, *room < bytes ? *room : bytes);
	*room = bytes;
}

int bind(int fd, const struct sockaddr *address, socklen_t length)
{
	struct own *own = own_of(fd);
	struct vmrpc_call call = { .op = VMRPC_BIND };

	if (!own)
		return REAL(bind)(fd, address, length);
	int error = check_address(own, address, length, false);

	if (error)
		return fail(error);
	set_address(&call, address, length);
	return outcome(call_of(own, &call));
}

int listen(int fd, int backlog)
{
	struct own *own = own_of(fd);
	struct vmrpc_call call = { .op = VMRPC_LISTEN, .first = backlog < 0 ? 0 : backlog };

	if (!own)
		return REAL(listen)(fd, backlog);
	if (own->type != SOCK_STREAM)
		return fail(-EOPNOTSUPP);
	int result = call_of(own, &call);

	own->is_listening |= result == 0;
	return outcome(result);
}

/* Waits for the outcome of a connection attempt. */
static int finish_connect(int fd, struct own *own)
{
	int error = wait_ready(fd, own, POLLOUT | POLLHUP, 0, deadline(own->send_us));

	if (error)
		return error == -EAGAIN ? -EINPROGRESS : error;
	own->is_connecting = false;
	error = vmrpc_take_error(own->id);
	own->is_connected = !error;
	return -error;
}

int connect(int fd, const struct sockaddr *address, socklen_t length)
{
	struct own *own = own_of(fd);
	struct vmrpc_call call = { .op = VMRPC_CONNECT };

	if (!own)
		return REAL(connect)(fd, address, length);
	if (length >= sizeof(sa_family_t) && address->sa_family == AF_UNSPEC)
		return outcome(call_of(own, &call));
	int error = check_address(own, address, length, own->type == SOCK_DGRAM);

	if (error)
		return fail(error);
	if (own->type == SOCK_STREAM && own->is_connected)
		return fail(-EISCONN);
	if (own->is_connecting) {
		bool is_decided = vmrpc_ready(own->id, NULL) & (POLLOUT | POLLHUP) || vmrpc_has_error(own->id);

		return is_decided || may_block(fd, 0) ? outcome(finish_connect(fd, own)) : fail(-EALREADY);
	}
	set_address(&call, address, length);
	error = call_of(own, &call);
	if (own->type != SOCK_STREAM || (error && error != -EINPROGRESS))
		return outcome(error);
	own->is_connecting = true;
	if (error && !may_block(fd, 0))
		return fail(error);
	return outcome(finish_connect(fd, own));
}

int accept4(int fd, struct sockaddr *address, socklen_t *room, int flags)
{
	struct own *own = own_of(fd);
	struct vmrpc_call call = { 0 };
	int result;

	if (!own)
		return REAL(accept4)(fd, address, room, flags);
	if (!own->is_listening)
		return fail(-EINVAL);
	struct own *new = new_own(own->family, own->type);

	if (!new)
		return fail(-ENOMEM);
	do {
		result = wait_ready(fd, own, POLLIN, 0, deadline(own->receive_us));
		if (result)
			break;
		call = (struct vmrpc_call){ .op = VMRPC_ACCEPT };
		result = call_of(own, &call);
	} while (result == -EAGAIN);
	if (result < 0) {
		free(new);
		return fail(result);
	}
	new->id = call.socket;
	new->options = own->options & ~VMRPC_LINGER;
	new->is_connected = true;
	new->peer = call.address;
	give_address(&call.address, address, room);
	return install(new, flags);
}

int accept(int fd, struct sockaddr *address, socklen_t *room)
{
	return own_of(fd) ? accept4(fd, address, room, 0) : REAL(accept)(fd, address, room);
}

int shutdown(int fd, int how)
{
	struct own *own = own_of(fd);
	struct vmrpc_call call = { .op = VMRPC_SHUTDOWN, .first = how };

	return own ? outcome(call_of(own, &call)) : REAL(shutdown)(fd, how);
}

static int name_of(struct own *own, uint32_t op, struct sockaddr *address, socklen_t *room)
{
	struct vmrpc_call call = { .op = op };
	int result = call_of(own, &call);

	if (!result)
		give_address(&call.address, address, room);
	return outcome(result);
}

int getsockname(int fd, struct sockaddr *address, socklen_t *room)
{
	struct own *own = own_of(fd);

	return own ? name_of(own, VMRPC_NAME, address, room) : REAL(getsockname)(fd, address, room);
}

int getpeername(int fd, struct sockaddr *address, socklen_t *room)
{
	struct own *own = own_of(fd);

	if (!own)
		return REAL(getpeername)(fd, address, room);
	if (!own->peer.any.sa_family)
		return name_of(own, VMRPC_PEER, address, room);
	give_address(&own->peer, address, room);
	return 0;
}

static uint64_t limit(const struct timeval *time)
{
	uint64_t us = time->tv_sec * 1000000ull + time->tv_usec;

	return us ? us : FOREVER;
}

/* Copies an option that the host needs too; the AF_UNIX socket has stored it. */
static void note_option(struct own *own, int option, const void *value, socklen_t length)
{
	static const int bits[][2] = {
		{ SO_REUSEADDR, VMRPC_REUSE_ADDRESS }, { SO_REUSEPORT, VMRPC_REUSE_PORT },
		{ SO_KEEPALIVE, VMRPC_KEEP_ALIVE }, { SO_BROADCAST, VMRPC_BROADCAST },
		{ SO_LINGER, VMRPC_LINGER },
	};

	for (unsigned at = 0; at < sizeof(bits) / sizeof(bits[0]); at++) {
		if (bits[at][0] != option || length < sizeof(int))
			continue;
		own->options &= ~bits[at][1];
		if (*(const int *)value)
			own->options |= bits[at][1];
	}
	if (option == SO_LINGER && length >= sizeof(struct linger))
		own->linger = ((const struct linger *)value)->l_linger;
	if (option == SO_RCVTIMEO && length >= sizeof(struct timeval))
		own->receive_us = limit(value);
	if (option == SO_SNDTIMEO && length >= sizeof(struct timeval))
		own->send_us = limit(value);
}

int setsockopt(int fd, int level, int option, const void *value, socklen_t length)
{
	struct own *own = own_of(fd);
	struct vmrpc_call call = { .op = VMRPC_SET_OPTION, .first = level, .second = option, .out = value };

	if (!own)
		return REAL(setsockopt)(fd, level, option, value, length);
	/* Newer kernels refuse SO_REUSEPORT for AF_UNIX. */
	if (level == SOL_SOCKET && option == SO_REUSEPORT) {
		note_option(own, option, value, length);
		return 0;
	}
	if (level == SOL_SOCKET && option != SO_RCVLOWAT) {
		int result = REAL(setsockopt)(fd, level, option, value, length);

		if (!result)
			note_option(own, option, value, length);
		return result;
	}
	call.length = length;
	return outcome(call_of(own, &call));
}

static int give_number(int number, void *value, socklen_t *length)
{
	memcpy(value, &number, *length < sizeof(number) ? *length : sizeof(number));
	*length = *length < sizeof(number) ? *length : sizeof(number);
	return 0;
}

int getsockopt(int fd, int level, int option, void *value, socklen_t *length)
{
	struct own *own = own_of(fd);
	struct vmrpc_call call = { .op = VMRPC_GET_OPTION, .first = level, .second = option, .in = value };

	if (!own)
		return REAL(getsockopt)(fd, level, option, value, length);
	if (level == SOL_SOCKET) {
		switch (option) {
		case SO_ERROR:
			return give_number(vmrpc_take_error(own->id), value, length);
		case SO_DOMAIN:
			return give_number(own->family, value, length);
		case SO_PROTOCOL:
			return give_number(own->type == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP, value, length);
		case SO_REUSEPORT:
			return give_number(!!(own->options & VMRPC_REUSE_PORT), value, length);
		case SO_ACCEPTCONN:
			return give_number(own->is_listening, value, length);
		case SO_RCVLOWAT:
			break;
		default:
			return REAL(getsockopt)(fd, level, option, value, length);
		}
	}
	call.length = *length;
	int result = call_of(own, &call);

	if (!result)
		*length = call.length < *length ? call.length : *length;
	return outcome(result);
}

static int send_part(struct own *own, const void *data, size_t bytes, int flags, const struct msghdr *to)
{
	struct vmrpc_call call = { .op = VMRPC_SEND, .flags = flags & MSG_MORE, .length = bytes, .out = data };

	if (to->msg_name && own->type == SOCK_DGRAM)
		set_address(&call, to->msg_name, to->msg_namelen);
	return call_of(own, &call);
}

static ssize_t send_all(int fd, struct own *own, const char *data, size_t bytes, int flags,
			const struct msghdr *to)
{
	uint64_t end = deadline(own->send_us);
	size_t sent = 0;
	int part;

	if (flags & MSG_OOB)
		return fail(-EOPNOTSUPP);
	if (own->type == SOCK_DGRAM && bytes > VMRPC_DATA_BYTES)
		return fail(-EMSGSIZE);
	do {
		part = wait_ready(fd, own, POLLOUT | POLLHUP, flags, end);
		if (!part && vmrpc_has_error(own->id))
			part = -vmrpc_take_error(own->id);
		if (!part) {
			size_t most = bytes - sent < VMRPC_DATA_BYTES ? bytes - sent : VMRPC_DATA_BYTES;

			part = send_part(own, data + sent, most, flags, to);
		}
		if (part == -EAGAIN && may_block(fd, flags) && now_us() < end)
			continue;
		if (part < 0)
			break;
		sent += part;
	} while (sent < bytes);
	if (part >= 0 || sent)
		return sent;
	if (part == -EPIPE && own->type == SOCK_STREAM && !(flags & MSG_NOSIGNAL))
		raise(SIGPIPE);
	return fail(part);
}

static ssize_t receive(int fd, struct own *own, char *data, size_t bytes, int flags, struct msghdr *message)
{
	uint64_t end = deadline(own->receive_us);
	size_t copied = 0;
	int part;

	if (flags & (MSG_OOB | MSG_ERRQUEUE))
		return fail(flags & MSG_OOB ? -EINVAL : -EAGAIN);
	do {
		struct vmrpc_call call = { .op = VMRPC_RECEIVE, .flags = flags & (MSG_PEEK | MSG_TRUNC) };

		part = wait_ready(fd, own, POLLIN | HANGUP, flags, end);
		if (!part && !(vmrpc_ready(own->id, NULL) & (POLLIN | HANGUP)))
			part = -vmrpc_take_error(own->id);
		if (!part) {
			call.length = bytes - copied < VMRPC_DATA_BYTES ? bytes - copied : VMRPC_DATA_BYTES;
			call.in = data + copied;
			part = call_of(own, &call);
		}
		if (part == -EAGAIN && may_block(fd, flags) && now_us() < end)
			continue;
		if (part <= 0 && own->type == SOCK_STREAM) {
			int error = vmrpc_take_error(own->id);

			part = !part && error ? -error : part;
			break;
		}
		if (part < 0)
			break;
		if (own->type == SOCK_DGRAM) {
			message->msg_flags = call.flags & MSG_TRUNC;
			if (message->msg_name)
				give_address(&call.address, message->msg_name, &message->msg_namelen);
			return flags & MSG_TRUNC ? part : (ssize_t)call.length;
		}
		copied += call.length;
	} while (flags & MSG_WAITALL && !(flags & MSG_PEEK) && copied < bytes);
	return copied ? (ssize_t)copied : outcome(part);
}

static size_t total(const struct msghdr *message)
{
	size_t bytes = 0;

	for (size_t at = 0; at < message->msg_iovlen; at++)
		bytes += message->msg_iov[at].iov_len;
	return bytes;
}

ssize_t sendmsg(int fd, const struct msghdr *message, int flags)
{
	struct own *own = own_of(fd);

	if (!own)
		return REAL(sendmsg)(fd, message, flags);
	if (message->msg_name) {
		int error = own->type == SOCK_STREAM ? 0 :
			    check_address(own, message->msg_name, message->msg_namelen, true);

		if (error)
			return fail(error);
	}
	if (message->msg_iovlen == 1)
		return send_all(fd, own, message->msg_iov->iov_base, message->msg_iov->iov_len, flags, message);
	size_t bytes = total(message), filled = 0;
	char *data = malloc(bytes ? bytes : 1);

	if (!data)
		return fail(-ENOMEM);
	for (size_t at = 0; at < message->msg_iovlen; at++) {
		memcpy(data + filled, message->msg_iov[at].iov_base, message->msg_iov[at].iov_len);
		filled += message->msg_iov[at].iov_len;
	}
	ssize_t sent = send_all(fd, own, data, bytes, flags, message);
	int error = errno;

	free(data);
	errno = error;
	return sent;
}

ssize_t recvmsg(int fd, struct msghdr *message, int flags)
{
	struct own *own = own_of(fd);

	if (!own)
		return REAL(recvmsg)(fd, message, flags);
	message->msg_controllen = 0;
	message->msg_flags = 0;
	if (message->msg_iovlen == 1)
		return receive(fd, own, message->msg_iov->iov_base, message->msg_iov->iov_len, flags, message);
	size_t bytes = total(message);
	char *data = malloc(bytes ? bytes : 1);

	if (!data)
		return fail(-ENOMEM);
	ssize_t received = receive(fd, own, data, bytes, flags, message);
	size_t left = received < 0 ? 0 : (size_t)received < bytes ? (size_t)received : bytes, taken = 0;
	int error = errno;

	for (size_t at = 0; at < message->msg_iovlen && left; at++) {
		size_t part = message->msg_iov[at].iov_len < left ? message->msg_iov[at].iov_len : left;

		memcpy(message->msg_iov[at].iov_base, data + taken, part);
		taken += part;
		left -= part;
	}
	free(data);
	errno = error;
	return received;
}

ssize_t sendto(int fd, const void *data, size_t bytes, int flags, const struct sockaddr *to, socklen_t length)
{
	struct iovec part = { (void *)data, bytes };
	struct msghdr message = {
		.msg_name = (void *)to, .msg_namelen = length, .msg_iov = &part, .msg_iovlen = 1,
	};

	return own_of(fd) ? sendmsg(fd, &message, flags) : REAL(sendto)(fd, data, bytes, flags, to, length);
}

ssize_t recvfrom(int fd, void *data, size_t bytes, int flags, struct sockaddr *from, socklen_t *room)
{
	struct msghdr message = { .msg_name = from, .msg_namelen = room ? *room : 0 };
	struct own *own = own_of(fd);

	if (!own)
		return REAL(recvfrom)(fd, data, bytes, flags, from, room);
	ssize_t received = receive(fd, own, data, bytes, flags, &message);

	if (received >= 0 && from && room)
		*room = own->type == SOCK_STREAM ? 0 : message.msg_namelen;
	return received;
}

ssize_t send(int fd, const void *data, size_t bytes, int flags)
{
	return own_of(fd) ? sendto(fd, data, bytes, flags, NULL, 0) : REAL(send)(fd, data, bytes, flags);
}

ssize_t recv(int fd, void *data, size_t bytes, int flags)
{
	return own_of(fd) ? recvfrom(fd, data, bytes, flags, NULL, NULL) : REAL(recv)(fd, data, bytes, flags);
}

ssize_t write(int fd, const void *data, size_t bytes)
{
	return own_of(fd) ? send(fd, data, bytes, 0) : REAL(write)(fd, data, bytes);
}

ssize_t read(int fd, void *data, size_t bytes)
{
	return own_of(fd) ? recv(fd, data, bytes, 0) : REAL(read)(fd, data, bytes);
}

ssize_t writev(int fd, const struct iovec *parts, int count)
{
	struct msghdr message = { .msg_iov = (void *)parts, .msg_iovlen = count };

	return own_of(fd) ? sendmsg(fd, &message, 0) : REAL(writev)(fd, parts, count);
}

ssize_t readv(int fd, const struct iovec *parts, int count)
{
	struct msghdr message = { .msg_iov = (void *)parts, .msg_iovlen = count };

	return own_of(fd) ? recvmsg(fd, &message, 0) : REAL(readv)(fd, parts, count);
}

/* Programs built with _FORTIFY_SOURCE call these. */
ssize_t __read_chk(int fd, void *data, size_t bytes, size_t room)
{
	return bytes <= room ? read(fd, data, bytes) : (abort(), -1);
}

ssize_t __recv_chk(int fd, void *data, size_t bytes, size_t room, int flags)
{
	return bytes <= room ? recv(fd, data, bytes, flags) : (abort(), -1);
}

ssize_t __recvfrom_chk(int fd, void *data, size_t bytes, size_t room, int flags, struct sockaddr *from,
		       socklen_t *length)
{
	return bytes <= room ? recvfrom(fd, data, bytes, flags, from, length) : (abort(), -1);
}

ssize_t sendfile(int out, int in, off_t *offset, size_t count)
{
	char data[16384];
	size_t sent = 0;

	if (!own_of(out))
		return REAL(sendfile)(out, in, offset, count);
	while (sent < count) {
		size_t most = count - sent < sizeof(data) ? count - sent : sizeof(data);
		ssize_t got = offset ? pread(in, data, most, *offset) : read(in, data, most);
		ssize_t part = got > 0 ? send(out, data, got, 0) : got;

		if (!offset && part < got && got > 0)
			lseek(in, (part < 0 ? 0 : part) - got, SEEK_CUR);
		if (part <= 0)
			return sent ? (ssize_t)sent : part;
		if (offset)
			*offset += part;
		sent += part;
	}
	return sent;
}

ssize_t sendfile64(int out, int in, off64_t *offset, size_t count)
{
	return sendfile(out, in, offset, count);
}

int fcntl(int fd, int command, ...)
{
	va_list arguments;
	void *argument;

	va_start(arguments, command);
	argument = va_arg(arguments, void *);
	va_end(arguments);
	int result = REAL(fcntl)(fd, command, argument);

	return command == F_DUPFD || command == F_DUPFD_CLOEXEC ? shared(result, fd) : result;
}

int fcntl64(int fd, int command, ...)
{
	va_list arguments;
	void *argument;

	va_start(arguments, command);
	argument = va_arg(arguments, void *);
	va_end(arguments);
	return fcntl(fd, command, argument);
}

int ioctl(int fd, unsigned long command, ...)
{
	struct own *own = own_of(fd);
	struct vmrpc_call call = { .op = VMRPC_WAITING };
	va_list arguments;
	void *argument;

	va_start(arguments, command);
	argument = va_arg(arguments, void *);
	va_end(arguments);
	if (!own || command != FIONREAD)
		return REAL(ioctl)(fd, command, argument);
	int result = call_of(own, &call);

	if (result >= 0)
		*(int *)argument = result;
	return result < 0 ? fail(result) : 0;
}

static short ready_now(struct own *own, uint32_t *sequence)
{
	uint32_t ready = vmrpc_ready(own->id, sequence) & (POLLIN | POLLPRI | POLLOUT | POLLHUP | POLLRDHUP);

	if (ready & (POLLIN | POLLRDHUP))
		ready |= POLLIN | POLLRDNORM;
	if (ready & POLLOUT)
		ready |= POLLWRNORM;
	if (vmrpc_has_error(own->id))
		ready |= POLLERR | (vmrpc_alive() ? 0 : POLLHUP | POLLIN | POLLOUT);
	return ready;
}

/* Sets revents of outsourced sockets; returns the number that are ready. */
static int poll_own(struct pollfd *polled, nfds_t count)
{
	int ready = 0;

	for (nfds_t at = 0; at < count; at++) {
		struct own *own = own_of(polled[at].fd);

		if (!own)
			continue;
		polled[at].revents = ready_now(own, NULL) & (polled[at].events | POLLERR | POLLHUP);
		ready += polled[at].revents != 0;
	}
	return ready;
}

static int poll_both(struct pollfd *polled, struct pollfd *others, nfds_t count, uint64_t end)
{
	uint64_t began = now_us();
	sigset_t before;
	int own, native;

	block_signals(&before);
	do {
		struct timespec time = { 0 };

		own = poll_own(polled, count);
		/* The ppoll() of the native descriptors is the nap. */
		if (!own)
			time = next_nap(began, end);
		native = REAL(ppoll)(others, count, &time, &before);
		for (nfds_t at = 0; at < count; at++) {
			if (!own_of(polled[at].fd))
				polled[at].revents = others[at].revents;
		}
	} while (native >= 0 && !(own + native) && now_us() < end);
	restore_signals(&before);
	return native < 0 ? -1 : own + native;
}

static uint64_t deadline_ms(int timeout)
{
	return timeout < 0 ? FOREVER : now_us() + timeout * 1000ull;
}

int poll(struct pollfd *polled, nfds_t count, int timeout)
{
	bool has_own = false;

	for (nfds_t at = 0; at < count; at++)
		has_own |= own_of(polled[at].fd) != NULL;
	if (!has_own)
		return REAL(poll)(polled, count, timeout);
	struct pollfd *others = malloc(count * sizeof(*others));

	if (!others)
		return fail(-ENOMEM);
	for (nfds_t at = 0; at < count; at++) {
		others[at] = polled[at];
		if (own_of(polled[at].fd))
			others[at].fd = -1;
	}
	int result = poll_both(polled, others, count, deadline_ms(timeout)), error = errno;

	free(others);
	errno = error;
	return result;
}

int __poll_chk(struct pollfd *polled, nfds_t count, int timeout, size_t room)
{
	return count <= room / sizeof(*polled) ? poll(polled, count, timeout) : (abort(), -1);
}

static int milliseconds(const struct timespec *time)
{
	return time ? time->tv_sec * 1000 + (time->tv_nsec + 999999) / 1000000 : -1;
}

int ppoll(struct pollfd *polled, nfds_t count, const struct timespec *time, const sigset_t *mask)
{
	sigset_t before;

	if (mask)
		pthread_sigmask(SIG_SETMASK, mask, &before);
	int result = poll(polled, count, milliseconds(time)), error = errno;

	if (mask)
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	errno = error;
	return result;
}

static bool has(fd_set *set, int fd)
{
	return set && FD_ISSET(fd, set);
}

int select(int count, fd_set *input, fd_set *output, fd_set *special, struct timeval *time)
{
	struct pollfd polled[FD_SETSIZE];
	int used = 0, found = 0;
	bool has_own = false;

	for (int fd = 0; fd < count && fd < FD_SETSIZE; fd++) {
		short events = (has(input, fd) ? POLLIN : 0) | (has(output, fd) ? POLLOUT : 0) |
			       (has(special, fd) ? POLLPRI : 0);

		has_own |= events && own_of(fd);
		if (events)
			polled[used++] = (struct pollfd){ fd, events, 0 };
	}
	if (!has_own)
		return REAL(select)(count, input, output, special, time);
	if (poll(polled, used, time ? time->tv_sec * 1000 + (time->tv_usec + 999) / 1000 : -1) < 0)
		return -1;
	for (int at = 0; at < used; at++) {
		int fd = polled[at].fd;
		short got = polled[at].revents;
		bool is_in = has(input, fd) && got & (POLLIN | POLLHUP | POLLERR);
		bool is_out = has(output, fd) && got & (POLLOUT | POLLERR);
		bool is_special = has(special, fd) && got & POLLPRI;

		if (input && !is_in)
			FD_CLR(fd, input);
		if (output && !is_out)
			FD_CLR(fd, output);
		if (special && !is_special)
			FD_CLR(fd, special);
		found += is_in + is_out + is_special;
	}
	return found;
}

int epoll_ctl(int epoll, int operation, int fd, struct epoll_event *event)
{
	struct watched **at, *entry;
	int result = 0;

	if (!own_of(fd) || epoll < 0 || epoll >= FILES)
		return REAL(epoll_ctl)(epoll, operation, fd, event);
	pthread_mutex_lock(&watched_lock);
	for (at = &watched[epoll]; *at && (*at)->fd != fd; at = &(*at)->next)
		;
	entry = *at;
	if (operation == EPOLL_CTL_ADD && entry) {
		result = -EEXIST;
	} else if (operation != EPOLL_CTL_ADD && !entry) {
		result = -ENOENT;
	} else if (operation == EPOLL_CTL_DEL) {
		*at = entry->next;
		free(entry);
	} else {
		if (!entry) {
			entry = *at = calloc(1, sizeof(*entry));
			if (epoll > watched_most)
				watched_most = epoll;
		}
		if (entry)
			*entry = (struct watched){ entry->next, fd, *event, 0, true };
		else
			result = -ENOMEM;
	}
	pthread_mutex_unlock(&watched_lock);
	return outcome(result);
}

/* Fills in an event if the socket is ready. */
static bool report(struct watched *entry, struct epoll_event *event)
{
	struct own *own = own_of(entry->fd);
	uint32_t sequence, ready;

	if (!own || !(entry->event.events & ~(EPOLLET | EPOLLONESHOT)))
		return false;
	ready = (uint16_t)ready_now(own, &sequence) & (entry->event.events | EPOLLERR | EPOLLHUP);
	if (!ready || (entry->event.events & EPOLLET && !entry->is_new && sequence == entry->sequence))
		return false;
	entry->is_new = false;
	entry->sequence = sequence;
	*event = (struct epoll_event){ .events = ready, .data = entry->event.data };
	if (entry->event.events & EPOLLONESHOT)
		entry->event.events = EPOLLONESHOT;
	return true;
}

static int report_own(int epoll, struct epoll_event *events, int most)
{
	int count = 0;

	pthread_mutex_lock(&watched_lock);
	for (struct watched *entry = watched[epoll]; entry && count < most; entry = entry->next)
		count += report(entry, &events[count]);
	pthread_mutex_unlock(&watched_lock);
	return count;
}

int epoll_wait(int epoll, struct epoll_event *events, int most, int timeout)
{
	uint64_t began = now_us(), end = deadline_ms(timeout);
	sigset_t before;
	int own, native;

	if (epoll < 0 || epoll >= FILES || epoll > watched_most || most <= 0)
		return REAL(epoll_wait)(epoll, events, most, timeout);
	block_signals(&before);
	do {
		int wait = 0;

		own = report_own(epoll, events, most);
		native = 0;
		if (!own)
			wait = next_nap(began, end).tv_nsec > 0;
		if (own < most)
			native = REAL(epoll_pwait)(epoll, events + own, most - own, wait, &before);
	} while (native >= 0 && !(own + native) && now_us() < end);
	restore_signals(&before);
	return native < 0 && !own ? -1 : own + (native < 0 ? 0 : native);
}

int epoll_pwait(int epoll, struct epoll_event *events, int most, int timeout, const sigset_t *mask)
{
	sigset_t before;

	if (epoll > watched_most)
		return REAL(epoll_pwait)(epoll, events, most, timeout, mask);
	if (mask)
		pthread_sigmask(SIG_SETMASK, mask, &before);
	int result = epoll_wait(epoll, events, most, timeout), error = errno;

	if (mask)
		pthread_sigmask(SIG_SETMASK, &before, NULL);
	errno = error;
	return result;
}
