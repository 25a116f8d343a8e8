/* SPDX-License-Identifier: GPL-2.0-only */
/* The guest's side of the memory that it shares with its host; see docs/vmrpc.md. */
#ifndef PUNCTUAL_TRANSPORT_H
#define PUNCTUAL_TRANSPORT_H

#include <linux/in.h>
#include <linux/in6.h>
#include <linux/types.h>

/* An address of IPv4 or IPv6; family 0 for none. */
union vmrpc_address {
	sa_family_t family;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

/* A call that is being made: a slot of the shared memory. */
struct vmrpc_call {
	int slot;
	/* The host's answer, each word of it read once. */
	s32 result;
	u32 length;
	u32 flags;
	u32 socket;
	union vmrpc_address address;
};

/* Takes a slot, waiting for one if need be, and empties its request. */
int vmrpc_begin(struct vmrpc_call *call, u32 op, u32 socket, u32 generation);
/* Writes a word of the request. */
void vmrpc_put(struct vmrpc_call *call, u32 word, u32 value);
void vmrpc_put_address(struct vmrpc_call *call, const union vmrpc_address *address);
/* Bytes of an address. */
int vmrpc_address_bytes(const union vmrpc_address *address);
/* The slot's data, VMRPC_DATA_BYTES. */
void *vmrpc_data(struct vmrpc_call *call);
/* Submits the slot and waits for the answer; its result, or the negated error. */
int vmrpc_call(struct vmrpc_call *call);
/* Gives the slot back. */
void vmrpc_end(struct vmrpc_call *call);

/* Does anybody answer? */
bool vmrpc_alive(void);
/* Which server it is that answers: sockets of one that has gone are nothing to the next. */
u32 vmrpc_generation(void);
/* The processor that runs this waits for events of a socket. What the socket is ready for is read after. */
void vmrpc_wait_here(u32 socket);
/* What a socket is ready for, in the bits of poll(). */
u32 vmrpc_ready(u32 socket);
/* A socket's pending error, which is taken. */
int vmrpc_take_error(u32 socket);

/* What the user of the transport does about an event of a socket; called with interrupts off. */
void vmrpc_on_event(u32 socket);
/* The host has gone; the same. */
void vmrpc_on_gone(void);

/*
 * Idle processors look for events of their own queues themselves from here on: an event needs an interrupt
 * only while the processor has halted. Processors at work look when they are idle, at their ticks, and when
 * programs ask. Each function below is about the processor that runs it.
 */
int vmrpc_idle_looks(bool does);
/* An idle processor looks, again and again, until it looks away; or halts until it resumes. */
void vmrpc_look(void);
void vmrpc_look_again(void);
void vmrpc_look_away(void);
void vmrpc_halt(void);
void vmrpc_resume(void);
bool vmrpc_has_event(void);
void vmrpc_take_events(void);
/* Is each event to have its interrupt, as a card's? */
bool vmrpc_is_conventional(void);

int vmrpc_start(void);
void vmrpc_stop(void);

#endif
