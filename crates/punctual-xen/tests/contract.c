/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The static library as C sees it, without an operating system below it: what the header says is what the
 * library does. scripts/check-xen-lib.sh builds and runs it.
 */
#include <setjmp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../include/punctual_op.h"

/* Where src/op.rs expects them. */
_Static_assert(offsetof(struct punctual_op, params) == 24, "params");
_Static_assert(offsetof(struct punctual_op, params.weight) == 56, "weight");
_Static_assert(offsetof(struct punctual_op, params.affinity) == 72, "affinity");
_Static_assert(offsetof(struct punctual_op, account) == 144, "account");
_Static_assert(offsetof(struct punctual_op, policy) == 176, "policy");
_Static_assert(offsetof(struct punctual_op, now_ns) == 944, "now");
_Static_assert(sizeof(struct punctual_op) == 952, "size");

/* As a hypervisor has them. */
__asm__(".globl __x86_indirect_thunk_r11\n__x86_indirect_thunk_r11: endbr64; jmp *%r11\n"
        ".globl __x86_return_thunk\n__x86_return_thunk: endbr64; ret\n");

static jmp_buf way_out;
static struct punctual_text last_words;

void punctual_panicked(const struct punctual_text *why)
{
    last_words = *why;
    longjmp(way_out, 1);
}

#define CHECK(holds) do { \
    if ( !(holds) ) { \
        fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #holds); \
        exit(1); \
    } \
} while ( 0 )

/* How much stack calls take: it is painted before, and looked at after them. */
static size_t stack_decision, stack_most;
static uintptr_t stack_end;

static __attribute__((__noinline__)) void paint(void)
{
    volatile unsigned char area[16384];

    stack_end = (uintptr_t)area + sizeof(area);
    for ( size_t i = 0; i < sizeof(area); i++ )
        area[i] = 0xa5;
}

static __attribute__((__noinline__)) void look(size_t *most)
{
    uintptr_t at = stack_end - 16384;

    while ( at < stack_end && *(const volatile unsigned char *)at == 0xa5 )
        at++;
    if ( stack_end - at > *most )
        *most = stack_end - at;
}

#define MEASURED(most, call) ({ \
    __typeof__(call) result_; \
    paint(); \
    result_ = (call); \
    look(&(most)); \
    result_; \
})

static struct punctual_text text(const char *of)
{
    struct punctual_text made = { "" };

    strncpy(made.bytes, of, sizeof(made.bytes) - 1);
    return made;
}

static struct punctual_params server(uint64_t budget_ns, uint64_t period_ns)
{
    struct punctual_params params = { .given = PUNCTUAL_BUDGET | PUNCTUAL_PERIOD | PUNCTUAL_PRIORITY |
                                               PUNCTUAL_EXTRATIME | PUNCTUAL_AFFINITY };

    params.budget_ns = budget_ns;
    params.period_ns = period_ns;
    params.priority = period_ns / 1000;
    params.affinity.words[0] = 1;
    return params;
}

/* Two units that never rest, of one VM or of two, for a second on one processor; what each ran, in ns. */
static void share(struct punctual_pool *pool, bool one_vm, uint64_t ran_ns[2])
{
    struct punctual_params params[2] = { server(4000000, 10000000), server(3000000, 10000000) };
    struct punctual_answer then;
    struct punctual_slice slice;
    uint64_t now_ns = 0, next_ns;
    uint32_t unit;

    for ( int i = 0; i < 2; i++ )
    {
        params[i].given |= PUNCTUAL_VM;
        params[i].vm = one_vm ? 7 : i;
        CHECK(MEASURED(stack_most, punctual_insert(pool, 0, &params[i], &unit, &last_words, &then)) ==
              PUNCTUAL_OK);
        CHECK(unit == (uint32_t)i);
        CHECK(MEASURED(stack_decision, punctual_wake(pool, 0, unit, &then)) == PUNCTUAL_OK);
    }
    ran_ns[0] = ran_ns[1] = 0;
    while ( now_ns < 1000000000 )
    {
        CHECK(MEASURED(stack_decision, punctual_timer(pool, now_ns, &then)) == PUNCTUAL_OK);
        CHECK(MEASURED(stack_decision, punctual_pick(pool, now_ns, 0, &slice, &then)) == PUNCTUAL_OK);
        next_ns = slice.until_ns < then.next_timer_ns ? slice.until_ns : then.next_timer_ns;
        if ( next_ns > 1000000000 )
            next_ns = 1000000000;
        CHECK(next_ns > now_ns);
        if ( slice.run == PUNCTUAL_UNIT )
            ran_ns[slice.unit] += next_ns - now_ns;
        now_ns = next_ns;
    }
}

/* What is refused has a text for its reason. Afterwards no unit has work. */
static void refuse(struct punctual_pool *pool)
{
    struct punctual_params wrong = server(3, 2);
    struct punctual_answer then;
    struct punctual_slice slice;
    uint32_t unit;

    MEASURED(stack_most, punctual_insert(pool, 1000000000, &wrong, &unit, &last_words, &then));
    MEASURED(stack_most, punctual_adjust(pool, 1000000000, 0, &wrong, &last_words, &then));
    CHECK(MEASURED(stack_decision, punctual_sleep(pool, 1000000000, 0, &then)) == PUNCTUAL_OK);
    CHECK(MEASURED(stack_decision, punctual_sleep_and_pick(pool, 1000000000, 1, 0, &slice, &then)) ==
          PUNCTUAL_OK);
    CHECK(slice.run != PUNCTUAL_UNIT);
}

int main(void)
{
    size_t bytes = punctual_pool_bytes(2, 8);
    struct punctual_text name, options = text(""), why;
    struct punctual_pool *volatile pool = NULL;
    struct punctual_account account;
    uint64_t ran_ns[2];
    size_t given, used;
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);

    CHECK(punctual_version() == PUNCTUAL_VERSION);

    /* Without memory the library calls punctual_panicked(), which does not return. */
    name = text("rtds");
    if ( setjmp(way_out) == 0 )
    {
        pool = punctual_create(&name, &options, 2, 8, &why);
        CHECK(!"it returned");
    }
    CHECK(strstr(last_words.bytes, "memory") != NULL);

    punctual_give(memory, bytes);
    name = text("nothing");
    CHECK(punctual_create(&name, &options, 2, 8, &why) == NULL);
    CHECK(strncmp(why.bytes, "no policy is called `nothing`", 29) == 0);

    for ( uint32_t i = 0; punctual_policy(i / 2, &name); i++ )
    {
        bool one_vm = i % 2;

        pool = MEASURED(stack_most, punctual_create(&name, &options, 2, 8, &why));
        CHECK(pool != NULL);
        share(pool, one_vm, ran_ns);
        refuse(pool);
        CHECK(punctual_account(pool, 0, &account) == PUNCTUAL_OK);
        printf("%-16s %s %5.1f %% %5.1f %%, %llu replenishments\n", name.bytes,
               one_vm ? "one VM " : "two VMs", ran_ns[0] / 1e7, ran_ns[1] / 1e7,
               (unsigned long long)account.replenishments);
        if ( account.left_ns != PUNCTUAL_NEVER && account.replenishments >= 99 )
            CHECK(ran_ns[0] == 400000000 && ran_ns[1] == 300000000);
        /* No order keeps a vCPU off that another one of its VM may wait for. */
        CHECK(!one_vm || ran_ns[1] >= 300000000);
        CHECK(ran_ns[0] >= 300000000 && ran_ns[0] + ran_ns[1] <= 1000000000);
        /* What it took is there for the next. */
        punctual_memory(&given, &used);
        CHECK(given == bytes && used > 0 && used <= punctual_pool_bytes(2, 8));
        punctual_destroy(pool);
        punctual_memory(&given, &used);
        CHECK(used == 0);
    }
    printf("stack: %zu bytes for a decision, %zu for anything\n", stack_decision, stack_most);
    CHECK(stack_decision <= 1024 && stack_most <= 4096);
    return 0;
}
