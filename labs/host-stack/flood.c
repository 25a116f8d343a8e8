/*
 * flood send ADDRESS PORT PER_SECOND BYTES   sends datagrams in steps of a millisecond, until it is killed
 * flood count ADDRESS PORT                   receives them, and says each second how many came
 */
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static void send_all(int fd, long per_second, size_t bytes)
{
	static char data[1500];
	struct timespec next;
	long owed = 0;

	clock_gettime(CLOCK_MONOTONIC, &next);
	for (;;) {
		for (owed += per_second; owed >= 1000; owed -= 1000)
			send(fd, data, bytes < sizeof(data) ? bytes : sizeof(data), 0);
		next.tv_nsec += 1000000;
		if (next.tv_nsec >= 1000000000) {
			next.tv_nsec -= 1000000000;
			next.tv_sec++;
		}
		clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &next, NULL);
	}
}

static void count_all(int fd)
{
	char data[2048];
	long came = 0;
	time_t second = time(NULL);

	for (;;) {
		came += recv(fd, data, sizeof(data), 0) >= 0;
		if (time(NULL) != second) {
			printf("%ld\n", came);
			fflush(stdout);
			came = 0;
			second = time(NULL);
		}
	}
}

int main(int count, char **given)
{
	struct sockaddr_in at = { .sin_family = AF_INET };
	int fd = socket(AF_INET, SOCK_DGRAM, 0);

	if (count < 4 || !inet_aton(given[2], &at.sin_addr)) {
		fputs("usage: flood send|count ADDRESS PORT [PER_SECOND BYTES]\n", stderr);
		return 2;
	}
	at.sin_port = htons(atoi(given[3]));
	if (!strcmp(given[1], "count")) {
		if (bind(fd, (void *)&at, sizeof(at)))
			die("bind");
		count_all(fd);
	}
	if (connect(fd, (void *)&at, sizeof(at)))
		die("connect");
	send_all(fd, count > 4 ? atol(given[4]) : 1000, count > 5 ? (size_t)atol(given[5]) : 1000);
}
