// SPDX-License-Identifier: GPL-2.0-only OR MIT
/*
 * Calls over the shared memory of an ivshmem device (docs/vmrpc.md) without a kernel module: the program maps
 * the device's memory and registers from sysfs. There are no interrupts, so the program polls for responses
 * and events. A lock on the device's file keeps a second program out.
 *
 * preload.c stands in front of some of the functions that this file calls, so those are called by REAL().
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "libc.h"
#include "transport.h"

#define SYSFS "/sys/bus/pci/devices"
#define REGISTERS_BYTES 256
#define DOORBELL 12
#define RESPONSE_LIMIT_US 10000000ull
#define SPINS 100

static struct {
	unsigned char *memory;
	/* NULL in tests, where another process rings the doorbell. */
	volatile uint32_t *registers;
	uint32_t submission_head;
	uint32_t event_tail;
	uint32_t sequence[VMRPC_SOCKETS];
	atomic_bool is_gone;
	pthread_mutex_t lock;
} vm = { .lock = PTHREAD_MUTEX_INITIALIZER };

static _Atomic uint32_t *word_at(uint32_t at)
{
	return (_Atomic uint32_t *)(vm.memory + at);
}

/* The library uses queue 0 only. */
static _Atomic uint32_t *queue_word(uint32_t place)
{
	return word_at(VMRPC_QUEUES_AT + place);
}

static _Atomic uint32_t *slot_word(uint32_t word)
{
	return word_at(VMRPC_HEADERS_AT + word * 4);
}

uint64_t now_us(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000000ull + time.tv_nsec / 1000;
}

bool vmrpc_alive(void)
{
	return vm.memory && !vm.is_gone &&
	       atomic_load(word_at(VMRPC_STATUS_AT)) == VMRPC_STATUS_SERVING;
}

void vmrpc_forget(void)
{
	vm.is_gone = true;
	/* Another thread of the parent may have held the lock. */
	pthread_mutex_init(&vm.lock, NULL);
}

/* Reads a sysfs attribute of the device as a number. */
static unsigned long attribute(const char *device, const char *name)
{
	char path[512], text[32] = "";
	int fd;

	snprintf(path, sizeof(path), "%s/%s", device, name);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	if (REAL(read)(fd, text, sizeof(text) - 1) < 0)
		text[0] = 0;
	REAL(close)(fd);
	return strtoul(text, NULL, 0);
}

static void *map(const char *device, const char *name, size_t bytes, bool locks)
{
	char path[512];
	void *at = NULL;
	struct stat file;
	int fd;

	snprintf(path, sizeof(path), "%s/%s", device, name);
	fd = open(path, O_RDWR | O_SYNC | O_CLOEXEC);
	if (fd < 0)
		return NULL;
	if (locks && (fstat(fd, &file) || file.st_size < (off_t)bytes)) {
		fputs("punctual: the device's memory is too small for this version of the library\n", stderr);
		REAL(close)(fd);
		return NULL;
	}
	if (!locks || !flock(fd, LOCK_EX | LOCK_NB))
		at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	/* The lock is held as long as the file is open. */
	if (!locks)
		REAL(close)(fd);
	return at == MAP_FAILED ? NULL : at;
}

/* The first ivshmem device, or the one that the environment names. */
static bool find(char *device, size_t bytes)
{
	const char *given = getenv("PUNCTUAL_SOCKETS_DEVICE");
	struct dirent *entry;
	bool is_found = false;
	DIR *directory;

	if (given)
		return snprintf(device, bytes, "%s", given) < (int)bytes;
	directory = opendir(SYSFS);
	while (directory && !is_found && (entry = readdir(directory))) {
		snprintf(device, bytes, SYSFS "/%s", entry->d_name);
		is_found = attribute(device, "vendor") == 0x1af4 && attribute(device, "device") == 0x1110;
	}
	if (directory)
		closedir(directory);
	return is_found;
}

static void enable(const char *device)
{
	char path[512];
	int fd;

	snprintf(path, sizeof(path), "%s/enable", device);
	fd = open(path, O_WRONLY | O_CLOEXEC);
	if (fd < 0)
		return;
	/* It may be enabled already. */
	if (REAL(write)(fd, "1", 1) < 0)
		errno = 0;
	REAL(close)(fd);
}

/* Exchanges protocol versions. */
static bool check_version(void)
{
	uint32_t version = atomic_load(word_at(VMRPC_VERSION_AT));

	if (atomic_load(word_at(VMRPC_MAGIC_AT)) != VMRPC_MAGIC)
		return false;
	atomic_store(word_at(VMRPC_GUEST_VERSION_AT), VMRPC_VERSION);
	if (vm.registers)
		vm.registers[DOORBELL / 4] = 0;
	if (version == VMRPC_VERSION)
		return true;
	fprintf(stderr, "punctual: the host's server speaks protocol version %u, this library version %u\n",
		version, VMRPC_VERSION);
	return false;
}

bool vmrpc_start(void)
{
	char device[320];
	struct vmrpc_call hello = { .op = VMRPC_HELLO };

	if (!find(device, sizeof(device)))
		return false;
	enable(device);
	vm.memory = map(device, "resource2", VMRPC_BYTES, true);
	if (!vm.memory)
		return false;
	vm.registers = map(device, "resource0", REGISTERS_BYTES, false);
	if (!check_version() || !vmrpc_alive())
		return false;
	vm.submission_head = atomic_load(queue_word(VMRPC_QUEUE_SUBMISSION_HEAD));
	vm.event_tail = atomic_load(queue_word(VMRPC_QUEUE_EVENT_TAIL));
	atomic_store(queue_word(VMRPC_QUEUE_NEED_IRQ), 0);
	/* A kernel module may have left sockets with homes in other queues. */
	for (uint32_t socket = 0; socket < VMRPC_SOCKETS; socket++)
		atomic_store(word_at(VMRPC_HOME_AT + socket * 4), 0);
	return vmrpc_call(&hello) == 0;
}

static void put(uint32_t word, uint32_t value)
{
	atomic_store_explicit(slot_word(word), value, memory_order_relaxed);
}

static void put_request(const struct vmrpc_call *call)
{
	uint32_t words[4] = { 0 };

	put(VMRPC_REQUEST_WANT_EVENT, 0);
	put(VMRPC_REQUEST_OP, call->op);
	put(VMRPC_REQUEST_SOCKET, call->socket);
	put(VMRPC_REQUEST_FLAGS, call->flags);
	put(VMRPC_REQUEST_LENGTH, call->length);
	put(VMRPC_REQUEST_FIRST, call->first);
	put(VMRPC_REQUEST_SECOND, call->second);
	put(VMRPC_REQUEST_OPTIONS, call->options);
	put(VMRPC_REQUEST_LINGER, call->linger);
	put(VMRPC_REQUEST_ADDRESS, call->address.any.sa_family == AF_INET6 ? 6 :
				   call->address.any.sa_family == AF_INET ? 4 : 0);
	put(VMRPC_REQUEST_ADDRESS + 1, ntohs(call->address.v4.sin_port));
	if (call->address.any.sa_family == AF_INET6)
		memcpy(words, &call->address.v6.sin6_addr, sizeof(words));
	else
		words[0] = call->address.v4.sin_addr.s_addr;
	for (int word = 0; word < 4; word++)
		put(VMRPC_REQUEST_ADDRESS + 2 + word, words[word]);
}

static uint32_t get(uint32_t word)
{
	return atomic_load_explicit(slot_word(word), memory_order_relaxed);
}

static void get_response(struct vmrpc_call *call)
{
	uint32_t words[4], family = get(VMRPC_RESPONSE_ADDRESS);

	call->result = get(VMRPC_RESPONSE_RESULT);
	call->length = get(VMRPC_RESPONSE_LENGTH);
	call->flags = get(VMRPC_RESPONSE_FLAGS);
	call->socket = get(VMRPC_RESPONSE_SOCKET);
	memset(&call->address, 0, sizeof(call->address));
	for (int word = 0; word < 4; word++)
		words[word] = get(VMRPC_RESPONSE_ADDRESS + 2 + word);
	if (family == 4 || family == 6) {
		call->address.v4.sin_port = htons(get(VMRPC_RESPONSE_ADDRESS + 1));
		call->address.any.sa_family = family == 6 ? AF_INET6 : AF_INET;
	}
	if (family == 4)
		call->address.v4.sin_addr.s_addr = words[0];
	else if (family == 6)
		memcpy(&call->address.v6.sin6_addr, words, sizeof(words));
	if (call->length > VMRPC_DATA_BYTES || call->result < -4095)
		call->result = -EIO;
}

/* Waits for the response in slot 0, the only slot in use. */
static bool wait_for_response(void)
{
	uint64_t end = now_us() + RESPONSE_LIMIT_US;

	for (;;) {
		for (int spin = 0; spin < SPINS; spin++) {
			if (atomic_load(slot_word(VMRPC_REQUEST_STATE)) == VMRPC_DONE)
				return true;
			__builtin_ia32_pause();
		}
		if (atomic_load(word_at(VMRPC_STATUS_AT)) == VMRPC_STATUS_GONE || now_us() > end)
			return false;
	}
}

static int exchange(struct vmrpc_call *call)
{
	unsigned char *data = vm.memory + VMRPC_DATA_AT;

	if (call->out)
		memcpy(data, call->out, call->length);
	put_request(call);
	atomic_store(slot_word(VMRPC_REQUEST_STATE), VMRPC_SUBMITTED);
	atomic_store(queue_word(VMRPC_QUEUE_SUBMISSIONS + vm.submission_head % VMRPC_QUEUE_SLOTS * 4), 0);
	atomic_store(queue_word(VMRPC_QUEUE_SUBMISSION_HEAD), ++vm.submission_head);
	/* Order: either the host sees the submission before it sleeps, or this side sees host_sleeping. */
	atomic_thread_fence(memory_order_seq_cst);
	if (vm.registers && atomic_load(word_at(VMRPC_HOST_SLEEPING_AT)))
		vm.registers[DOORBELL / 4] = 0;
	if (!wait_for_response()) {
		/* The host may still write into the slot, so the program makes no further call. */
		vm.is_gone = true;
		return -ECONNRESET;
	}
	size_t room = call->in ? call->length : 0;

	get_response(call);
	if (call->result >= 0 && room)
		memcpy(call->in, data, call->length < room ? call->length : room);
	atomic_store(slot_word(VMRPC_REQUEST_STATE), VMRPC_FREE);
	return call->result;
}

int vmrpc_call(struct vmrpc_call *call)
{
	int result;

	if (call->length > VMRPC_DATA_BYTES)
		return -EMSGSIZE;
	pthread_mutex_lock(&vm.lock);
	result = vmrpc_alive() ? exchange(call) : -ECONNRESET;
	pthread_mutex_unlock(&vm.lock);
	return result;
}

/* Counts the events of each socket, for edge-triggered epoll. */
static void drain(void)
{
	uint32_t budget = VMRPC_EVENTS, index;

	while (budget-- && atomic_load(queue_word(VMRPC_QUEUE_EVENT_HEAD)) != vm.event_tail) {
		index = atomic_load(queue_word(VMRPC_QUEUE_EVENTS + vm.event_tail % VMRPC_EVENTS * 4));
		atomic_store(queue_word(VMRPC_QUEUE_EVENT_TAIL), ++vm.event_tail);
		if (index >= VMRPC_SOCKETS + VMRPC_SLOTS) {
			vm.is_gone = true;
			return;
		}
		atomic_fetch_and(word_at(VMRPC_QUEUED_AT + index * 4), ~1u);
		if (index < VMRPC_SOCKETS)
			vm.sequence[index]++;
	}
}

uint32_t vmrpc_ready(uint32_t socket, uint32_t *sequence)
{
	uint32_t ready = 0;

	pthread_mutex_lock(&vm.lock);
	if (vmrpc_alive()) {
		drain();
		ready = atomic_load(word_at(VMRPC_READY_AT + socket * 4));
		if (sequence)
			*sequence = vm.sequence[socket];
	}
	pthread_mutex_unlock(&vm.lock);
	return ready;
}

int vmrpc_take_error(uint32_t socket)
{
	uint32_t error = vmrpc_alive() ? atomic_exchange(word_at(VMRPC_ERROR_AT + socket * 4), 0) : ECONNRESET;

	return error <= 4095 ? error : EIO;
}

bool vmrpc_has_error(uint32_t socket)
{
	return !vmrpc_alive() || atomic_load(word_at(VMRPC_ERROR_AT + socket * 4));
}
