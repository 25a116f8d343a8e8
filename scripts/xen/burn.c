/* The work of a guest that never rests; its first line says that it has begun. */
#include <stdio.h>

int main(void)
{
    volatile unsigned long count = 0;

    puts("BURNS");
    fflush(stdout);
    for ( ; ; )
        count++;
}
