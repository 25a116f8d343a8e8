/* The first process of a guest with two vCPUs: loads whose threads wait for each other, one thread a vCPU.
 *
 * It reads lines "LOAD MS THREADS" from the console and answers "done LOAD OPERATIONS OPERATIONS", those of
 * each thread. Guests of up to four vCPUs may have more threads, but not of pipe and interrupt.
 */
#define THREADS_MAX 4
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/membarrier.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static volatile int stop, threads;
static unsigned long operations[THREADS_MAX];
static int pipes[2][2];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static int spinlock, arrived, phase;

static void compute(long self)
{
	static volatile unsigned long results[THREADS_MAX][64];
	unsigned long x = results[self][0];
	int k;

	for (k = 0; k < 10000; k++)
		x = x * 6364136223846793005UL + 1442695040888963407UL;
	results[self][0] = x;
}

static void pipe_ping_pong(long self)
{
	struct pollfd ready = { .fd = pipes[self][0], .events = POLLIN };
	char byte = 0;

	if (self == 0 && write(pipes[1][1], &byte, 1) != 1)
		exit(1);
	while (!poll(&ready, 1, 10))
		if (stop)
			return;
	if (read(pipes[self][0], &byte, 1) != 1 || (self && write(pipes[0][1], &byte, 1) != 1))
		exit(1);
}

static void tlb_shootdown(long self)
{
	char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	page[0] = (char)self;
	munmap(page, 4096);
}

static void membarrier(long self)
{
	(void)self;
	syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

/* Interrupts in one direction: the other vCPU computes. */
static void interrupt(long self)
{
	if (self)
		compute(self);
	else
		membarrier(self);
}

static void exec_self(long self)
{
	pid_t child = vfork();

	(void)self;
	if (child == 0) {
		execl("/init", "init", "child", NULL);
		_exit(1);
	}
	waitpid(child, NULL, 0);
}

static void directory(long self)
{
	char name[32];

	snprintf(name, sizeof(name), "/files/%ld", self);
	close(open(name, O_CREAT | O_WRONLY, 0600));
	unlink(name);
}

static void spin_barrier(long self)
{
	int now = __atomic_load_n(&phase, __ATOMIC_ACQUIRE);

	(void)self;
	if (__atomic_add_fetch(&arrived, 1, __ATOMIC_ACQ_REL) == threads) {
		arrived = 0;
		__atomic_store_n(&phase, now + 1, __ATOMIC_RELEASE);
	}
	while (__atomic_load_n(&phase, __ATOMIC_ACQUIRE) == now && !stop)
		;
}

static void hold(int loops)
{
	volatile int k;

	for (k = 0; k < loops; k++)
		;
}

static void spin_lock(long self)
{
	(void)self;
	while (__atomic_exchange_n(&spinlock, 1, __ATOMIC_ACQUIRE) && !stop)
		;
	hold(100);
	__atomic_store_n(&spinlock, 0, __ATOMIC_RELEASE);
}

/* The same as programs spin that tell the processor. */
static void paused_spin_lock(long self)
{
	(void)self;
	while (__atomic_exchange_n(&spinlock, 1, __ATOMIC_ACQUIRE) && !stop)
		__builtin_ia32_pause();
	hold(100);
	__atomic_store_n(&spinlock, 0, __ATOMIC_RELEASE);
}

static void futex_mutex(long self)
{
	(void)self;
	pthread_mutex_lock(&mutex);
	hold(1000);
	pthread_mutex_unlock(&mutex);
}

/* What those two do while they hold the lock. */
static void hold_spin_lock(long self)
{
	(void)self;
	hold(100);
}

static void hold_mutex(long self)
{
	(void)self;
	hold(1000);
}

static const struct load {
	const char *name;
	void (*once)(long self);
} loads[] = {
	{ "computing", compute }, { "pipe", pipe_ping_pong }, { "tlb", tlb_shootdown },
	{ "membarrier", membarrier }, { "exec", exec_self }, { "directory", directory },
	{ "spin-barrier", spin_barrier }, { "spinlock", spin_lock }, { "mutex", futex_mutex },
	{ "paused-spinlock", paused_spin_lock },
	{ "interrupt", interrupt }, { "hold-spinlock", hold_spin_lock }, { "hold-mutex", hold_mutex },
};

static const struct load *chosen;

static void *work(void *number)
{
	long self = (long)number;
	unsigned long done = 0;

	for (; !stop; done++)
		chosen->once(self);
	operations[self] = done;
	return NULL;
}

static void run(const struct load *load, long ms)
{
	pthread_t ids[THREADS_MAX];
	long k;

	chosen = load;
	stop = spinlock = arrived = 0;
	memset(operations, 0, sizeof(operations));
	if (pipe(pipes[0]) || pipe(pipes[1]))
		exit(1);
	for (k = 0; k < threads; k++) {
		pthread_attr_t attributes;
		cpu_set_t set;

		CPU_ZERO(&set);
		CPU_SET(k, &set);
		pthread_attr_init(&attributes);
		pthread_attr_setaffinity_np(&attributes, sizeof(set), &set);
		if (pthread_create(&ids[k], &attributes, work, (void *)k))
			exit(1);
	}
	usleep(ms * 1000);
	stop = 1;
	for (k = 0; k < threads; k++)
		pthread_join(ids[k], NULL);
	for (k = 0; k < 4; k++)
		close(pipes[k / 2][k % 2]);
	printf("done %s", load->name);
	for (k = 0; k < threads || k < 2; k++)
		printf(" %lu", operations[k]);
	printf("\n");
	fflush(stdout);
}

int main(int argc, char **argv)
{
	char name[32];
	long ms;
	size_t k;

	(void)argv;
	if (argc > 1)
		return 0;
	mkdir("/files", 0700);
	mount("none", "/files", "tmpfs", 0, NULL);
	syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0);
	printf("ready\n");
	fflush(stdout);
	while (scanf("%31s %ld %d", name, &ms, &threads) == 3 && threads <= THREADS_MAX)
		for (k = 0; k < sizeof(loads) / sizeof(*loads); k++)
			if (!strcmp(loads[k].name, name))
				run(&loads[k], ms);
	return 0;
}
