/*
 * Frames of 64 bytes through whatever is between two interfaces: how many a second arrive.
 *
 * frames tap|packet FROM TO TO-ADDRESS SECONDS
 *     tap: writes frames into the TAP FROM, one for each call, and reads them from the TAP TO: as QEMU's
 *     virtio-net does. packet: sends and receives 64 for each call by packet sockets.
 * The sender, and with it the kernel's way to the other end, is on processor 1, the receiver on processor 0.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 64, TOGETHER = 64, TYPE = 0x88b5 };

static atomic_bool stop;
static unsigned char frame[BYTES];
static int packets;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void stay_on(int processor)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(processor, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("sched_setaffinity");
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static int open_tap(const char *name)
{
	struct ifreq request = { .ifr_flags = IFF_TAP | IFF_NO_PI };
	int file = open("/dev/net/tun", O_RDWR | O_NONBLOCK);

	strncpy(request.ifr_name, name, IFNAMSIZ - 1);
	if (file < 0 || ioctl(file, TUNSETIFF, &request))
		die(name);
	return file;
}

static int open_packet(const char *name)
{
	struct sockaddr_ll address = { .sll_family = AF_PACKET, .sll_protocol = htons(TYPE) };
	int file = socket(AF_PACKET, SOCK_RAW, htons(TYPE)), bytes = 8 << 20;

	address.sll_ifindex = if_nametoindex(name);
	if (file < 0 || bind(file, (struct sockaddr *)&address, sizeof(address)))
		die(name);
	setsockopt(file, SOL_SOCKET, SO_RCVBUFFORCE, &bytes, sizeof(bytes));
	return file;
}

static void *send_all(void *argument)
{
	struct iovec part = { frame, BYTES };
	struct mmsghdr messages[TOGETHER] = { 0 };
	int file = *(int *)argument;

	stay_on(1);
	for (int i = 0; i < TOGETHER; i++)
		messages[i].msg_hdr = (struct msghdr){ .msg_iov = &part, .msg_iovlen = 1 };
	while (!stop) {
		if (packets ? sendmmsg(file, messages, TOGETHER, 0) >= 0 : write(file, frame, BYTES) >= 0)
			continue;
		if (errno != ENOBUFS && errno != EAGAIN)
			die("send");
	}
	return NULL;
}

/* How many frames of ours arrived; 0 if none is there. */
static int receive(int file)
{
	static unsigned char buffers[TOGETHER][2048];
	static struct iovec parts[TOGETHER];
	static struct mmsghdr messages[TOGETHER];
	int count, ours = 0;

	if (!packets) {
		count = read(file, buffers[0], sizeof(buffers[0]));
		return count == BYTES && !memcmp(buffers[0], frame, BYTES);
	}
	for (int i = 0; i < TOGETHER; i++) {
		parts[i] = (struct iovec){ buffers[i], sizeof(buffers[i]) };
		messages[i].msg_hdr = (struct msghdr){ .msg_iov = &parts[i], .msg_iovlen = 1 };
	}
	count = recvmmsg(file, messages, TOGETHER, MSG_DONTWAIT, NULL);
	for (int i = 0; i < count; i++)
		ours += messages[i].msg_len == BYTES && !memcmp(buffers[i], frame, BYTES);
	return ours;
}

int main(int count, char **words)
{
	int from, to;
	unsigned char *at = frame;
	long arrived = 0;
	double start, end;
	pthread_t sender;

	if (count != 6 || (strcmp(words[1], "tap") && strcmp(words[1], "packet"))) {
		fprintf(stderr, "usage: frames tap|packet FROM TO TO-ADDRESS SECONDS\n");
		return 2;
	}
	packets = !strcmp(words[1], "packet");
	if (sscanf(words[4], "%hhx:%hhx:%hhx:%hhx:%hhx:%hhx", at, at + 1, at + 2, at + 3, at + 4, at + 5) != 6)
		die(words[4]);
	memcpy(frame + ETH_ALEN, (unsigned char[]){ 2, 0, 0, 0, 0, 1 }, ETH_ALEN);
	frame[12] = TYPE >> 8;
	frame[13] = TYPE & 0xff;
	from = packets ? open_packet(words[2]) : open_tap(words[2]);
	to = packets ? open_packet(words[3]) : open_tap(words[3]);
	stay_on(0);
	if (pthread_create(&sender, NULL, send_all, &from))
		die("pthread_create");
	/* The first tenth is not counted. */
	start = now() + atof(words[5]) / 10;
	while (now() < start)
		receive(to);
	start = now();
	while ((end = now()) < start + atof(words[5]))
		for (int i = 0; i < 64; i++)
			arrived += receive(to);
	stop = 1;
	pthread_join(sender, NULL);
	printf("%.0f\n", arrived / (end - start));
	return 0;
}
