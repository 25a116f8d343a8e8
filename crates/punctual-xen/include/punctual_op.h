/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * What domain 0 asks of the scheduler of a cpupool: the contract of version 2.
 *
 * It is the system call XEN_SYSCTL_scheduler_op with the number of RTDS (8) and XEN_SYSCTL_SCHEDOP_putinfo;
 * the handle of its union (that of ARINC 653's schedule) is the address of one struct punctual_op. The answer
 * is written into the same struct, `why` with it if the call returns an error. A call that returns one has
 * changed nothing.
 */
#ifndef PUNCTUAL_OP_H
#define PUNCTUAL_OP_H

#include "punctual.h"

#define PUNCTUAL_OP_VERSION 2

enum punctual_op_what {
    PUNCTUAL_OP_GET_POOL = 0,   /* fills `policy`, `options`, `units`, `parked` */
    PUNCTUAL_OP_SET_POOL = 1,   /* another policy: all units get it, with the parameters that they have */
    PUNCTUAL_OP_GET_UNIT = 2,   /* fills `params` and `account` of `domain` and `vcpu` */
    PUNCTUAL_OP_SET_UNIT = 3,   /* those of `params` that are given; affinity stays that of `xl vcpu-pin` */
    PUNCTUAL_OP_BREAK = 4,      /* the policy panics at its next decision; in debug builds */
};

/* Sizes and offsets are those of x86-64. */
struct punctual_op {
    uint32_t version;
    uint32_t what;
    uint32_t domain;
    uint32_t vcpu;
    uint32_t units;             /* that the pool has now */
    uint32_t parked;            /* the policy panicked: round robin */
    struct punctual_params params;
    struct punctual_account account;
    struct punctual_text policy;
    struct punctual_text options;
    struct punctual_text why;
    uint64_t now_ns;            /* answered: when, by Xen's clock; a new policy's periods begin then */
};

#endif
