/* What a program of a unit sees of its enforcement.
 *
 * After 2 s, in which the run begins:
 *
 * usage: observe wakes SECONDS INTERVAL_US   sleeps to absolute times; prints how late it ran
 *        observe stretches SECONDS BUDGET_US  spins; prints how much longer than BUDGET_US it was left to run
 *                                             at a time */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <time.h>

enum { VALUES_MAX = 1 << 16 };
/* In ns: a look or a tick may take a processor for less, a period without budget takes it for longer. */
static const long long gap = 250000;
/* In ns: until a program that a run starts is enforced. */
static const long long warm_up = 2000000000;
static long long values[VALUES_MAX];
static int count;

static long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static int compare(const void *left, const void *right)
{
	long long a = *(const long long *)left, b = *(const long long *)right;

	return (a > b) - (a < b);
}

static void add(long long value)
{
	if (count < VALUES_MAX)
		values[count++] = value;
}

static void wakes(long long end, long long interval)
{
	for (long long next = now_ns() + interval; next < end; next += interval) {
		struct timespec until = { next / 1000000000, next % 1000000000 };
		long long woke;

		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
		woke = now_ns();
		add(woke - next);
		while (next + interval < woke)
			next += interval;
	}
}

static void stretches(long long end, long long budget)
{
	long long began = 0, before = now_ns();

	while (before < end) {
		long long now = now_ns();

		if (now - before > gap) {
			/* The first one began before this program did. */
			if (began)
				add(before - began - budget);
			began = now;
		}
		before = now;
	}
}

static double quantile(double share)
{
	return values[(int)((count - 1) * share)] / 1e3;
}

int main(int arguments, char **words)
{
	long long end, us;

	if (arguments != 4) {
		fprintf(stderr, "usage: observe wakes|stretches SECONDS US\n");
		return 2;
	}
	mlockall(MCL_CURRENT | MCL_FUTURE);
	prctl(PR_SET_TIMERSLACK, 1);
	for (end = now_ns() + warm_up; now_ns() < end;)
		;
	end += (long long)(atof(words[2]) * 1e9);
	us = atoll(words[3]) * 1000;
	if (!strcmp(words[1], "wakes"))
		wakes(end, us);
	else
		stretches(end, us);
	qsort(values, count, sizeof(*values), compare);
	if (count)
		fprintf(stderr, "observed %s: p50 %.1f us, p99 %.1f us, max %.1f us (%d times)\n", words[1],
			quantile(0.5), quantile(0.99), quantile(1), count);
	return 0;
}
