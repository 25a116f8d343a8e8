// A VMM with a big lock: its vCPU thread spins, two thirds of the time with the lock held; its main thread
// takes the lock every 5 ms, and at the end of its standard input prints the longest wait for it in us.
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static long now_us(clockid_t clock)
{
	struct timespec time;

	clock_gettime(clock, &time);
	return time.tv_sec * 1000000L + time.tv_nsec / 1000;
}

static void spin(long us)
{
	long end = now_us(CLOCK_THREAD_CPUTIME_ID) + us;

	while (now_us(CLOCK_THREAD_CPUTIME_ID) < end)
		;
}

static void *vcpu(void *unused)
{
	prctl(PR_SET_NAME, "CPU 0/KVM");
	printf("%d\n", gettid());
	fflush(stdout);
	for (;;) {
		pthread_mutex_lock(&lock);
		spin(600);
		pthread_mutex_unlock(&lock);
		spin(300);
	}
	return unused;
}

int main(void)
{
	struct pollfd end = { .fd = 0, .events = POLLIN };
	pthread_t thread;
	long longest = 0;

	if (pthread_create(&thread, NULL, vcpu, NULL))
		return 1;
	while (!poll(&end, 1, 5)) {
		long began = now_us(CLOCK_MONOTONIC), took;

		pthread_mutex_lock(&lock);
		pthread_mutex_unlock(&lock);
		took = now_us(CLOCK_MONOTONIC) - began;
		if (took > longest)
			longest = took;
	}
	printf("%ld\n", longest);
	return 0;
}
