/* Looks like a virtual machine, to `punctual serve`: threads that are called as QEMU's vCPUs work and sleep.
 *
 * exec -a /usr/bin/qemu-system-x86_64 vm -name guest=NAME,debug-threads=on VCPUS WORK_US SLEEP_US [PROCESSOR]
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static long work_us, sleep_us;

static long now_us(void)
{
	struct timespec now;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void *vcpu(void *number)
{
	char name[16];

	snprintf(name, sizeof(name), "CPU %ld/KVM", (long)number);
	pthread_setname_np(pthread_self(), name);
	for (;;) {
		long end = now_us() + work_us;

		while (now_us() < end)
			;
		usleep(sleep_us);
	}
	return NULL;
}

int main(int argc, char **argv)
{
	pthread_t thread;
	cpu_set_t set;
	long k;

	if (argc < 6)
		return 2;
	work_us = atol(argv[4]);
	sleep_us = atol(argv[5]);
	if (argc > 6) {
		CPU_ZERO(&set);
		CPU_SET(atoi(argv[6]), &set);
		sched_setaffinity(0, sizeof(set), &set);
	}
	for (k = 0; k < atol(argv[3]); k++)
		pthread_create(&thread, NULL, vcpu, (void *)k);
	pause();
	return 0;
}
