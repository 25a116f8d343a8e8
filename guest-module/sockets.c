// SPDX-License-Identifier: GPL-2.0-only
/*
 * Sockets of chosen programs, IPv4 and IPv6, whose calls the host makes.
 *
 * A probe of inet_create() and inet6_create() gives sockets of these programs a protocol of ours; everything
 * else stays on the guest's own stack. A call never waits in the host: what has to wait waits here, for an
 * event of the socket. From O. F. Garcia Alvarado, Research on real-time network stacks of commodity hosted
 * virtual machine environments, University of Tsukuba 2019, sections 5.1 to 5.3.
 */
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

/* Operations were given addresses as other types, and accept() other arguments, in other versions. */
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 19, 0)
typedef struct sockaddr_unsized given_address;
#else
typedef struct sockaddr given_address;
#endif

/* The protocol of our sockets where the kernel chooses one; for experiments by RFC 3692. */
#define OWN_PROTOCOL 253
#define OPTION_BYTES 256
#define ENDED (EPOLLHUP | EPOLLRDHUP)

static char *commands = "";
module_param(commands, charp, 0444);
MODULE_PARM_DESC(commands, "names of the programs whose sockets the host has, by commas; * for all");

/* Core code casts a socket by its type, so it is as large as any of them. */
struct outsourced {
	union {
		struct tcp_sock tcp;
		struct udp_sock udp;
	} core;
	u32 id;
	bool has_id;
	/* Of the server that has it. */
	u32 generation;
	/* Of a connection that was accepted. */
	union vmrpc_address peer;
};

struct outsourced6 {
	struct outsourced own;
	struct ipv6_pinfo inet6;
};
/* Before Linux 6.5, core code takes the last bytes for it, which padding may move from where it stands. */
#define INET6_AT (sizeof(struct outsourced6) - sizeof(struct ipv6_pinfo))

/* Sockets by their numbers. A lock guards each number that falls on it; it is taken with interrupts off. */
#define LOCKS 64
static struct sock *sockets[VMRPC_SOCKETS];
static spinlock_t locks[LOCKS];

static spinlock_t *lock_of(u32 id)
{
	return &locks[id % LOCKS];
}

static struct outsourced *of_sk(struct sock *sk)
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

static int begin(struct vmrpc_call *call, u32 op, struct sock *sk)
{
	int error = vmrpc_begin(call, op, of_sk(sk)->id, of_sk(sk)->generation);

	if (error)
		return error;
	vmrpc_put(call, VMRPC_REQUEST_OPTIONS, options_of(sk));
	vmrpc_put(call, VMRPC_REQUEST_LINGER, sk->sk_lingertime / HZ);
	return 0;
}

/* A call with two arguments at most. */
static int simple(struct vmrpc_call *call, u32 op, struct sock *sk, u32 first)
{
	int error = begin(call, op, sk);

	if (error)
		return error;
	vmrpc_put(call, VMRPC_REQUEST_FIRST, first);
	error = vmrpc_call(call);
	vmrpc_end(call);
	return error;
}

static int with_address(u32 op, struct sock *sk, const given_address *address)
{
	struct vmrpc_call call;
	int error = begin(&call, op, sk);

	if (error)
		return error;
	if (address)
		vmrpc_put_address(&call, (const union vmrpc_address *)address);
	error = vmrpc_call(&call);
	vmrpc_end(&call);
	return error;
}

static bool is_alive(struct sock *sk)
{
	return vmrpc_alive() && of_sk(sk)->generation == vmrpc_generation();
}

/* Takes over the error that the host noted. */
static void take_error(struct sock *sk)
{
	int error = is_alive(sk) ? vmrpc_take_error(of_sk(sk)->id) : 0;

	if (error)
		WRITE_ONCE(sk->sk_err, error);
}

static bool has_ended(struct sock *sk)
{
	return READ_ONCE(sk->sk_err) || !is_alive(sk);
}

static u32 ready_of(struct sock *sk)
{
	return is_alive(sk) ? vmrpc_ready(of_sk(sk)->id) : 0;
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

static void wake(struct sock *sk)
{
	struct socket_wq *wq;

	rcu_read_lock();
	wq = rcu_dereference(sk->sk_wq);
	if (skwq_has_sleeper(wq))
		wake_up_interruptible_poll(&wq->wait, mask_of(sk));
	sk_wake_async(sk, SOCK_WAKE_WAITD, POLL_IN);
	rcu_read_unlock();
}

void vmrpc_on_event(u32 id)
{
	struct sock *sk;
	unsigned long flags;

	spin_lock_irqsave(lock_of(id), flags);
	sk = sockets[id];
	if (sk) {
		take_error(sk);
		wake(sk);
	}
	spin_unlock_irqrestore(lock_of(id), flags);
}

void vmrpc_on_gone(void)
{
	unsigned long flags;
	u32 id;

	for (id = 0; id < VMRPC_SOCKETS; id++) {
		spin_lock_irqsave(lock_of(id), flags);
		if (sockets[id]) {
			WRITE_ONCE(sockets[id]->sk_err, ECONNRESET);
			wake(sockets[id]);
		}
		/* The next server may give the number to another. */
		sockets[id] = NULL;
		spin_unlock_irqrestore(lock_of(id), flags);
	}
}

/* Waits until the socket is ready for one of mask, or has ended; timeout as of sock_rcvtimeo(). */
static int wait_ready(struct sock *sk, u32 mask, long *timeout)
{
	long left;

	/* Who asks looks for the others, too: no interrupt may tell of their events while this one works. */
	if (vmrpc_has_event())
		vmrpc_take_events();
	if (ready_of(sk) & mask || has_ended(sk))
		return 0;
	if (!*timeout)
		return -EAGAIN;
	vmrpc_wait_here(of_sk(sk)->id);
	left = wait_event_interruptible_timeout(*sk_sleep(sk), ready_of(sk) & mask || has_ended(sk), *timeout);
	if (left < 0)
		return sock_intr_errno(*timeout);
	if (*timeout != MAX_SCHEDULE_TIMEOUT)
		*timeout = left;
	return left ? 0 : -EAGAIN;
}

/* Takes the number that the host gave. It closed nothing yet, so the number must be free. */
static int take_number(struct sock *sk, u32 id, u32 generation)
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
		of_sk(sk)->id = id;
		of_sk(sk)->generation = generation;
		of_sk(sk)->has_id = true;
	}
	spin_unlock_irqrestore(lock_of(id), flags);
	return error;
}

static void set_protocol(struct sock *sk)
{
	sk->sk_protocol = sk->sk_type == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP;
}

static int own_init(struct sock *sk)
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
	return error < 0 ? error : take_number(sk, call.socket, generation);
}

/* inet_create() calls it for a socket that could not be made. */
static void own_unhash(struct sock *sk)
{
}

static void own_close(struct sock *sk)
{
	struct vmrpc_call call;
	unsigned long flags;

	if (!of_sk(sk)->has_id)
		return;
	spin_lock_irqsave(lock_of(of_sk(sk)->id), flags);
	if (sockets[of_sk(sk)->id] == sk)
		sockets[of_sk(sk)->id] = NULL;
	spin_unlock_irqrestore(lock_of(of_sk(sk)->id), flags);
	simple(&call, VMRPC_CLOSE, sk, 0);
	of_sk(sk)->has_id = false;
}

static int own_release(struct socket *sock)
{
	struct sock *sk = sock->sk;

	if (!sk)
		return 0;
	own_close(sk);
	sk->sk_state = TCP_CLOSE;
	sock_orphan(sk);
	sock->sk = NULL;
	sock_put(sk);
	return 0;
}

/* Is it an address of the socket's family? The errors and their order are those of af_inet.c, af_inet6.c. */
static int check_address(struct sock *sk, const given_address *address, int length)
{
	if (sk->sk_family == AF_INET6 && length >= SIN6_LEN_RFC2133 && address->sa_family == AF_INET6)
		return 0;
	if (length < (sk->sk_family == AF_INET6 ? SIN6_LEN_RFC2133 : (int)sizeof(struct sockaddr_in)))
		return -EINVAL;
	return address->sa_family == sk->sk_family ? 0 : -EAFNOSUPPORT;
}

/* The same for where something is sent to: datagrams of IPv6 sockets go to IPv4 addresses too. */
static int check_destination(struct sock *sk, const given_address *address, int length)
{
	if (sk->sk_family == AF_INET6 && sk->sk_type == SOCK_DGRAM && length >= sizeof(struct sockaddr_in) &&
	    address->sa_family == AF_INET)
		return 0;
	return check_address(sk, address, length);
}

static int own_bind(struct socket *sock, given_address *address, int length)
{
	struct sock *sk = sock->sk;
	u16 port;
	int error = check_address(sk, address, length);

	if (error)
		return error;
	/* It stands at the same place in both families. */
	port = ntohs(((struct sockaddr_in *)address)->sin_port);
	if (port && inet_port_requires_bind_service(sock_net(sk), port) &&
	    !ns_capable(sock_net(sk)->user_ns, CAP_NET_BIND_SERVICE))
		return -EACCES;
	return with_address(VMRPC_BIND, sk, address);
}

static int own_listen(struct socket *sock, int backlog)
{
	struct vmrpc_call call;
	int error;

	if (sock->type != SOCK_STREAM)
		return -EOPNOTSUPP;
	error = simple(&call, VMRPC_LISTEN, sock->sk, max(backlog, 0));
	if (!error)
		sock->sk->sk_state = TCP_LISTEN;
	return error;
}

/* Ends a connection attempt that is decided. */
static int connected(struct socket *sock)
{
	int error;

	take_error(sock->sk);
	error = is_alive(sock->sk) ? sock_error(sock->sk) : -ECONNRESET;
	sock->state = error ? SS_UNCONNECTED : SS_CONNECTED;
	return error;
}

static int own_connect(struct socket *sock, given_address *address, int length, int flags)
{
	struct sock *sk = sock->sk;
	long timeout = sock_sndtimeo(sk, flags & O_NONBLOCK);
	int error;

	if (length >= sizeof(address->sa_family) && address->sa_family == AF_UNSPEC)
		return with_address(VMRPC_CONNECT, sk, NULL);
	error = check_destination(sk, address, length);
	if (error)
		return error;
	if (sock->type != SOCK_STREAM)
		return with_address(VMRPC_CONNECT, sk, address);
	if (sock->state == SS_CONNECTED)
		return -EISCONN;
	if (sock->state == SS_CONNECTING) {
		if (!timeout && !(ready_of(sk) & (POLLOUT | POLLHUP)) && !has_ended(sk))
			return -EALREADY;
	} else {
		error = with_address(VMRPC_CONNECT, sk, address);
		if (error && error != -EINPROGRESS)
			return error;
		sock->state = SS_CONNECTING;
		/* As the native stack, which tells how it ended by SO_ERROR or the next call. */
		if (error && !timeout)
			return error;
	}
	error = wait_ready(sk, POLLOUT | POLLHUP, &timeout);
	if (error)
		return error == -EAGAIN ? -EINPROGRESS : error;
	return connected(sock);
}

/* Waits for a connection and takes it. */
static int await_connection(struct sock *sk, long timeout, struct vmrpc_call *call)
{
	int error;

	do {
		error = wait_ready(sk, POLLIN, &timeout);
		if (!error && !is_alive(sk))
			error = -ECONNRESET;
		if (error)
			break;
		error = simple(call, VMRPC_ACCEPT, sk, 0);
	} while (error == -EAGAIN);
	return error;
}

/* A socket as inet_create() or inet6_create() would make it. */
static struct sock *alloc_like(struct sock *sk, bool kern)
{
	struct sock *own = sk_alloc(sock_net(sk), sk->sk_family, GFP_KERNEL, sk->sk_prot, kern);

	if (own && sk->sk_family == AF_INET6)
		inet_sk(own)->pinet6 = (void *)own + INET6_AT;
	return own;
}

static int accept_flags(struct socket *sock, struct socket *new, int flags, bool kern)
{
	struct sock *sk = sock->sk, *own;
	struct vmrpc_call call;
	int error;

	if (sk->sk_state != TCP_LISTEN)
		return -EINVAL;
	/* First, because a connection that is accepted must not be lost for want of memory. */
	own = alloc_like(sk, kern);
	if (!own)
		return -ENOMEM;
	error = await_connection(sk, sock_rcvtimeo(sk, flags & O_NONBLOCK), &call);
	sock_init_data(new, own);
	own->sk_destruct = sk->sk_destruct;
	own->sk_reuse = sk->sk_reuse;
	own->sk_reuseport = sk->sk_reuseport;
	own->sk_rcvtimeo = sk->sk_rcvtimeo;
	own->sk_sndtimeo = sk->sk_sndtimeo;
	sock_valbool_flag(own, SOCK_KEEPOPEN, sock_flag(sk, SOCK_KEEPOPEN));
	set_protocol(own);
	if (!error)
		error = take_number(own, call.socket, of_sk(sk)->generation);
	if (error) {
		sock_orphan(own);
		new->sk = NULL;
		sock_put(own);
		return error;
	}
	of_sk(own)->peer = call.address;
	new->state = SS_CONNECTED;
	return 0;
}

#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 10, 0)
static int own_accept(struct socket *sock, struct socket *new, struct proto_accept_arg *arg)
{
	return accept_flags(sock, new, arg->flags, arg->kern);
}
#else
static int own_accept(struct socket *sock, struct socket *new, int flags, bool kern)
{
	return accept_flags(sock, new, flags, kern);
}
#endif

static int own_getname(struct socket *sock, struct sockaddr *address, int peer)
{
	union vmrpc_address *known = &of_sk(sock->sk)->peer;
	struct vmrpc_call call;
	int error;

	if (peer && known->family) {
		memcpy(address, known, vmrpc_address_bytes(known));
		return vmrpc_address_bytes(known);
	}
	error = simple(&call, peer ? VMRPC_PEER : VMRPC_NAME, sock->sk, 0);
	if (error)
		return error;
	if (call.address.family != sock->sk->sk_family)
		return -EIO;
	memcpy(address, &call.address, vmrpc_address_bytes(&call.address));
	return vmrpc_address_bytes(&call.address);
}

static __poll_t own_poll(struct file *file, struct socket *sock, poll_table *table)
{
	sock_poll_wait(file, sock, table);
	vmrpc_wait_here(of_sk(sock->sk)->id);
	take_error(sock->sk);
	return mask_of(sock->sk);
}

static int own_ioctl(struct socket *sock, unsigned int command, unsigned long argument)
{
	struct vmrpc_call call;
	int bytes;

	if (command != SIOCINQ)
		return sock->sk->sk_family == AF_INET6 ? inet6_ioctl(sock, command, argument) :
							 inet_ioctl(sock, command, argument);
	bytes = simple(&call, VMRPC_WAITING, sock->sk, 0);
	return bytes < 0 ? bytes : put_user(bytes, (int __user *)argument);
}

static int own_shutdown(struct socket *sock, int how)
{
	struct vmrpc_call call;
	int error = simple(&call, VMRPC_SHUTDOWN, sock->sk, how);

	if (!error && how == SHUT_RDWR)
		wake(sock->sk);
	return error;
}

static int own_setsockopt(struct socket *sock, int level, int option, sockptr_t value, unsigned int length)
{
	u8 bytes[OPTION_BYTES];
	struct vmrpc_call call;
	int error;

	length = min_t(unsigned int, length, sizeof(bytes));
	if (copy_from_sockptr(bytes, value, length))
		return -EFAULT;
	error = begin(&call, VMRPC_SET_OPTION, sock->sk);
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

static int own_getsockopt(struct socket *sock, int level, int option, char __user *value, int __user *given)
{
	u8 bytes[OPTION_BYTES];
	struct vmrpc_call call;
	int error, length;

	if (get_user(length, given))
		return -EFAULT;
	if (length < 0)
		return -EINVAL;
	length = min_t(int, length, sizeof(bytes));
	error = begin(&call, VMRPC_GET_OPTION, sock->sk);
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

/* Sends what one call can carry. */
static int send_part(struct sock *sk, struct msghdr *message, size_t length, union vmrpc_address *to)
{
	struct vmrpc_call call;
	int sent = begin(&call, VMRPC_SEND, sk);

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

static int own_sendmsg(struct socket *sock, struct msghdr *message, size_t length)
{
	struct sock *sk = sock->sk;
	union vmrpc_address *to = message->msg_name;
	long timeout;
	int sent;

	if (message->msg_flags & MSG_OOB)
		return -EOPNOTSUPP;
	if (sock->type == SOCK_STREAM)
		return send_stream(sk, message, length);
	/* The host knows what else is too long. */
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

/* Receives what one call can carry. */
static int receive_part(struct sock *sk, struct msghdr *message, size_t length, int flags)
{
	struct vmrpc_call call;
	int result = begin(&call, VMRPC_RECEIVE, sk);

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
	/* Who calls has room for an address of any family. */
	if (message->msg_name && call.address.family == sk->sk_family) {
		message->msg_namelen = vmrpc_address_bytes(&call.address);
		memcpy(message->msg_name, &call.address, message->msg_namelen);
	}
	return flags & MSG_TRUNC ? result : length;
}

static int own_recvmsg(struct socket *sock, struct msghdr *message, size_t length, int flags)
{
	struct sock *sk = sock->sk;
	long timeout = sock_rcvtimeo(sk, flags & MSG_DONTWAIT);
	size_t target = sock_rcvlowat(sk, flags & MSG_WAITALL, length), copied = 0, most;
	int part;

	if (flags & (MSG_OOB | MSG_ERRQUEUE))
		return flags & MSG_OOB ? -EINVAL : -EAGAIN;
	do {
		part = wait_ready(sk, POLLIN | ENDED, &timeout);
		if (!part && !(ready_of(sk) & (POLLIN | ENDED)))
			part = sock_error(sk) ?: -ECONNRESET;
		most = length - copied;
		if (!part)
			part = receive_part(sk, message, most, flags);
		if (part == -EAGAIN && timeout)
			continue;
		/* The host took the error before it answered that this is the end. */
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

static struct proto own_proto = {
	.name = "punctual",
	.owner = THIS_MODULE,
	.obj_size = sizeof(struct outsourced),
	.init = own_init,
	.unhash = own_unhash,
};

static struct proto own_proto6 = {
	.name = "punctual6",
	.owner = THIS_MODULE,
	.obj_size = sizeof(struct outsourced6),
#if LINUX_VERSION_CODE >= KERNEL_VERSION(6, 5, 0)
	.ipv6_pinfo_offset = INET6_AT,
#endif
	.init = own_init,
	.unhash = own_unhash,
};

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 5, 0)
#define NO_SENDPAGE .sendpage = sock_no_sendpage,
#else
#define NO_SENDPAGE
#endif

#define OWN_OPS(FAMILY) { \
	.family = FAMILY, \
	.owner = THIS_MODULE, \
	.release = own_release, \
	.bind = own_bind, \
	.connect = own_connect, \
	.socketpair = sock_no_socketpair, \
	.accept = own_accept, \
	.getname = own_getname, \
	.poll = own_poll, \
	.ioctl = own_ioctl, \
	.gettstamp = sock_gettstamp, \
	.listen = own_listen, \
	.shutdown = own_shutdown, \
	.setsockopt = own_setsockopt, \
	.getsockopt = own_getsockopt, \
	.sendmsg = own_sendmsg, \
	.recvmsg = own_recvmsg, \
	.mmap = sock_no_mmap, \
	NO_SENDPAGE \
}

static const struct proto_ops own_ops = OWN_OPS(PF_INET);
static const struct proto_ops own_ops6 = OWN_OPS(PF_INET6);

#define OWN_SWITCH(TYPE, PROTO, OPS) { .type = TYPE, .protocol = OWN_PROTOCOL, .prot = &PROTO, .ops = &OPS }

static struct inet_protosw stream = OWN_SWITCH(SOCK_STREAM, own_proto, own_ops);
static struct inet_protosw datagram = OWN_SWITCH(SOCK_DGRAM, own_proto, own_ops);
static struct inet_protosw stream6 = OWN_SWITCH(SOCK_STREAM, own_proto6, own_ops6);
static struct inet_protosw datagram6 = OWN_SWITCH(SOCK_DGRAM, own_proto6, own_ops6);

/* Is the program that runs one of those named? */
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

/* inet_create(net, sock, protocol, kern), and the same of IPv6 */
static int before_create(struct kprobe *probe, struct pt_regs *regs)
{
	struct net *net = (struct net *)regs_get_kernel_argument(regs, 0);
	struct socket *sock = (struct socket *)regs_get_kernel_argument(regs, 1);
	int protocol = regs_get_kernel_argument(regs, 2), kern = regs_get_kernel_argument(regs, 3);

	if (kern || net != &init_net || !vmrpc_alive() || !is_wanted())
		return 0;
	if ((sock->type == SOCK_STREAM && (!protocol || protocol == IPPROTO_TCP)) ||
	    (sock->type == SOCK_DGRAM && (!protocol || protocol == IPPROTO_UDP)))
		regs->dx = OWN_PROTOCOL;
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

/* Whom new sockets belong to is decided from here on. */
static int take_over(void)
{
	int error;

	inet_register_protosw(&stream);
	inet_register_protosw(&datagram);
	error = inet6_register_protosw(&stream6);
	if (error)
		goto ipv4;
	error = inet6_register_protosw(&datagram6);
	if (error)
		goto stream6;
	error = register_kprobe(&create_probe);
	if (error)
		goto ipv6;
	error = register_kprobe(&create_probe6);
	if (!error)
		return 0;
	unregister_kprobe(&create_probe);
ipv6:
	inet6_unregister_protosw(&datagram6);
stream6:
	inet6_unregister_protosw(&stream6);
ipv4:
	inet_unregister_protosw(&datagram);
	inet_unregister_protosw(&stream);
	return error;
}

static int __init start(void)
{
	int error, lock;

	for (lock = 0; lock < LOCKS; lock++)
		spin_lock_init(&locks[lock]);
	error = proto_register(&own_proto, 1);
	if (error)
		return error;
	error = proto_register(&own_proto6, 1);
	if (error)
		goto unregister;
	error = vmrpc_start();
	if (error)
		goto unregister6;
	error = take_over();
	if (!error) {
		idle_start();
		return 0;
	}
	vmrpc_stop();
unregister6:
	proto_unregister(&own_proto6);
unregister:
	proto_unregister(&own_proto);
	return error;
}

/* No socket is left: each holds the module. */
static void __exit stop(void)
{
	idle_stop();
	unregister_kprobe(&create_probe6);
	unregister_kprobe(&create_probe);
	inet6_unregister_protosw(&datagram6);
	inet6_unregister_protosw(&stream6);
	inet_unregister_protosw(&datagram);
	inet_unregister_protosw(&stream);
	vmrpc_stop();
	proto_unregister(&own_proto6);
	proto_unregister(&own_proto);
}

module_init(start);
module_exit(stop);
MODULE_LICENSE("GPL");
/* As in dkms.conf, which keeps a module of the same version. */
MODULE_VERSION("0.2.0");
MODULE_DESCRIPTION("Sockets of chosen programs on the host's network stack");
