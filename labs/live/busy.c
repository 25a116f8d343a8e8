/* How long an interrupt from one processor to another takes: membarrier(2) interrupts each processor on which
 * a thread of the process runs, and returns when all have answered. Here one thread spins on the second
 * processor, so the first waits for that one. */
#define _GNU_SOURCE
#include <linux/membarrier.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { TIMES = 3000 };

static atomic_bool stop;
static int processors[2];

static void bind_to(int processor)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(processor, &set);
    if (sched_setaffinity(0, sizeof(set), &set)) {
        perror("sched_setaffinity");
        exit(1);
    }
}

static void *spin(void *unused)
{
    bind_to(processors[1]);
    while (!atomic_load_explicit(&stop, memory_order_relaxed))
        ;
    return unused;
}

static long now_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000L + now.tv_nsec;
}

static int compare(const void *left, const void *right)
{
    long a = *(const long *)left, b = *(const long *)right;

    return (a > b) - (a < b);
}

int main(int count, char **words)
{
    static long took_ns[TIMES];
    pthread_t spinner;
    int late = 0;

    if (count != 3) {
        fprintf(stderr, "usage: busy PROCESSOR BUSY_PROCESSOR\n");
        return 2;
    }
    for (int i = 0; i < 2; i++)
        processors[i] = atoi(words[1 + i]);
    bind_to(processors[0]);
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0)) {
        perror("membarrier");
        return 1;
    }
    if (pthread_create(&spinner, NULL, spin, NULL))
        return 1;
    usleep(20000);
    for (int i = 0; i < TIMES; i++) {
        long began = now_ns();

        syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
        took_ns[i] = now_ns() - began;
        late += took_ns[i] > 500000;
        usleep(700 + i % 600);
    }
    atomic_store(&stop, 1);
    pthread_join(spinner, NULL);
    qsort(took_ns, TIMES, sizeof(*took_ns), compare);
    printf("processor %d to busy processor %d: p50 %.1f, p99 %.1f, most %.1f us; above 500 us: %d of %d\n",
           processors[0], processors[1], took_ns[TIMES / 2] / 1e3, took_ns[TIMES * 99 / 100] / 1e3,
           took_ns[TIMES - 1] / 1e3, late, TIMES);
    return 0;
}
