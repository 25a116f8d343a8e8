/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The sysctl of Punctual's scheduler in Xen. This is version 3 of the contract.
 *
 * Domain 0 issues XEN_SYSCTL_scheduler_op with the scheduler ID of RTDS (8) and XEN_SYSCTL_SCHEDOP_putinfo.
 * The handle in its union (that of the ARINC 653 schedule) is the address of a struct punctual_op. Xen writes
 * its answer to the same struct. A call that returns an error has changed nothing, and `why` has the reason.
 */
#ifndef PUNCTUAL_OP_H
#define PUNCTUAL_OP_H

#include "punctual.h"

#define PUNCTUAL_OP_VERSION 3

enum punctual_op_what {
    PUNCTUAL_OP_GET_POOL = 0,   /* returns `policy`, `options`, `units`, `failed` */
    PUNCTUAL_OP_SET_POOL = 1,   /* replaces the policy; units keep their parameters */
    PUNCTUAL_OP_GET_UNIT = 2,   /* returns `params` and `account` of `domain`, `vcpu` */
    PUNCTUAL_OP_SET_UNIT = 3,   /* sets the given `params`, except affinity and VM */
    PUNCTUAL_OP_BREAK = 4,      /* debug builds: the policy panics at its next decision */
};

/* The layout is that of x86-64. */
struct punctual_op {
    uint32_t version;
    uint32_t what;
    uint32_t domain;
    uint32_t vcpu;
    uint32_t units;             /* number of units in the pool */
    uint32_t failed;            /* the policy panicked, units run round robin */
    struct punctual_params params;
    struct punctual_account account;
    struct punctual_text policy;
    struct punctual_text options;
    struct punctual_text why;
    uint64_t now_ns;            /* Xen's time of the answer; periods of a new policy begin then */
};

#endif
