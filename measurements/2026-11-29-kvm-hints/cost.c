/* What one look at the counters of a VM costs: cost DEBUGFS VCPUS LOOKS [COUNTER].
 *
 * It makes a VM of its own, which never runs, and reads its eight counters as the service does
 * (crates/punctual-linux/src/os/kvm.rs); or COUNTER eight times, for a kernel that is locked down and shows
 * only those that nobody may write (blocking). */
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/kvm.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <time.h>
#include <unistd.h>

static const char *const counters[] = {
	"directed_yield_attempted", "directed_yield_successful", "preemption_reported", "preemption_other",
	"halt_exits", "halt_attempted_poll", "halt_successful_poll", "halt_wait_ns",
};

int main(int argc, char **argv)
{
	int kvm = open("/dev/kvm", O_RDWR), vm = ioctl(kvm, KVM_CREATE_VM, 0), directory, k, n, looks;
	struct timespec from, until;
	char path[256], text[32];

	if (argc < 4 || vm < 0)
		return 1;
	for (k = 0; k < atoi(argv[2]); k++)
		if (ioctl(vm, KVM_CREATE_VCPU, k) < 0)
			return 2;
	snprintf(path, sizeof(path), "%s/kvm/%d-%d", argv[1], getpid(), vm);
	directory = open(path, O_PATH | O_DIRECTORY);
	if (directory < 0)
		return 3;
	looks = atoi(argv[3]);
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &from);
	for (n = 0; n < looks; n++) {
		for (k = 0; k < 8; k++) {
			const char *name = argc > 4 ? argv[4] : counters[k];
			int file = openat(directory, name, O_RDONLY | O_NONBLOCK | O_CLOEXEC);

			if (file < 0 || read(file, text, sizeof(text)) <= 0)
				return 4;
			close(file);
		}
	}
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &until);
	printf("%s vCPUs: %.1f us of processor time a look\n", argv[2],
	       ((until.tv_sec - from.tv_sec) * 1e9 + until.tv_nsec - from.tv_nsec) / 1e3 / looks);
	return 0;
}
