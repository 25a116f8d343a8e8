// SPDX-License-Identifier: GPL-2.0-only
/*
 * Socket outsourcing: the host makes the socket calls, IPv4 and IPv6, of chosen programs.
 *
 * Kprobes of inet_create() and inet6_create() give new sockets of these programs this module's protocol; all
 * other sockets stay on the guest's own stack. A call never blocks in the host: a caller that must wait waits
 * here, for an event of the socket. From O. F. Garcia Alvarado, Research on real-time network stacks of
 * commodity hosted virtual machine environments, University of Tsukuba 2019, sections 5.1 to 5.3.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/inet.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/poll.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <linux/version.h>
#include <net/inet_common.h>
#include <net/ip.h>
#include <net/ipv6.h>
#include <net/protocol.h>
#include <net/sock.h>

#include <asm/ioctls.h>

#include "idle.h"
#include "transport.h"
#include "vmrpc.h"

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 1, 0)
#error "This module is for Linux 6.1 and newer."
#endif

/* The type of addresses in struct proto_ops changed in Linux 6.19. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 19, 0)
typedef struct sockaddr_unsized sockaddr_arg;
#else
typedef struct sockaddr sockaddr_arg;
#endif

/* Protocol number of this module's sockets in the kernel, reserved for experiments (RFC 3692). */
#define PUNCTUAL_PROTOCOL 253
#define OPTION_BYTES 256
#define HANGUP (EPOLLHUP | EPOLLRDHUP)

static char *commands = "";
module_param(commands, charp, 0444);
MODULE_PARM_DESC(commands, "comma-separated names of programs whose sockets are the host's; * for all");

/* Core code casts a sock by its type, so this one is as large as any of them. */
struct outsourced {
	union {
		struct tcp_sock tcp;
		struct udp_sock udp;
	} core;
	/* The host's number of the socket, and the server that gave it. */
	u32 id;
	bool has_id;
	u32 generation;
	/* Set for accepted connections only. */
	union vmrpc_address peer;
};

struct outsourced6 {
	struct outsourced outsourced;
	struct ipv6_pinfo inet6;
};
/* Before Linux 6.5 core code expects ipv6_pinfo in the last bytes, which padding may move off the member. */
#define INET6_AT (sizeof(struct outsourced6) - sizeof(struct ipv6_pinfo))

/* Sockets by the host's number. Lock n % LOCKS guards entry n: interrupts off, nests inside event_lock. */
#define LOCKS 64
static struct sock *sockets[VMRPC_SOCKETS];
static spinlock_t locks[LOCKS];

static spinlock_t *lock_of(u32 id)
{
	return &locks[id % LOCKS];
}

static struct outsourced *outsourced_sk(struct sock *sk)
{
	return (struct outsourced *)sk;
}

static u32 options_of(struct sock *sk)
{
	return (sk->sk_reuse ? VMRPC_REUSE_ADDRESS : 0) | (sk->sk_reuseport ? VMRPC_REUSE_PORT : 0) |
	       (sock_flag(sk, SOCK_KEEPOPEN) ? VMRPC_KEEP_ALIVE : 0) |
	       (sock_flag(sk, SOCK_BROADCAST) ? VMRPC_BROADCAST : 0) |
	       (sock_flag(sk, SOCK_LINGER) ? VMRPC_LINGER : 0);
}

static int begin_call(struct vmrpc_call *call, u32 op, struct sock *sk)
{
	int error = vmrpc_begin(call, op, outsourced_sk(sk)->id, outsourced_sk(sk)->generation);

	if (error)
		return error;
	vmrpc_put(call, VMRPC_REQUEST_OPTIONS, options_of(sk));
	vmrpc_put(call, VMRPC_REQUEST_LINGER, sk->sk_lingertime / HZ);
	return 0;
}

/* A call with at most one argument. */
static int simple_call(struct vmrpc_call *call, u32 op, struct sock *sk, u32 first)
{
	int error = begin_call(call, op, sk);

	if (error)
		return error;
	vmrpc_put(call, VMRPC_REQUEST_FIRST, first);
	error = vmrpc_call(call);
	vmrpc_end(call);
	return error;
}

static int address_call(u32 op, struct sock *sk, const sockaddr_arg *address)
{
	struct vmrpc_call call;
	int error = begin_call(&call, op, sk);

	if (error)
		return error;
	if (address)
		vmrpc_put_address(&call, (const union vmrpc_address *)address);
	error = vmrpc_call(&call);
	vmrpc_end(&call);
	return error;
}

/* Does the server that made the socket still answer? */
static bool is_alive(struct sock *sk)
{
	return vmrpc_alive() && outsourced_sk(sk)->generation == vmrpc_generation();
}

/* Moves the pending error that the host recorded into sk_err. */
static void take_error(struct sock *sk)
{
	int error = is_alive(sk) ? vmrpc_take_error(outsourced_sk(sk)->id) : 0;

	if (error)
		WRITE_ONCE(sk->sk_err, error);
}

static bool has_ended(struct sock *sk)
{
	return READ_ONCE(sk->sk_err) || !is_alive(sk);
}

static u32 ready_of(struct sock *sk)
{
	return is_alive(sk) ? vmrpc_ready(outsourced_sk(sk)->id) : 0;
}

static __poll_t mask_of(struct sock *sk)
{
	u32 ready = ready_of(sk);
	__poll_t mask = (__force __poll_t)ready & (EPOLLPRI | EPOLLHUP | EPOLLRDHUP);

	if (ready & (POLLIN | POLLRDHUP))
		mask |= EPOLLIN | EPOLLRDNORM;
	if (ready & POLLOUT)
		mask |= EPOLLOUT | EPOLLWRNORM | EPOLLWRBAND;
	if (READ_ONCE(sk->sk_err))
		mask |= EPOLLERR;
	if (!is_alive(sk))
		mask |= EPOLLERR | EPOLLHUP | EPOLLRDHUP | EPOLLIN | EPOLLRDNORM | EPOLLOUT | EPOLLWRNORM;
	return mask;
}

static void wake_waiters(struct sock *sk)
{
	struct socket_wq *wq;

	rcu_read_lock();
	wq = rcu_dereference(sk->sk_wq);
	if (skwq_has_sleeper(wq))
		wake_up_interruptible_poll(&wq->wait, mask_of(sk));
	sk_wake_async(sk, SOCK_WAKE_WAITD, POLL_IN);
	rcu_read_unlock();
}

static void on_socket_event(u32 id)
{
	struct sock *sk;
	unsigned long flags;

	spin_lock_irqsave(lock_of(id), flags);
	sk = sockets[id];
	if (sk) {
		take_error(sk);
		wake_waiters(sk);
	}
	spin_unlock_irqrestore(lock_of(id), flags);
}

static void on_host_gone(void)
{
	unsigned long flags;
	u32 id;

	for (id = 0; id < VMRPC_SOCKETS; id++) {
		spin_lock_irqsave(lock_of(id), flags);
		if (sockets[id]) {
			WRITE_ONCE(sockets[id]->sk_err, ECONNRESET);
			wake_waiters(sockets[id]);
		}
		/* The next server may give the number to another socket. */
		sockets[id] = NULL;
		spin_unlock_irqrestore(lock_of(id), flags);
	}
}

static const struct vmrpc_ops transport_ops = {
	.socket_event = on_socket_event,
	.host_gone = on_host_gone,
};

/* Waits until the socket is ready for one of mask, or has ended; the timeout is that of sock_rcvtimeo(). */
static int wait_ready(struct sock *sk, u32 mask, long *timeout)
{
	long left;

	/* Process events of other sockets too: while this CPU works, no interrupt announces them. */
	if (vmrpc_has_event())
		vmrpc_take_events();
	if (ready_of(sk) & mask || has_ended(sk))
		return 0;
	if (!*timeout)
		return -EAGAIN;
	vmrpc_wait_here(outsourced_sk(sk)->id);
	left = wait_event_interruptible_timeout(*sk_sleep(sk), ready_of(sk) & mask || has_ended(sk), *timeout);
	if (left < 0)
		return sock_intr_errno(*timeout);
	if (*timeout != MAX_SCHEDULE_TIMEOUT)
		*timeout = left;
	return left ? 0 : -EAGAIN;
}

/* Enters a socket under the host's number. A number in use is a protocol violation of the host. */
static int set_id(struct sock *sk, u32 id, u32 generation)
{
	unsigned long flags;
	int error = 0;

	if (id >= VMRPC_SOCKETS)
		return -EIO;
	spin_lock_irqsave(lock_of(id), flags);
	if (generation != vmrpc_generation() || !vmrpc_alive()) {
		error = -ECONNRESET;
	} else if (sockets[id]) {
		error = -EIO;
	} else {
		sockets[id] = sk;
		outsourced_sk(sk)->id = id;
		outsourced_sk(sk)->generation = generation;
		outsourced_sk(sk)->has_id = true;
	}
	spin_unlock_irqrestore(lock_of(id), flags);
	return error;
}

static void set_protocol(struct sock *sk)
{
	sk->sk_protocol = sk->sk_type == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP;
}

static int punctual_init(struct sock *sk)
{
	struct vmrpc_call call;
	u32 generation = vmrpc_generation();
	int error = vmrpc_begin(&call, VMRPC_SOCKET, 0, generation);

	if (error)
		return error;
	set_protocol(sk);
	vmrpc_put(&call, VMRPC_REQUEST_FIRST, sk->sk_type);
	vmrpc_put(&call, VMRPC_REQUEST_SECOND, sk->sk_family == AF_INET6 ? 6 : 4);
	error = vmrpc_call(&call);
	vmrpc_end(&call);
	return error < 0 ? error : set_id(sk, call.socket, generation);
}

/* inet_create() calls this when it fails to create a socket. */
static void punctual_unhash(struct sock *sk)
{
}

static void punctual_close(struct sock *sk)
{
	struct vmrpc_call call;
	unsigned long flags;

	if (!outsourced_sk(sk)->has_id)
		return;
	spin_lock_irqsave(lock_of(outsourced_sk(sk)->id), flags);
	if (sockets[outsourced_sk(sk)->id] == sk)
		sockets[outsourced_sk(sk)->id] = NULL;
	spin_unlock_irqrestore(lock_of(outsourced_sk(sk)->id), flags);
	simple_call(&call, VMRPC_CLOSE, sk, 0);
	outsourced_sk(sk)->has_id = false;
}

static int punctual_release(struct socket *sock)
{
	struct sock *sk = sock->sk;

	if (!sk)
		return 0;
	punctual_close(sk);
	sk->sk_state = TCP_CLOSE;
	sock_orphan(sk);
	sock->sk = NULL;
	sock_put(sk);
	return 0;
}

/* Checks an address's family and length, with the errors and their order of af_inet.c and af_inet6.c. */
static int check_address(struct sock *sk, const sockaddr_arg *address, int length)
{
	if (sk->sk_family == AF_INET6 && length >= SIN6_LEN_RFC2133 && address->sa_family == AF_INET6)
		return 0;
	if (length < (sk->sk_family == AF_INET6 ? SIN6_LEN_RFC2133 : (int)sizeof(struct sockaddr_in)))
		return -EINVAL;
	return address->sa_family == sk->sk_family ? 0 : -EAFNOSUPPORT;
}

/* The same for a destination: an IPv6 datagram socket may send to IPv4 addresses. */
static int check_destination(struct sock *sk, const sockaddr_arg *address, int length)
{
	if (sk->sk_family == AF_INET6 && sk->sk_type == SOCK_DGRAM && length >= sizeof(struct sockaddr_in) &&
	    address->sa_family == AF_INET)
		return 0;
	return check_address(sk, address, length);
}

static int punctual_bind(struct socket *sock, sockaddr_arg *address, int length)
{
	struct sock *sk = sock->sk;
	u16 port;
	int error = check_address(sk, address, length);

	if (error)
		return error;
	/* Both families have the port at the same offset. */
	port = ntohs(((struct sockaddr_in *)address)->sin_port);
	if (port && inet_port_requires_bind_service(sock_net(sk), port) &&
	    !ns_capable(sock_net(sk)->user_ns, CAP_NET_BIND_SERVICE))
		return -EACCES;
	return address_call(VMRPC_BIND, sk, address);
}

static int punctual_listen(struct socket *sock, int backlog)
{
	struct vmrpc_call call;
	int error;

	if (sock->type != SOCK_STREAM)
		return -EOPNOTSUPP;
	error = simple_call(&call, VMRPC_LISTEN, sock->sk, max(backlog, 0));
	if (!error)
		sock->sk->sk_state = TCP_LISTEN;
	return error;
}

/* Completes a connection attempt whose outcome is known. */
static int finish_connect(struct socket *sock)
{
	int error;

	take_error(sock->sk);
	error = is_alive(sock->sk) ? sock_error(sock->sk) : -ECONNRESET;
	sock->state = error ? SS_UNCONNECTED : SS_CONNECTED;
	return error;
}

static int punctual_connect(struct socket *sock, sockaddr_arg *address, int length, int flags)
{
	struct sock *sk = sock->sk;
	long timeout = sock_sndtimeo(sk, flags & O_NONBLOCK);
	int error;

	if (length >= sizeof(address->sa_family) && address->sa_family == AF_UNSPEC)
		return address_call(VMRPC_CONNECT, sk, NULL);
	error = check_destination(sk, address, length);
	if (error)
		return error;
	if (sock->type != SOCK_STREAM)
		return address_call(VMRPC_CONNECT, sk, address);
	if (sock->state == SS_CONNECTED)
		return -EISCONN;
	if (sock->state == SS_CONNECTING) {
		if (!timeout && !(ready_of(sk) & (POLLOUT | POLLHUP)) && !has_ended(sk))
			return -EALREADY;
	} else {
		error = address_call(VMRPC_CONNECT, sk, address);
		if (error && error != -EINPROGRESS)
			return error;
		sock->state = SS_CONNECTING;
		/* As on the native stack, SO_ERROR or the next call returns the outcome. */
		if (error && !timeout)
			return error;
	}
	error = wait_ready(sk, POLLOUT | POLLHUP, &timeout);
	if (error)
		return error == -EAGAIN ? -EINPROGRESS : error;
	return finish_connect(sock);
}

/* Waits for a connection and accepts it. */
static int wait_for_connection(struct sock *sk, long timeout, struct vmrpc_call *call)
{
	int error;

	do {
		error = wait_ready(sk, POLLIN, &timeout);
		if (!error && !is_alive(sk))
			error = -ECONNRESET;
		if (error)
			break;
		error = simple_call(call, VMRPC_ACCEPT, sk, 0);
	} while (error == -EAGAIN);
	return error;
}

/* Allocates a sock as inet_create() or inet6_create() does. */
static struct sock *alloc_like(struct sock *sk, bool kern)
{
	struct sock *child = sk_alloc(sock_net(sk), sk->sk_family, GFP_KERNEL, sk->sk_prot, kern);

	if (child && sk->sk_family == AF_INET6)
		inet_sk(child)->pinet6 = (void *)child + INET6_AT;
	return child;
}

static int accept_flags(struct socket *sock, struct socket *new, int flags, bool kern)
{
	struct sock *sk = sock->sk, *child;
	struct vmrpc_call call;
	int error;

	if (sk->sk_state != TCP_LISTEN)
		return -EINVAL;
	/* Allocate first: an accepted connection must not be lost for lack of memory. */
	child = alloc_like(sk, kern);
	if (!child)
		return -ENOMEM;
	error = wait_for_connection(sk, sock_rcvtimeo(sk, flags & O_NONBLOCK), &call);
	sock_init_data(new, child);
	child->sk_destruct = sk->sk_destruct;
	child->sk_reuse = sk->sk_reuse;
	child->sk_reuseport = sk->sk_reuseport;
	child->sk_rcvtimeo = sk->sk_rcvtimeo;
	child->sk_sndtimeo = sk->sk_sndtimeo;
	sock_valbool_flag(child, SOCK_KEEPOPEN, sock_flag(sk, SOCK_KEEPOPEN));
	set_protocol(child);
	if (!error)
		error = set_id(child, call.socket, outsourced_sk(sk)->generation);
	if (error) {
		sock_orphan(child);
		new->sk = NULL;
		sock_put(child);
		return error;
	}
	outsourced_sk(child)->peer = call.address;
	new->state = SS_CONNECTED;
	return 0;
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
static int punctual_accept(struct socket *sock, struct socket *new, struct proto_accept_arg *arg)
{
	return accept_flags(sock, new, arg->flags, arg->kern);
}
#else
static int punctual_accept(struct socket *sock, struct socket *new, int flags, bool kern)
{
	return accept_flags(sock, new, flags, kern);
}
#endif

static int punctual_getname(struct socket *sock, struct sockaddr *address, int peer)
{
	union vmrpc_address *known = &outsourced_sk(sock->sk)->peer;
	struct vmrpc_call call;
	int error;

	if (peer && known->family) {
		memcpy(address, known, vmrpc_address_bytes(known));
		return vmrpc_address_bytes(known);
	}
	error = simple_call(&call, peer ? VMRPC_PEER : VMRPC_NAME, sock->sk, 0);
	if (error)
		return error;
	if (call.address.family != sock->sk->sk_family)
		return -EIO;
	memcpy(address, &call.address, vmrpc_address_bytes(&call.address));
	return vmrpc_address_bytes(&call.address);
}

static __poll_t punctual_poll(struct file *file, struct socket *sock, poll_table *table)
{
	sock_poll_wait(file, sock, table);
	vmrpc_wait_here(outsourced_sk(sock->sk)->id);
	take_error(sock->sk);
	return mask_of(sock->sk);
}

static int punctual_ioctl(struct socket *sock, unsigned int command, unsigned long argument)
{
	struct vmrpc_call call;
	int bytes;

	if (command != SIOCINQ)
		return sock->sk->sk_family == AF_INET6 ? inet6_ioctl(sock, command, argument) :
							 inet_ioctl(sock, command, argument);
	bytes = simple_call(&call, VMRPC_WAITING, sock->sk, 0);
	return bytes < 0 ? bytes : put_user(bytes, (int __user *)argument);
}

static int punctual_shutdown(struct socket *sock, int how)
{
	struct vmrpc_call call;
	int error = simple_call(&call, VMRPC_SHUTDOWN, sock->sk, how);

	if (!error && how == SHUT_RDWR)
		wake_waiters(sock->sk);
	return error;
}

static int punctual_setsockopt(struct socket *sock, int level, int option, sockptr_t value,
			       unsigned int length)
{
	u8 bytes[OPTION_BYTES];
	struct vmrpc_call call;
	int error;

	length = min_t(unsigned int, length, sizeof(bytes));
	if (copy_from_sockptr(bytes, value, length))
		return -EFAULT;
	error = begin_call(&call, VMRPC_SET_OPTION, sock->sk);
	if (error)
		return error;
	vmrpc_put(&call, VMRPC_REQUEST_FIRST, level);
	vmrpc_put(&call, VMRPC_REQUEST_SECOND, option);
	vmrpc_put(&call, VMRPC_REQUEST_LENGTH, length);
	memcpy(vmrpc_data(&call), bytes, length);
	error = vmrpc_call(&call);
	vmrpc_end(&call);
	return error;
}

static int punctual_getsockopt(struct socket *sock, int level, int option, char __user *value,
			       int __user *given)
{
	u8 bytes[OPTION_BYTES];
	struct vmrpc_call call;
	int error, length;

	if (get_user(length, given))
		return -EFAULT;
	if (length < 0)
		return -EINVAL;
	length = min_t(int, length, sizeof(bytes));
	error = begin_call(&call, VMRPC_GET_OPTION, sock->sk);
	if (error)
		return error;
	vmrpc_put(&call, VMRPC_REQUEST_FIRST, level);
	vmrpc_put(&call, VMRPC_REQUEST_SECOND, option);
	vmrpc_put(&call, VMRPC_REQUEST_LENGTH, length);
	error = vmrpc_call(&call);
	if (!error) {
		length = min_t(u32, length, call.length);
		memcpy(bytes, vmrpc_data(&call), length);
	}
	vmrpc_end(&call);
	if (error)
		return error;
	return put_user(length, given) || copy_to_user(value, bytes, length) ? -EFAULT : 0;
}

/* Sends the data of one call. */
static int send_part(struct sock *sk, struct msghdr *message, size_t length, union vmrpc_address *to)
{
	struct vmrpc_call call;
	int sent = begin_call(&call, VMRPC_SEND, sk);

	if (sent)
		return sent;
	if (to)
		vmrpc_put_address(&call, to);
	vmrpc_put(&call, VMRPC_REQUEST_LENGTH, length);
	vmrpc_put(&call, VMRPC_REQUEST_FLAGS, message->msg_flags & MSG_MORE);
	if (!copy_from_iter_full(vmrpc_data(&call), length, &message->msg_iter)) {
		vmrpc_end(&call);
		return -EFAULT;
	}
	sent = vmrpc_call(&call);
	vmrpc_end(&call);
	if (sent > (int)length)
		sent = -EIO;
	iov_iter_revert(&message->msg_iter, length - max(sent, 0));
	return sent;
}

static int send_stream(struct sock *sk, struct msghdr *message, size_t length)
{
	long timeout = sock_sndtimeo(sk, message->msg_flags & MSG_DONTWAIT);
	size_t sent = 0;
	int part;

	do {
		part = wait_ready(sk, POLLOUT | POLLHUP, &timeout);
		if (!part && has_ended(sk))
			part = sock_error(sk) ?: -ECONNRESET;
		if (!part)
			part = send_part(sk, message, min_t(size_t, length - sent, VMRPC_DATA_BYTES), NULL);
		if (part == -EAGAIN && timeout)
			continue;
		if (part < 0)
			break;
		sent += part;
	} while (sent < length);
	return sent ?: part < 0 ? sk_stream_error(sk, message->msg_flags, part) : 0;
}

static int punctual_sendmsg(struct socket *sock, struct msghdr *message, size_t length)
{
	struct sock *sk = sock->sk;
	union vmrpc_address *to = message->msg_name;
	long timeout;
	int sent;

	if (message->msg_flags & MSG_OOB)
		return -EOPNOTSUPP;
	if (sock->type == SOCK_STREAM)
		return send_stream(sk, message, length);
	/* The host rejects other datagrams that are too long. */
	if (length > VMRPC_DATA_BYTES)
		return -EMSGSIZE;
	sent = to ? check_destination(sk, message->msg_name, message->msg_namelen) : 0;
	timeout = sock_sndtimeo(sk, message->msg_flags & MSG_DONTWAIT);
	while (!sent) {
		sent = wait_ready(sk, POLLOUT, &timeout);
		if (!sent && has_ended(sk))
			sent = sock_error(sk) ?: -ECONNRESET;
		if (sent)
			break;
		sent = send_part(sk, message, length, to);
		if (sent != -EAGAIN || !timeout)
			break;
		sent = 0;
	}
	return sent;
}

/* Receives the data of one call. */
static int receive_part(struct sock *sk, struct msghdr *message, size_t length, int flags)
{
	struct vmrpc_call call;
	int result = begin_call(&call, VMRPC_RECEIVE, sk);

	if (result)
		return result;
	length = min_t(size_t, length, VMRPC_DATA_BYTES);
	vmrpc_put(&call, VMRPC_REQUEST_LENGTH, length);
	vmrpc_put(&call, VMRPC_REQUEST_FLAGS, flags & (MSG_PEEK | MSG_TRUNC));
	result = vmrpc_call(&call);
	if (result >= 0) {
		length = min_t(size_t, length, call.length);
		if (copy_to_iter(vmrpc_data(&call), length, &message->msg_iter) != length)
			result = -EFAULT;
	}
	vmrpc_end(&call);
	if (result < 0)
		return result;
	if (sk->sk_type == SOCK_STREAM)
		return length;
	message->msg_flags |= call.flags & MSG_TRUNC;
	/* The caller has room for an address of any family. */
	if (message->msg_name && call.address.family == sk->sk_family) {
		message->msg_namelen = vmrpc_address_bytes(&call.address);
		memcpy(message->msg_name, &call.address, message->msg_namelen);
	}
	return flags & MSG_TRUNC ? result : length;
}

static int punctual_recvmsg(struct socket *sock, struct msghdr *message, size_t length, int flags)
{
	struct sock *sk = sock->sk;
	long timeout = sock_rcvtimeo(sk, flags & MSG_DONTWAIT);
	size_t target = sock_rcvlowat(sk, flags & MSG_WAITALL, length), copied = 0, most;
	int part;

	if (flags & (MSG_OOB | MSG_ERRQUEUE))
		return flags & MSG_OOB ? -EINVAL : -EAGAIN;
	do {
		part = wait_ready(sk, POLLIN | HANGUP, &timeout);
		if (!part && !(ready_of(sk) & (POLLIN | HANGUP)))
			part = sock_error(sk) ?: -ECONNRESET;
		most = length - copied;
		if (!part)
			part = receive_part(sk, message, most, flags);
		if (part == -EAGAIN && timeout)
			continue;
		/* The host records the error before it answers with end of file. */
		take_error(sk);
		if (!part && sk->sk_err && sk->sk_type == SOCK_STREAM)
			part = sock_error(sk);
		if (part <= 0)
			break;
		copied += part;
		if (sk->sk_type == SOCK_DGRAM || flags & MSG_PEEK)
			break;
	} while (copied < length && (copied < target || ready_of(sk) & POLLIN));
	return copied ?: part;
}

static struct proto punctual_proto = {
	.name = "punctual",
	.owner = THIS_MODULE,
	.obj_size = sizeof(struct outsourced),
	.init = punctual_init,
	.unhash = punctual_unhash,
};

static struct proto punctual_proto6 = {
	.name = "punctual6",
	.owner = THIS_MODULE,
	.obj_size = sizeof(struct outsourced6),
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 5, 0)
	.ipv6_pinfo_offset = INET6_AT,
#endif
	.init = punctual_init,
	.unhash = punctual_unhash,
};

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 5, 0)
#define NO_SENDPAGE .sendpage = sock_no_sendpage,
#else
#define NO_SENDPAGE
#endif

#define PUNCTUAL_OPS(FAMILY) { \
	.family = FAMILY, \
	.owner = THIS_MODULE, \
	.release = punctual_release, \
	.bind = punctual_bind, \
	.connect = punctual_connect, \
	.socketpair = sock_no_socketpair, \
	.accept = punctual_accept, \
	.getname = punctual_getname, \
	.poll = punctual_poll, \
	.ioctl = punctual_ioctl, \
	.gettstamp = sock_gettstamp, \
	.listen = punctual_listen, \
	.shutdown = punctual_shutdown, \
	.setsockopt = punctual_setsockopt, \
	.getsockopt = punctual_getsockopt, \
	.sendmsg = punctual_sendmsg, \
	.recvmsg = punctual_recvmsg, \
	.mmap = sock_no_mmap, \
	NO_SENDPAGE \
}

static const struct proto_ops punctual_ops = PUNCTUAL_OPS(PF_INET);
static const struct proto_ops punctual_ops6 = PUNCTUAL_OPS(PF_INET6);

#define PUNCTUAL_PROTOSW(TYPE, PROTO, OPS) { \
	.type = TYPE, \
	.protocol = PUNCTUAL_PROTOCOL, \
	.prot = &PROTO, \
	.ops = &OPS, \
}

static struct inet_protosw stream_sw = PUNCTUAL_PROTOSW(SOCK_STREAM, punctual_proto, punctual_ops);
static struct inet_protosw datagram_sw = PUNCTUAL_PROTOSW(SOCK_DGRAM, punctual_proto, punctual_ops);
static struct inet_protosw stream_sw6 = PUNCTUAL_PROTOSW(SOCK_STREAM, punctual_proto6, punctual_ops6);
static struct inet_protosw datagram_sw6 = PUNCTUAL_PROTOSW(SOCK_DGRAM, punctual_proto6, punctual_ops6);

/* Is the current program named in the commands parameter? */
static bool is_wanted(void)
{
	const char *at = commands;
	size_t length;

	while (*at) {
		length = strchrnul(at, ',') - at;
		if (length == 1 && *at == '*')
			return true;
		if (length == strlen(current->comm) && !strncmp(at, current->comm, length))
			return true;
		at += length + (at[length] == ',');
	}
	return false;
}

/* Probe of inet_create(net, sock, protocol, kern) and of inet6_create(), which has the same arguments. */
static int before_create(struct kprobe *probe, struct pt_regs *regs)
{
	struct net *net = (struct net *)regs_get_kernel_argument(regs, 0);
	struct socket *sock = (struct socket *)regs_get_kernel_argument(regs, 1);
	int protocol = regs_get_kernel_argument(regs, 2), kern = regs_get_kernel_argument(regs, 3);

	if (kern || net != &init_net || !vmrpc_alive() || !is_wanted())
		return 0;
	if ((sock->type == SOCK_STREAM && (!protocol || protocol == IPPROTO_TCP)) ||
	    (sock->type == SOCK_DGRAM && (!protocol || protocol == IPPROTO_UDP)))
		regs->dx = PUNCTUAL_PROTOCOL;
	return 0;
}

static struct kprobe create_probe = {
	.symbol_name = "inet_create",
	.pre_handler = before_create,
};

static struct kprobe create_probe6 = {
	.symbol_name = "inet6_create",
	.pre_handler = before_create,
};

/* From here on, new sockets of the named programs are the host's. */
static int register_protocols(void)
{
	int error;

	inet_register_protosw(&stream_sw);
	inet_register_protosw(&datagram_sw);
	error = inet6_register_protosw(&stream_sw6);
	if (error)
		goto unregister_ipv4;
	error = inet6_register_protosw(&datagram_sw6);
	if (error)
		goto unregister_stream6;
	error = register_kprobe(&create_probe);
	if (error)
		goto unregister_ipv6;
	error = register_kprobe(&create_probe6);
	if (!error)
		return 0;
	unregister_kprobe(&create_probe);
unregister_ipv6:
	inet6_unregister_protosw(&datagram_sw6);
unregister_stream6:
	inet6_unregister_protosw(&stream_sw6);
unregister_ipv4:
	inet_unregister_protosw(&datagram_sw);
	inet_unregister_protosw(&stream_sw);
	return error;
}

static int __init start(void)
{
	int error, lock;

	for (lock = 0; lock < LOCKS; lock++)
		spin_lock_init(&locks[lock]);
	error = proto_register(&punctual_proto, 1);
	if (error)
		return error;
	error = proto_register(&punctual_proto6, 1);
	if (error)
		goto unregister;
	error = vmrpc_start(&transport_ops);
	if (error)
		goto unregister6;
	error = register_protocols();
	if (!error) {
		idle_start();
		return 0;
	}
	vmrpc_stop();
unregister6:
	proto_unregister(&punctual_proto6);
unregister:
	proto_unregister(&punctual_proto);
	return error;
}

/* No socket is open any more, because each holds a reference to the module. */
static void __exit stop(void)
{
	idle_stop();
	unregister_kprobe(&create_probe6);
	unregister_kprobe(&create_probe);
	inet6_unregister_protosw(&datagram_sw6);
	inet6_unregister_protosw(&stream_sw6);
	inet_unregister_protosw(&datagram_sw);
	inet_unregister_protosw(&stream_sw);
	vmrpc_stop();
	proto_unregister(&punctual_proto6);
	proto_unregister(&punctual_proto);
}

module_init(start);
module_exit(stop);
MODULE_LICENSE("GPL");
/* Keep equal to PACKAGE_VERSION in dkms.conf: DKMS does not replace a module of the same version. */
MODULE_VERSION("0.2.0");
MODULE_DESCRIPTION("Sockets of chosen programs on the host's network stack");
