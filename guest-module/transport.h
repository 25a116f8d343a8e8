/* SPDX-License-Identifier: GPL-2.0 */
/* The guest's side of the memory that it shares with its host; see docs/vmrpc.md. */
#ifndef PUNCTUAL_TRANSPORT_H
#define PUNCTUAL_TRANSPORT_H

#include <linux/in.h>
#include <linux/types.h>

/* A call that is being made: a slot of the shared memory. */
struct vmrpc_call {
	int slot;
	/* The host's answer, each word of it read once. */
	s32 result;
	u32 length;
	u32 flags;
	u32 socket;
	struct sockaddr_in address;
};

/* Takes a slot, waiting for one if need be, and empties its request. */
int vmrpc_begin(struct vmrpc_call *call, u32 op, u32 socket);
/* Writes a word of the request. */
void vmrpc_put(struct vmrpc_call *call, u32 word, u32 value);
void vmrpc_put_address(struct vmrpc_call *call, const struct sockaddr_in *address);
/* The slot's data, VMRPC_DATA_BYTES. */
void *vmrpc_data(struct vmrpc_call *call);
/* Submits the slot and waits for the answer; its result, or the negated error. */
int vmrpc_call(struct vmrpc_call *call);
/* Gives the slot back. */
void vmrpc_end(struct vmrpc_call *call);

/* Does anybody answer? */
bool vmrpc_alive(void);
/* What a socket is ready for, in the bits of poll(). */
u32 vmrpc_ready(u32 socket);
/* A socket's pending error, which is taken. */
int vmrpc_take_error(u32 socket);

/* What the user of the transport does about an event of a socket; called with the lock of events. */
void vmrpc_on_event(u32 socket);
/* The host has gone; the same. */
void vmrpc_on_gone(void);
/* The lock of events, with interrupts off. */
unsigned long vmrpc_lock_events(void);
void vmrpc_unlock_events(unsigned long flags);

/* An idle processor looks for events itself until it looks away; no interrupt is needed meanwhile. */
void vmrpc_look(void);
void vmrpc_look_away(void);
bool vmrpc_has_event(void);
void vmrpc_take_events(void);

int vmrpc_start(void);
void vmrpc_stop(void);

#endif
