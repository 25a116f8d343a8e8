// SPDX-License-Identifier: GPL-2.0
/*
 * IPv4 sockets of chosen programs, whose calls the host makes.
 *
 * A probe of inet_create() gives sockets of these programs a protocol of ours; everything else stays on the
 * guest's own stack. A call never waits in the host: what has to wait waits here, for an event of the socket.
 * From O. F. Garcia Alvarado, Research on real-time network stacks of commodity hosted virtual machine
 * environments, University of Tsukuba 2019, sections 5.1 to 5.3.
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
#include <net/protocol.h>
#include <net/sock.h>

#include <asm/ioctls.h>

#include "idle.h"
#include "transport.h"
#include "vmrpc.h"

#if LINUX_VERSION_CODE < KERNEL_VERSION(6, 1, 0) || LINUX_VERSION_CODE >= KERNEL_VERSION(6, 2, 0)
#error "This module is for Linux 6.1, the kernel of Debian 12."
#endif

/* The protocol of our sockets where the kernel chooses one; for experiments by RFC 3692. */
#define OWN_PROTOCOL 253
#define OPTION_BYTES 256
/* Bytes of the largest datagram of UDP over IPv4. */
#define DATAGRAM_MAX 65507
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
	/* Of a connection that was accepted. */
	struct sockaddr_in peer;
};

static struct proto own_proto;
static const struct proto_ops own_ops;

/* Sockets by their numbers; guarded by the lock of events. */
static struct sock *sockets[VMRPC_SOCKETS];

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
	int error = vmrpc_begin(call, op, of_sk(sk)->id);

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

static int with_address(u32 op, struct sock *sk, const struct sockaddr_in *address)
{
	struct vmrpc_call call;
	int error = begin(&call, op, sk);

	if (error)
		return error;
	if (address)
		vmrpc_put_address(&call, address);
	error = vmrpc_call(&call);
	vmrpc_end(&call);
	return error;
}

/* Takes over the error that the host noted. */
static void take_error(struct sock *sk)
{
	int error = vmrpc_take_error(of_sk(sk)->id);

	if (error)
		WRITE_ONCE(sk->sk_err, error);
}

static bool has_ended(struct sock *sk)
{
	return READ_ONCE(sk->sk_err) || !vmrpc_alive();
}

static u32 ready_of(struct sock *sk)
{
	return vmrpc_ready(of_sk(sk)->id);
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
	if (!vmrpc_alive())
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
	struct sock *sk = sockets[id];

	if (!sk)
		return;
	take_error(sk);
	wake(sk);
}

void vmrpc_on_gone(void)
{
	u32 id;

	for (id = 0; id < VMRPC_SOCKETS; id++) {
		if (!sockets[id])
			continue;
		WRITE_ONCE(sockets[id]->sk_err, ECONNRESET);
		wake(sockets[id]);
	}
}

/* Waits until the socket is ready for one of mask, or has ended; timeout as of sock_rcvtimeo(). */
static int wait_ready(struct sock *sk, u32 mask, long *timeout)
{
	long left;

	if (ready_of(sk) & mask || has_ended(sk))
		return 0;
	if (!*timeout)
		return -EAGAIN;
	left = wait_event_interruptible_timeout(*sk_sleep(sk), ready_of(sk) & mask || has_ended(sk), *timeout);
	if (left < 0)
		return sock_intr_errno(*timeout);
	if (*timeout != MAX_SCHEDULE_TIMEOUT)
		*timeout = left;
	return left ? 0 : -EAGAIN;
}

/* Takes the number that the host gave. It closed nothing yet, so the number must be free. */
static int take_number(struct sock *sk, u32 id)
{
	unsigned long flags = vmrpc_lock_events();
	int error = 0;

	if (id >= VMRPC_SOCKETS || sockets[id]) {
		error = -EIO;
	} else {
		sockets[id] = sk;
		of_sk(sk)->id = id;
		of_sk(sk)->has_id = true;
	}
	vmrpc_unlock_events(flags);
	return error;
}

static void set_protocol(struct sock *sk)
{
	sk->sk_protocol = sk->sk_type == SOCK_STREAM ? IPPROTO_TCP : IPPROTO_UDP;
}

static int own_init(struct sock *sk)
{
	struct vmrpc_call call;
	int error = vmrpc_begin(&call, VMRPC_SOCKET, 0);

	if (error)
		return error;
	set_protocol(sk);
	vmrpc_put(&call, VMRPC_REQUEST_FIRST, sk->sk_type);
	error = vmrpc_call(&call);
	vmrpc_end(&call);
	return error < 0 ? error : take_number(sk, call.socket);
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
	flags = vmrpc_lock_events();
	sockets[of_sk(sk)->id] = NULL;
	vmrpc_unlock_events(flags);
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

static int check_address(const struct sockaddr *address, int length)
{
	if (length < sizeof(struct sockaddr_in))
		return -EINVAL;
	return address->sa_family == AF_INET ? 0 : -EAFNOSUPPORT;
}

static int own_bind(struct socket *sock, struct sockaddr *address, int length)
{
	struct sock *sk = sock->sk;
	u16 port;
	int error = check_address(address, length);

	if (error)
		return error;
	port = ntohs(((struct sockaddr_in *)address)->sin_port);
	if (port && inet_port_requires_bind_service(sock_net(sk), port) &&
	    !ns_capable(sock_net(sk)->user_ns, CAP_NET_BIND_SERVICE))
		return -EACCES;
	return with_address(VMRPC_BIND, sk, (struct sockaddr_in *)address);
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
	error = vmrpc_alive() ? sock_error(sock->sk) : -ECONNRESET;
	sock->state = error ? SS_UNCONNECTED : SS_CONNECTED;
	return error;
}

static int own_connect(struct socket *sock, struct sockaddr *address, int length, int flags)
{
	struct sock *sk = sock->sk;
	long timeout = sock_sndtimeo(sk, flags & O_NONBLOCK);
	int error;

	if (length >= sizeof(address->sa_family) && address->sa_family == AF_UNSPEC)
		return with_address(VMRPC_CONNECT, sk, NULL);
	error = check_address(address, length);
	if (error)
		return error;
	if (sock->type != SOCK_STREAM)
		return with_address(VMRPC_CONNECT, sk, (struct sockaddr_in *)address);
	if (sock->state == SS_CONNECTED)
		return -EISCONN;
	if (sock->state == SS_CONNECTING) {
		if (!timeout && !(ready_of(sk) & (POLLOUT | POLLHUP)) && !has_ended(sk))
			return -EALREADY;
	} else {
		error = with_address(VMRPC_CONNECT, sk, (struct sockaddr_in *)address);
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

static int own_accept(struct socket *sock, struct socket *new, int flags, bool kern)
{
	struct sock *sk = sock->sk, *own;
	long timeout = sock_rcvtimeo(sk, flags & O_NONBLOCK);
	struct vmrpc_call call;
	int error;

	if (sk->sk_state != TCP_LISTEN)
		return -EINVAL;
	/* First, because a connection that is accepted must not be lost for want of memory. */
	own = sk_alloc(sock_net(sk), PF_INET, GFP_KERNEL, &own_proto, kern);
	if (!own)
		return -ENOMEM;
	do {
		error = wait_ready(sk, POLLIN, &timeout);
		if (!error && !vmrpc_alive())
			error = -ECONNRESET;
		if (error)
			break;
		error = simple(&call, VMRPC_ACCEPT, sk, 0);
	} while (error == -EAGAIN);
	sock_init_data(new, own);
	own->sk_destruct = inet_sock_destruct;
	own->sk_reuse = sk->sk_reuse;
	own->sk_reuseport = sk->sk_reuseport;
	own->sk_rcvtimeo = sk->sk_rcvtimeo;
	own->sk_sndtimeo = sk->sk_sndtimeo;
	sock_valbool_flag(own, SOCK_KEEPOPEN, sock_flag(sk, SOCK_KEEPOPEN));
	set_protocol(own);
	if (!error)
		error = take_number(own, call.socket);
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

static int own_getname(struct socket *sock, struct sockaddr *address, int peer)
{
	struct outsourced *own = of_sk(sock->sk);
	struct vmrpc_call call;
	int error;

	if (peer && own->peer.sin_family) {
		memcpy(address, &own->peer, sizeof(own->peer));
		return sizeof(own->peer);
	}
	error = simple(&call, peer ? VMRPC_PEER : VMRPC_NAME, sock->sk, 0);
	if (error)
		return error;
	call.address.sin_family = AF_INET;
	memcpy(address, &call.address, sizeof(call.address));
	return sizeof(call.address);
}

static __poll_t own_poll(struct file *file, struct socket *sock, poll_table *table)
{
	sock_poll_wait(file, sock, table);
	take_error(sock->sk);
	return mask_of(sock->sk);
}

static int own_ioctl(struct socket *sock, unsigned int command, unsigned long argument)
{
	struct vmrpc_call call;
	int bytes;

	if (command != SIOCINQ)
		return inet_ioctl(sock, command, argument);
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
static int send_part(struct sock *sk, struct msghdr *message, size_t length, struct sockaddr_in *to)
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
	struct sockaddr_in *to = message->msg_name;
	long timeout;
	int sent;

	if (message->msg_flags & MSG_OOB)
		return -EOPNOTSUPP;
	if (sock->type == SOCK_STREAM)
		return send_stream(sk, message, length);
	if (length > DATAGRAM_MAX)
		return -EMSGSIZE;
	sent = to ? check_address(message->msg_name, message->msg_namelen) : 0;
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
	DECLARE_SOCKADDR(struct sockaddr_in *, from, message->msg_name);
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
	if (from && call.address.sin_family) {
		memcpy(from, &call.address, sizeof(*from));
		message->msg_namelen = sizeof(*from);
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

static const struct proto_ops own_ops = {
	.family = PF_INET,
	.owner = THIS_MODULE,
	.release = own_release,
	.bind = own_bind,
	.connect = own_connect,
	.socketpair = sock_no_socketpair,
	.accept = own_accept,
	.getname = own_getname,
	.poll = own_poll,
	.ioctl = own_ioctl,
	.gettstamp = sock_gettstamp,
	.listen = own_listen,
	.shutdown = own_shutdown,
	.setsockopt = own_setsockopt,
	.getsockopt = own_getsockopt,
	.sendmsg = own_sendmsg,
	.recvmsg = own_recvmsg,
	.mmap = sock_no_mmap,
	.sendpage = sock_no_sendpage,
};

static struct inet_protosw stream = {
	.type = SOCK_STREAM,
	.protocol = OWN_PROTOCOL,
	.prot = &own_proto,
	.ops = &own_ops,
};

static struct inet_protosw datagram = {
	.type = SOCK_DGRAM,
	.protocol = OWN_PROTOCOL,
	.prot = &own_proto,
	.ops = &own_ops,
};

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

/* inet_create(net, sock, protocol, kern) */
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

static int __init start(void)
{
	int error = proto_register(&own_proto, 1);

	if (error)
		return error;
	error = vmrpc_start();
	if (error)
		goto unregister;
	inet_register_protosw(&stream);
	inet_register_protosw(&datagram);
	error = register_kprobe(&create_probe);
	if (!error) {
		idle_start();
		return 0;
	}
	inet_unregister_protosw(&datagram);
	inet_unregister_protosw(&stream);
	vmrpc_stop();
unregister:
	proto_unregister(&own_proto);
	return error;
}

/* No socket is left: each holds the module. */
static void __exit stop(void)
{
	idle_stop();
	unregister_kprobe(&create_probe);
	inet_unregister_protosw(&datagram);
	inet_unregister_protosw(&stream);
	vmrpc_stop();
	proto_unregister(&own_proto);
}

module_init(start);
module_exit(stop);
MODULE_LICENSE("GPL");
MODULE_DESCRIPTION("IPv4 sockets of chosen programs on the host's network stack");
