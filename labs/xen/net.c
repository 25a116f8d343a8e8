/*
 * Traffic between guests of Xen over UDP. The first argument is the part that a guest plays; guest ID has the
 * address 10.0.0.ID.
 *
 * net go LEVEL SECONDS LABEL    asks all guests to begin (domain 0)
 * net fifo PRIORITY NAME...     makes the kernel's threads whose names begin so real-time threads (domain 0)
 * net probe PEER                sends a packet to PEER each 10 ms, once asked to, and prints LABEL, packets
 *                               without an answer, and the round trip of each other one in us
 * net echo                      answers them
 * net noise RANK PEER BYTES     once asked to begin with a LEVEL above RANK, sends packets of so many BYTES
 *                               to PEER without rest
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define MS 1000000LL
/* Noise begins at once, probes so much later. They end so much before it. */
#define MARGIN (300 * MS)

enum { ORDERS = 7000, PROBES, NOISE };

struct order
{
    int level, seconds;
    char label[64];
};

static long long now(void)
{
    struct timespec at;

    clock_gettime(CLOCK_MONOTONIC, &at);
    return at.tv_sec * 1000 * MS + at.tv_nsec;
}

static void sleep_until(long long at)
{
    struct timespec when = { at / (1000 * MS), at % (1000 * MS) };

    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &when, NULL);
}

static struct sockaddr_in address(int id, int port)
{
    struct sockaddr_in to = { AF_INET, htons(port), { htonl(0x0a000000 + id) } };

    return to;
}

/* A socket that receives at PORT, or nothing if it is 0. */
static int udp(int port)
{
    struct sockaddr_in any = { AF_INET, htons(port), { 0 } };
    int socket_ = socket(AF_INET, SOCK_DGRAM, 0), yes = 1;

    if ( socket_ < 0 || bind(socket_, (void *)&any, sizeof(any)) ||
         setsockopt(socket_, SOL_SOCKET, SO_BROADCAST, &yes, sizeof(yes)) )
    {
        perror("net");
        exit(1);
    }
    return socket_;
}

/* The bridge knows from then on where this guest is; before, it sends what is for it to all. */
static void announce(void)
{
    struct sockaddr_in all = address(255, NOISE);
    int link = udp(0);

    sendto(link, "", 1, 0, (void *)&all, sizeof(all));
    close(link);
}

static void wait_for_order(int orders, struct order *order)
{
    while ( recv(orders, order, sizeof(*order), 0) != sizeof(*order) )
        ;
}

static void probe(int peer)
{
    static float trips[100000];
    struct sockaddr_in to = address(peer, PROBES);
    struct timeval most = { 2, 0 };
    int orders = udp(ORDERS), link = udp(PROBES), count, lost, i;
    struct order order;
    long long at, end, sent, answer;

    setsockopt(link, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof(most));
    for ( ; ; )
    {
        wait_for_order(orders, &order);
        at = now() + MARGIN;
        end = at + order.seconds * 1000 * MS;
        for ( count = lost = 0; at < end && count < 100000; at += 10 * MS )
        {
            sleep_until(at);
            sent = now();
            sendto(link, &sent, sizeof(sent), 0, (void *)&to, sizeof(to));
            do
                if ( recv(link, &answer, sizeof(answer), 0) < 0 )
                    break;
            while ( answer != sent );
            if ( answer == sent )
                trips[count++] = (now() - sent) / 1000.0;
            else
                lost++;
            while ( at + 10 * MS < now() )
                at += 10 * MS;
        }
        sleep_until(end + 2 * MARGIN);
        printf("TRIPS %s %d", order.label, lost);
        for ( i = 0; i < count; i++ )
            printf(" %.1f", trips[i]);
        puts("");
        fflush(stdout);
    }
}

static void echo(void)
{
    int link = udp(PROBES);
    struct sockaddr_in from;
    socklen_t size;
    long long stamp;

    for ( ; ; )
    {
        size = sizeof(from);
        if ( recvfrom(link, &stamp, sizeof(stamp), 0, (void *)&from, &size) == sizeof(stamp) )
            sendto(link, &stamp, sizeof(stamp), 0, (void *)&from, size);
    }
}

static void noise(int rank, int peer, int bytes)
{
    static char packet[65536];
    struct sockaddr_in to = address(peer, NOISE);
    int orders = udp(ORDERS), link = udp(NOISE);
    struct order order;
    long long end;

    for ( ; ; )
    {
        wait_for_order(orders, &order);
        end = now() + order.seconds * 1000 * MS + 2 * MARGIN;
        while ( order.level > rank && now() < end )
            sendto(link, packet, bytes, 0, (void *)&to, sizeof(to));
    }
}

static int fifo(int priority, char **names)
{
    struct sched_param param = { priority };
    struct dirent *process;
    char path[300], name[64];
    int found = 0;
    FILE *file;
    DIR *all;

    for ( ; *names; names++ )
    {
        all = opendir("/proc");
        while ( all && (process = readdir(all)) )
        {
            snprintf(path, sizeof(path), "/proc/%s/comm", process->d_name);
            file = atoi(process->d_name) ? fopen(path, "r") : NULL;
            if ( file && fgets(name, sizeof(name), file) && !strncmp(name, *names, strlen(*names)) )
                found += !sched_setscheduler(atoi(process->d_name), SCHED_FIFO, &param);
            if ( file )
                fclose(file);
        }
        closedir(all);
    }
    return !found;
}

int main(int count, char **words)
{
    struct sockaddr_in all = address(255, ORDERS);
    struct order order = { 0 };

    if ( count == 5 && !strcmp(words[1], "go") )
    {
        order.level = atoi(words[2]);
        order.seconds = atoi(words[3]);
        strncpy(order.label, words[4], sizeof(order.label) - 1);
        return sendto(udp(0), &order, sizeof(order), 0, (void *)&all, sizeof(all)) < 0;
    }
    if ( count > 3 && !strcmp(words[1], "fifo") )
        return fifo(atoi(words[2]), words + 3);
    announce();
    puts("READY");
    fflush(stdout);
    if ( count == 3 && !strcmp(words[1], "probe") )
        probe(atoi(words[2]));
    else if ( count == 2 && !strcmp(words[1], "echo") )
        echo();
    else if ( count == 5 && !strcmp(words[1], "noise") )
        noise(atoi(words[2]), atoi(words[3]), atoi(words[4]));
    return 2;
}
