/* SPDX-License-Identifier: GPL-2.0-only */
/* The guest's side of the shared memory: calls, events and interrupts. See docs/vmrpc.md. */
#ifndef PUNCTUAL_TRANSPORT_H
#define PUNCTUAL_TRANSPORT_H

#include <linux/in.h>
#include <linux/in6.h>
#include <linux/types.h>

/* Callbacks into the user of the transport. They run with interrupts off and must not sleep. */
struct vmrpc_ops {
	/* A socket has become ready for something, or has an error. */
	void (*socket_event)(u32 socket);
	/* The host has gone; every socket is lost. */
	void (*host_gone)(void);
};

/* An IPv4 or IPv6 address; family 0 means no address. */
union vmrpc_address {
	sa_family_t family;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

/* A call in progress, in a slot of the shared memory. */
struct vmrpc_call {
	int slot;
	/* The host's response. Each word is read from shared memory once. */
	s32 result;
	u32 length;
	u32 flags;
	u32 socket;
	union vmrpc_address address;
};

/* Takes a slot, sleeping until one is free, and clears its request. */
int vmrpc_begin(struct vmrpc_call *call, u32 op, u32 socket, u32 generation);
/* Writes a word of the request. */
void vmrpc_put(struct vmrpc_call *call, u32 word, u32 value);
void vmrpc_put_address(struct vmrpc_call *call, const union vmrpc_address *address);
int vmrpc_address_bytes(const union vmrpc_address *address);
/* The slot's data, VMRPC_DATA_BYTES. */
void *vmrpc_data(struct vmrpc_call *call);
/* Submits the slot and waits for the response; returns its result, or a negative errno. */
int vmrpc_call(struct vmrpc_call *call);
/* Frees the slot. */
void vmrpc_end(struct vmrpc_call *call);

/* Is a server answering? */
bool vmrpc_alive(void);
/* Number of the current server. Sockets belong to the server that made them. */
u32 vmrpc_generation(void);
/* Directs events of a socket to this CPU's queue. Read what the socket is ready for afterwards. */
void vmrpc_wait_here(u32 socket);
/* What a socket is ready for, as poll() bits. */
u32 vmrpc_ready(u32 socket);
/* Reads and clears a socket's pending error. */
int vmrpc_take_error(u32 socket);

/* Does this CPU's queue hold an event? */
bool vmrpc_has_event(void);
/* Processes the events of this CPU's queue. */
void vmrpc_take_events(void);
/* Does every event raise an interrupt, as with a network card? */
bool vmrpc_is_conventional(void);

/*
 * With idle polling, an event needs an interrupt only while the CPUs of its queue are halted. Other CPUs find
 * events while they idle, at their ticks, and when programs make calls. All functions but the first are about
 * the CPU that calls them.
 */
void vmrpc_set_idle_polling(bool is_on);
void vmrpc_cpu_online(void);
void vmrpc_cpu_offline(void);
void vmrpc_poll_begin(void);
void vmrpc_poll(void);
void vmrpc_poll_end(void);
void vmrpc_halt_begin(void);
void vmrpc_halt_end(void);

/* Finds the device and sends hello. The ops must outlive vmrpc_stop(). */
int vmrpc_start(const struct vmrpc_ops *ops);
void vmrpc_stop(void);

#endif
