/*
 * Round trips of 64 bytes, over UDP and TCP.
 *
 * round-trips serve ADDRESS PORT     echoes datagrams, and one connection at a time
 * round-trips ask COUNT GAP_US NAME:udp|tcp:ADDRESS:PORT...
 *     asks them in turn, with a gap between questions, and prints what it took in microseconds
 */
#include <arpa/inet.h>
#include <errno.h>
#include <math.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 64, TARGETS_MAX = 16, UNCOUNTED = 50 };

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static struct sockaddr_in at(const char *address, const char *port)
{
	struct sockaddr_in result = { .sin_family = AF_INET, .sin_port = htons(atoi(port)) };

	if (!inet_aton(address, &result.sin_addr))
		die(address);
	return result;
}

static int bound(int type, struct sockaddr_in address)
{
	int on = 1, fd = socket(AF_INET, type, 0);

	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (fd < 0 || bind(fd, (void *)&address, sizeof(address)))
		die("bind");
	return fd;
}

static void serve(struct sockaddr_in address)
{
	int datagrams = bound(SOCK_DGRAM, address), listener = bound(SOCK_STREAM, address), connection = -1, on = 1;

	if (listen(listener, 8))
		die("listen");
	puts("serving");
	fflush(stdout);
	for (;;) {
		struct pollfd polled[] = { { datagrams, POLLIN, 0 }, { listener, POLLIN, 0 }, { connection, POLLIN, 0 } };
		struct sockaddr_in from;
		socklen_t length = sizeof(from);
		char data[2048];
		ssize_t got;

		if (poll(polled, 3, -1) < 0)
			die("poll");
		if (polled[0].revents) {
			got = recvfrom(datagrams, data, sizeof(data), 0, (void *)&from, &length);
			if (got >= 0 && sendto(datagrams, data, got, 0, (void *)&from, length) != got)
				perror("sendto");
		}
		if (polled[1].revents) {
			if (connection >= 0)
				close(connection);
			connection = accept(listener, NULL, NULL);
			setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
		} else if (polled[2].revents) {
			got = recv(connection, data, sizeof(data), 0);
			if (got <= 0 || send(connection, data, got, 0) != got) {
				close(connection);
				connection = -1;
			}
		}
	}
}

struct target {
	char *name;
	int fd;
	double *taken;
};

static struct target target(char *text, int count)
{
	char *name = strtok(text, ":"), *protocol = strtok(NULL, ":"), *address = strtok(NULL, ":");
	int is_tcp = protocol && !strcmp(protocol, "tcp"), on = 1;
	struct timeval limit = { .tv_sec = 5 };
	struct sockaddr_in to = at(address ? address : "", strtok(NULL, ":"));
	int fd = socket(AF_INET, is_tcp ? SOCK_STREAM : SOCK_DGRAM, 0);
	struct target result = { name, fd, calloc(count, sizeof(double)) };

	if (connect(result.fd, (void *)&to, sizeof(to)))
		die(name);
	setsockopt(result.fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
	if (is_tcp)
		setsockopt(result.fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
	return result;
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec * 1e6 + time.tv_nsec / 1e3;
}

static double ask(struct target *target)
{
	char data[BYTES] = "question", answer[BYTES];
	double start = now();

	if (send(target->fd, data, BYTES, 0) != BYTES || recv(target->fd, answer, BYTES, MSG_WAITALL) != BYTES)
		die(target->name);
	return now() - start;
}

static int compare(const void *a, const void *b)
{
	double difference = *(const double *)a - *(const double *)b;

	return (difference > 0) - (difference < 0);
}

static void report(struct target *target, int count)
{
	double sum = 0, squares = 0;

	for (int i = 0; i < count; i++)
		sum += target->taken[i];
	for (int i = 0; i < count; i++)
		squares += pow(target->taken[i] - sum / count, 2);
	qsort(target->taken, count, sizeof(double), compare);
	printf("%-14s %6d %9.1f %9.1f %9.1f %9.1f %9.1f\n", target->name, count, sum / count, sqrt(squares / count),
	       target->taken[count / 2], target->taken[count * 99 / 100], target->taken[count - 1]);
}

int main(int argc, char **argv)
{
	struct target targets[TARGETS_MAX];
	int count, targets_count = argc - 4;
	struct timespec gap = { 0 };

	if (argc == 4 && !strcmp(argv[1], "serve"))
		serve(at(argv[2], argv[3]));
	if (argc < 5 || strcmp(argv[1], "ask") || targets_count > TARGETS_MAX) {
		fputs("usage: round-trips serve ADDRESS PORT | ask COUNT GAP_US NAME:udp|tcp:ADDRESS:PORT...\n", stderr);
		return 2;
	}
	count = atoi(argv[2]);
	gap.tv_nsec = atol(argv[3]) * 1000;
	for (int i = 0; i < targets_count; i++)
		targets[i] = target(argv[4 + i], count);
	for (int round = -UNCOUNTED; round < count; round++) {
		for (int i = 0; i < targets_count; i++) {
			double taken = ask(&targets[i]);

			if (round >= 0)
				targets[i].taken[round] = taken;
			nanosleep(&gap, NULL);
		}
	}
	puts("path            count      mean deviation    median       p99       max   (us)");
	for (int i = 0; i < targets_count; i++)
		report(&targets[i], count);
	return 0;
}
