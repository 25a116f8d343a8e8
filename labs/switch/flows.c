/*
 * Flows between three guests: sends frames with numbers to the two others and judges those that come.
 *
 * flows INTERFACE OWN LIFE
 *     OWN is the guest's number, from 1; LIFE is greater each time the guest is started. Prints four times a
 *     second for each sender: its name and life, the first and the last number of its frames that came, how
 *     many came. A frame that came before, that a later one overtook, or that has other bytes is `wrong`.
 */
#include <arpa/inet.h>
#include <linux/if_ether.h>
#include <linux/if_packet.h>
#include <net/if.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

enum { GUESTS = 3, TOGETHER = 4, TYPE = 0x88b5, LEAST = 60, MOST = 1514, PRINT_MS = 250 };

struct frame {
	unsigned char to[ETH_ALEN], from[ETH_ALEN], type[2];
	uint8_t life[4], number[8];
	unsigned char rest[MOST - 26];
};
struct flow {
	uint32_t life;
	uint64_t sent, first, last, count;
};

static struct flow flows[GUESTS + 1];

static void address(unsigned char *at, int guest)
{
	memcpy(at, (unsigned char[]){ 0x52, 0x54, 0, 0x10, 0, guest }, ETH_ALEN);
}

static int bytes_of(uint64_t number)
{
	return LEAST + number * 37 % (MOST - LEAST + 1);
}

static void make(struct frame *frame, int from, int to, uint32_t life, uint64_t number)
{
	address(frame->to, to);
	address(frame->from, from);
	memcpy(frame->type, (unsigned char[]){ TYPE >> 8, TYPE & 0xff }, 2);
	memcpy(frame->life, &life, 4);
	memcpy(frame->number, &number, 8);
	memset(frame->rest, number, sizeof(frame->rest));
}

static void judge(const struct frame *frame, int bytes, int own)
{
	int from = frame->from[ETH_ALEN - 1];
	struct frame wanted;
	struct flow *flow;
	uint64_t number;
	uint32_t life;

	/* While nobody has an address, everybody gets its frames. */
	if (frame->to[ETH_ALEN - 1] != own)
		return;
	memcpy(&life, frame->life, 4);
	memcpy(&number, frame->number, 8);
	make(&wanted, from, own, life, number);
	if (from < 1 || from > GUESTS || bytes != bytes_of(number) || memcmp(frame, &wanted, bytes)) {
		printf("LAB wrong bytes from %d\n", from);
		return;
	}
	flow = &flows[from];
	if (life < flow->life || (life == flow->life && number <= flow->last))
		printf("LAB wrong order from %c: life %u number %lu after life %u number %lu\n", 'a' + from - 1,
		       life, number, flow->life, flow->last);
	if (life != flow->life) {
		flow->life = life;
		flow->first = number;
		flow->count = 0;
	}
	flow->last = number;
	flow->count++;
}

static long now_ms(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

int main(int count, char **words)
{
	struct sockaddr_ll address = { .sll_family = AF_PACKET, .sll_protocol = htons(TYPE) };
	int own, life, bytes, file = socket(AF_PACKET, SOCK_RAW, htons(TYPE));
	struct pollfd readable = { .fd = file, .events = POLLIN };
	long print = 0;
	struct frame frame;

	if (count != 4 || file < 0)
		return 2;
	address.sll_ifindex = if_nametoindex(words[1]);
	own = atoi(words[2]);
	life = atoi(words[3]);
	if (bind(file, (struct sockaddr *)&address, sizeof(address)))
		return 2;
	setvbuf(stdout, NULL, _IOLBF, 0);
	for (;;) {
		for (int to = 1; to <= GUESTS; to++) {
			for (int i = 0; to != own && i < TOGETHER; i++) {
				make(&frame, own, to, life, flows[to].sent + 1);
				bytes = bytes_of(flows[to].sent + 1);
				if (send(file, &frame, bytes, MSG_DONTWAIT) == bytes)
					flows[to].sent++;
			}
		}
		poll(&readable, 1, 1);
		while ((bytes = recv(file, &frame, sizeof(frame), MSG_DONTWAIT)) > 0)
			judge(&frame, bytes, own);
		if (now_ms() < print)
			continue;
		print = now_ms() + PRINT_MS;
		for (int from = 1; from <= GUESTS; from++)
			if (flows[from].count)
				printf("LAB flow %c %u %lu %lu %lu\n", 'a' + from - 1, flows[from].life,
				       flows[from].first, flows[from].last, flows[from].count);
	}
}
