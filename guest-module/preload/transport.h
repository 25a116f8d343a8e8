/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* A program's side of the memory that its VM shares with the host; see docs/vmrpc.md. */
#ifndef PUNCTUAL_PRELOAD_TRANSPORT_H
#define PUNCTUAL_PRELOAD_TRANSPORT_H

#include <netinet/in.h>
#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

#include "../vmrpc.h"

union address {
	struct sockaddr any;
	struct sockaddr_in v4;
	struct sockaddr_in6 v6;
};

/* A call, and after it its answer. */
struct vmrpc_call {
	uint32_t op;
	uint32_t socket;
	uint32_t flags;
	/* Bytes of data; at most VMRPC_DATA_BYTES. */
	uint32_t length;
	uint32_t first;
	uint32_t second;
	uint32_t options;
	uint32_t linger;
	union address address;
	/* The data that is sent, or where the data goes. */
	const void *out;
	void *in;
	int32_t result;
};

/* Finds the device and takes it; false when there is none, or another program has it. */
bool vmrpc_start(void);
bool vmrpc_alive(void);
/* In a child that was forked: the device is its parent's. */
void vmrpc_forget(void);
/* Makes a call; its result, or the negated error. */
int vmrpc_call(struct vmrpc_call *call);
/* What a socket is ready for in the bits of poll(), and how many events it had. */
uint32_t vmrpc_ready(uint32_t socket, uint32_t *sequence);
int vmrpc_take_error(uint32_t socket);
bool vmrpc_has_error(uint32_t socket);
uint64_t now_us(void);

#endif
