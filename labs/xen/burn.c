/*
 * The work of a guest, on each of its processors: it never rests, or, with `rest_us` on its kernel's command
 * line, for so long after every 100 us or so of work. Its first line says that it has begun.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(void)
{
    const char *rest = getenv("rest_us");
    volatile unsigned long count = 0;
    long more;

    puts("BURNS");
    fflush(stdout);
    for ( more = sysconf(_SC_NPROCESSORS_ONLN) - 1; more > 0 && fork() != 0; more-- )
        ;
    for ( ; ; )
    {
        count++;
        if ( rest && count % 10000 == 0 )
            usleep(atoi(rest));
    }
}
