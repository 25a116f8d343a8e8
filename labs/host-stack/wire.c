/*
 * The world beyond two e1000e cards, and the servers behind them, in one process of the same machine.
 *
 * wire PCI_URGENT PCI_FLOOD CPU_WORLD CPU_SERVER CPU_SINK COUNT GAP_US PER_SECOND SEED
 *     asks the server of 10.78.0.2:7000 COUNT times, GAP_US/2 to GAP_US*3/2 apart, while PER_SECOND
 *     datagrams of 1000 bytes go to 10.79.0.2:9000. Prints in ns: questions lost, mean, deviation, median,
 *     p99 and maximum of the time from the question on the wire until the answer is sent; then how many
 *     datagrams went to the sink, how many it read, and how many tenths of a percent of CPU_SINK were busy.
 *
 * The PCI devices are e1000e cards without driver, each wired to a card of the kernel. Their transmit rings
 * are filled once: a burst of any number of frames costs the sender one write to the ring's tail. The world
 * runs on CPU_WORLD; each server has a processor, which may be the same one.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { RING = 256, PAGE = 4096, REQUEST = 64, BULK = 1000, HEADERS = 42, COUNT_MAX = 100000 };
/* The first questions meet cold paths and are not counted. */
enum { FLOOD_NS = 250000, UNCOUNTED = 20 };
/* Registers of the 82574 (Intel 317694, chapter 10), by their names there. */
enum { CTRL = 0x0, IMC = 0xd8, RCTL = 0x100, TCTL = 0x400, RDBAL = 0x2800, RDLEN = 0x2808, RDH = 0x2810,
	RDT = 0x2818, TDBAL = 0x3800, TDLEN = 0x3808, TDH = 0x3810, TDT = 0x3818 };
enum { CTRL_SLU = 1 << 6, RCTL_EN = 1 << 1, RCTL_UPE = 1 << 3, RCTL_BAM = 1 << 15, TCTL_EN = 1 << 1,
	TCTL_PSP = 1 << 3, TX_EOP = 1 << 24, TX_IFCS = 1 << 25 };

struct card {
	volatile uint32_t *registers;
	volatile uint64_t *receive;
	unsigned char *frame;
	unsigned int tail;
};

static int64_t asked[COUNT_MAX], answered[COUNT_MAX];
static volatile long sunk;
static int cpu_server, cpu_sink;

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static int64_t now(void)
{
	struct timespec at;

	clock_gettime(CLOCK_MONOTONIC, &at);
	return at.tv_sec * 1000000000LL + at.tv_nsec;
}

static void be(int cpu, int priority)
{
	struct sched_param param = { .sched_priority = priority };
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		die("affinity");
	if (sched_setscheduler(0, priority ? SCHED_FIFO : SCHED_OTHER, &param))
		die("priority");
}

/* A page of memory, and its address for a device. */
static void *page(uint64_t *address)
{
	void *memory = mmap(NULL, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_LOCKED, -1, 0);
	int fd = open("/proc/self/pagemap", O_RDONLY);
	uint64_t entry;

	if (memory == MAP_FAILED)
		die("a page");
	memset(memory, 0, PAGE);
	if (fd < 0 || pread(fd, &entry, 8, (uintptr_t)memory / PAGE * 8) != 8 || !(entry & ((1ULL << 55) - 1)))
		die("pagemap");
	close(fd);
	*address = (entry & ((1ULL << 55) - 1)) * PAGE;
	return memory;
}

static uint16_t checksum(const unsigned char *data, int length)
{
	uint32_t sum = 0;

	for (int i = 0; i < length; i += 2)
		sum += data[i] << 8 | data[i + 1];
	sum = (sum & 0xffff) + (sum >> 16);
	return ~(sum + (sum >> 16));
}

/* Ethernet, IPv4 and UDP for a datagram from .1 to .2 of 10.NETWORK.0; the UDP checksum is left out. */
static int fill(unsigned char *frame, int network, int port, int bytes)
{
	int ip = bytes + 28, udp = bytes + 8;
	unsigned char head[HEADERS] = {
		0x52, 0x54, 0, 0x18, 0, network - 77, 0x52, 0x54, 0, 0x18, 1, network - 77, 8, 0,
		0x45, 0, ip >> 8, ip, 0, 0, 0x40, 0, 64, 17, 0, 0, 10, network, 0, 1, 10, network, 0, 2,
		0x1b, 0x58, port >> 8, port, udp >> 8, udp, 0, 0,
	};
	uint16_t sum = checksum(head + 14, 20);

	head[24] = sum >> 8;
	head[25] = sum;
	memcpy(frame, head, HEADERS);
	return HEADERS + bytes;
}

static struct card start(const char *pci, int network, int port, int bytes)
{
	uint64_t ring, frame, receive, received;
	struct card card = { 0 };
	volatile uint64_t *transmit = page(&ring);
	char path[128];
	uint16_t command = 0x106; /* memory, bus master, SERR */
	int fd, length;

	card.frame = page(&frame);
	card.receive = page(&receive);
	page(&received);
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/config", pci);
	fd = open(path, O_RDWR);
	if (fd < 0 || pwrite(fd, &command, 2, 4) != 2)
		die(path);
	close(fd);
	snprintf(path, sizeof(path), "/sys/bus/pci/devices/%s/resource0", pci);
	fd = open(path, O_RDWR | O_SYNC);
	card.registers = mmap(NULL, 0x20000, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (fd < 0 || card.registers == MAP_FAILED)
		die(path);
	length = fill(card.frame, network, port, bytes);
	for (int i = 0; i < RING; i++) {
		transmit[2 * i] = frame;
		transmit[2 * i + 1] = length | TX_EOP | TX_IFCS;
		card.receive[2 * i] = received;
	}
	card.registers[IMC / 4] = ~0u;
	card.registers[CTRL / 4] |= CTRL_SLU;
	const uint32_t set[][2] = {
		{ TDBAL, ring }, { TDBAL + 4, ring >> 32 }, { TDLEN, RING * 16 }, { TDH, 0 }, { TDT, 0 },
		{ RDBAL, receive }, { RDBAL + 4, receive >> 32 }, { RDLEN, RING * 16 }, { RDH, 0 }, { RDT, RING - 1 },
		{ TCTL, TCTL_EN | TCTL_PSP }, { RCTL, RCTL_EN | RCTL_UPE | RCTL_BAM },
	};
	for (unsigned int i = 0; i < sizeof(set) / sizeof(*set); i++)
		card.registers[set[i][0] / 4] = set[i][1];
	return card;
}

static void transmit(struct card *card, unsigned int frames)
{
	card->tail = (card->tail + frames) % RING;
	card->registers[TDT / 4] = card->tail;
}

static int udp(const char *address, int port)
{
	struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = htons(port) };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	inet_aton(address, &at.sin_addr);
	if (fd < 0 || bind(fd, (void *)&at, sizeof(at)))
		die("bind");
	return fd;
}

static void *serve(void *unused)
{
	int fd = udp("10.78.0.2", 7000);
	char data[REQUEST];

	be(cpu_server, 47);
	for (;;) {
		struct sockaddr_in from;
		socklen_t length = sizeof(from);
		uint32_t number;
		ssize_t got = recvfrom(fd, data, sizeof(data), 0, (void *)&from, &length);

		if (got < 4 || sendto(fd, data, got, 0, (void *)&from, length) != got)
			die("an answer");
		memcpy(&number, data, 4);
		answered[number % COUNT_MAX] = now();
	}
	return unused;
}

static void *sink(void *unused)
{
	int fd = udp("10.79.0.2", 9000);
	char data[BULK];

	be(cpu_sink, 0);
	while (recv(fd, data, sizeof(data), 0) >= 0)
		sunk++;
	return unused;
}

static void sleep_until(int64_t at)
{
	struct timespec until = { at / 1000000000, at % 1000000000 };

	clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, NULL);
}

/* Ticks that the sink's processor was idle. The other columns are samples of the tick, which floods evade. */
static long idle_ticks(void)
{
	FILE *stat = fopen("/proc/stat", "r");
	long result = 0;
	char line[512];

	while (stat && fgets(line, sizeof(line), stat)) {
		long idle, wait;
		int cpu;

		if (sscanf(line, "cpu%d %*d %*d %*d %ld %ld", &cpu, &idle, &wait) == 3 && cpu == cpu_sink)
			result = idle + wait;
	}
	if (stat)
		fclose(stat);
	return result;
}

/* How many datagrams went to the sink. */
static int64_t ask(struct card *urgent, struct card *flood, int count, int64_t gap, int64_t per_second)
{
	int64_t begin = now() + 1000000, at = begin + 20000000, burst = begin, sent = 0;

	for (uint32_t number = 0; number < (uint32_t)count;) {
		int64_t next = burst < at ? burst : at;

		sleep_until(next);
		if (burst <= at) {
			int64_t due = (burst - begin) * per_second / 1000000000 - sent;

			for (sent += due; due > 0; due -= RING - 1)
				transmit(flood, due < RING ? due : RING - 1);
			burst += FLOOD_NS;
			continue;
		}
		memcpy(urgent->frame + HEADERS, &number, 4);
		asked[number++] = now();
		transmit(urgent, 1);
		urgent->registers[RDT / 4] = (urgent->registers[RDH / 4] + RING - 1) % RING;
		at += gap / 2 + random() % gap;
	}
	sleep_until(at + 20000000);
	return sent;
}

static int order(const void *one, const void *other)
{
	int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;

	return (a > b) - (a < b);
}

static void report(int count, int64_t sent, long sunk_before, double idle)
{
	static int64_t took[COUNT_MAX];
	double mean = 0, squares = 0;
	int got = 0;

	for (int i = UNCOUNTED; i < count; i++)
		if (answered[i])
			took[got++] = answered[i] - asked[i];
	qsort(took, got, sizeof(*took), order);
	for (int i = 0; i < got; i++)
		mean += (double)took[i] / got;
	for (int i = 0; i < got; i++)
		squares += (took[i] - mean) * (took[i] - mean) / got;
	if (got)
		printf("lost %d mean %.0f deviation %.0f median %ld p99 %ld max %ld sent %ld sunk %ld busy %ld\n",
		       count - UNCOUNTED - got, mean, sqrt(squares), (long)took[got / 2], (long)took[(got * 99 - 1) / 100],
		       (long)took[got - 1], (long)sent, sunk - sunk_before, 1000 - lround(1000 * idle));
	else
		printf("lost %d\n", count - UNCOUNTED);
}

int main(int words, char **word)
{
	long idle_before, sunk_before;
	struct card urgent, flood;
	pthread_t thread;
	int64_t begin, sent;
	double idle;
	int count;

	if (words != 10) {
		fputs("usage: wire PCI_URGENT PCI_FLOOD CPU_WORLD CPU_SERVER CPU_SINK COUNT GAP_US PER_SECOND SEED\n",
		      stderr);
		return 2;
	}
	cpu_server = atoi(word[4]);
	cpu_sink = atoi(word[5]);
	count = UNCOUNTED + atoi(word[6]);
	if (count < UNCOUNTED || count > COUNT_MAX)
		die("COUNT");
	srandom(atoi(word[9]));
	mlockall(MCL_CURRENT | MCL_FUTURE);
	urgent = start(word[1], 78, 7000, REQUEST);
	flood = start(word[2], 79, 9000, BULK);
	if (pthread_create(&thread, NULL, serve, NULL) || pthread_create(&thread, NULL, sink, NULL))
		die("a thread");
	be(atoi(word[3]), 99);
	sleep_until(now() + 300000000);
	idle_before = idle_ticks();
	sunk_before = sunk;
	begin = now();
	sent = ask(&urgent, &flood, count, atol(word[7]) * 1000, atol(word[8]));
	idle = (idle_ticks() - idle_before) * (1e9 / sysconf(_SC_CLK_TCK)) / (now() - begin);
	report(count, sent, sunk_before, idle);
	return 0;
}
