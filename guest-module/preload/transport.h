/* SPDX-License-Identifier: GPL-2.0-only OR MIT */
/* A program's side of the shared memory of its VM and the host. See docs/vmrpc.md. */
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

/* A call and, once it returned, its response. */
struct vmrpc_call {
	uint32_t op;
	uint32_t socket;
	uint32_t flags;
	/* Bytes of data, at most VMRPC_DATA_BYTES. */
	uint32_t length;
	uint32_t first;
	uint32_t second;
	uint32_t options;
	uint32_t linger;
	union address address;
	/* Data to send, or the buffer for received data. */
	const void *out;
	void *in;
	int32_t result;
};

/* Finds and locks the device; false when there is none, or another program has it. */
bool vmrpc_start(void);
bool vmrpc_alive(void);
/* Gives the device up in a forked child, because it belongs to the parent. */
void vmrpc_forget(void);
/* Makes a call; returns its result, or a negative errno. */
int vmrpc_call(struct vmrpc_call *call);
/* What a socket is ready for, as poll() bits, and its number of events so far. */
uint32_t vmrpc_ready(uint32_t socket, uint32_t *sequence);
int vmrpc_take_error(uint32_t socket);
bool vmrpc_has_error(uint32_t socket);
uint64_t now_us(void);

#endif
